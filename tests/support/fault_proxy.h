// Stands between two ends of a connection and breaks it in the ways networks do: reset, silence,
// stall, delay. For tests, and, as bench/delayproxy, for measurements at a round-trip time.
#ifndef GPUCTL_TESTS_SUPPORT_FAULT_PROXY_H_
#define GPUCTL_TESTS_SUPPORT_FAULT_PROXY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// One thread of its own does all the work. Every method may be called from any thread; a command
// has taken effect when its call returns. Makes the process ignore SIGPIPE. The destructor closes
// all connections.
class FaultProxy {
 public:
  // From the side that connected (the first descriptor) to the target (the second), and back.
  enum class Direction { kForward = 0, kBackward = 1 };

  // Between two connected stream sockets; takes both over.
  static std::unique_ptr<FaultProxy> Between(UniqueFd first, UniqueFd second);
  // Listens at `listen` and connects each caller to `target`. Both are "127.0.0.1:port"; port 0 of
  // `listen` takes a free one.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Listen(absl::string_view listen,
                                                            absl::string_view target);
  ~FaultProxy();

  // The port that Listen listens at.
  int port() const;

  // Closes every connection at once; TCP ends see a reset. New connections work as before.
  void Reset();
  // From now on whatever is sent, closing included, disappears without a sign, also on new
  // connections until Resume. A connection that was in a black hole never comes back.
  void BlackHole();
  // Stops taking bytes from either side, so that both run into full buffers. What was taken already
  // still arrives.
  void Stall();
  // Ends Stall and HoldAfter, and BlackHole for new connections.
  void Resume();
  // Each byte arrives this much later, in each direction; as many as 64 MiB are on their way at a
  // time, so that the delay limits latency and not bandwidth. For bytes from now on.
  void SetDelay(absl::Duration each_way);

  // Delivers bytes of `direction` only until `forwarded` has reached `most`; what comes after is
  // taken and held until Resume. For cutting at an exact byte.
  void HoldAfter(Direction direction, int64_t most);

  // Bytes delivered so far, over all connections.
  int64_t forwarded(Direction direction) const;
  // Waits until `forwarded` is at least `bytes`; false after `timeout`.
  bool BlockUntilForwarded(Direction direction, int64_t bytes,
                           absl::Duration timeout = absl::Seconds(60)) const;
  // Connections that are open now.
  int connections() const;

 private:
  class Loop;
  explicit FaultProxy(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_FAULT_PROXY_H_
