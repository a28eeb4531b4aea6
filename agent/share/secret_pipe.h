// A connection between two nodes that know the same key: what goes over it can neither be read nor
// changed by anybody else.
#ifndef GPUCTL_AGENT_SHARE_SECRET_PIPE_H_
#define GPUCTL_AGENT_SHARE_SECRET_PIPE_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// TLS 1.2 with a pre-shared key and forward secrecy (ECDHE-PSK-CHACHA20-POLY1305, RFC 7905): no
// certificates. A thread of its own carries the bytes.
class SecretPipe {
 public:
  enum class Side { kGives, kFetches };

  // Shakes hands over the connected socket within this time. PERMISSION_DENIED when the other side
  // does not know `key`, which has at least 16 bytes; DEADLINE_EXCEEDED, UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<SecretPipe>> Open(UniqueFd socket, Side side,
                                                          const std::string& key,
                                                          absl::Duration within, Clock& clock);
  // Ends the connection, when what was written to fd() is sent; after a few seconds at the latest.
  ~SecretPipe();
  SecretPipe(const SecretPipe&) = delete;
  SecretPipe& operator=(const SecretPipe&) = delete;

  // The bytes: a blocking socket. It ends when the other side has ended, or has sent and taken
  // nothing for five minutes.
  int fd() const { return plain_.get(); }

 private:
  SecretPipe(UniqueFd plain, std::shared_ptr<std::atomic<bool>> closing, std::thread thread)
      : plain_(std::move(plain)), closing_(std::move(closing)), thread_(std::move(thread)) {}

  const UniqueFd plain_;
  const std::shared_ptr<std::atomic<bool>> closing_;
  std::thread thread_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHARE_SECRET_PIPE_H_
