// Apple's random numbers, which OpenSSL seeds its own with.
#ifndef GPUCTL_DEPLOY_MACOS_COMMONRANDOM_H_
#define GPUCTL_DEPLOY_MACOS_COMMONRANDOM_H_

#include <stddef.h>

#include <CommonCrypto/CommonCryptoError.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef CCCryptorStatus CCRNGStatus;
CCRNGStatus CCRandomGenerateBytes(void* bytes, size_t count);

#ifdef __cplusplus
}
#endif

#endif  // GPUCTL_DEPLOY_MACOS_COMMONRANDOM_H_
