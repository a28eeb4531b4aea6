// What OpenSSL uses of Apple's header. Declared from Apple's manual page CCRandomGenerateBytes(3cc).
#ifndef GPUCTL_DEPLOY_MACOS_COMMONCRYPTOERROR_H_
#define GPUCTL_DEPLOY_MACOS_COMMONCRYPTOERROR_H_

#include <stdint.h>

typedef int32_t CCCryptorStatus;
enum { kCCSuccess = 0 };

#endif  // GPUCTL_DEPLOY_MACOS_COMMONCRYPTOERROR_H_
