// A proxy between two ends of a connection that breaks it as networks do: reset, silence, stall,
// delay. For tests and, as bench/delayproxy, for measurements with a round-trip time.
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

// The proxy. Its own thread does all the work. Every method may be called from any thread; a
// command has taken effect when its call returns. It makes the process ignore SIGPIPE. The
// destructor closes all connections.
class FaultProxy {
 public:
  // kForward: from the connecting side (the first descriptor) to the target (the second).
  // kBackward: back.
  enum class Direction { kForward = 0, kBackward = 1 };

  // Makes a proxy between two connected stream sockets and takes both over.
  static std::unique_ptr<FaultProxy> Between(UniqueFd first, UniqueFd second);
  // Listens at `listen` and connects each caller to `target`. Both are "127.0.0.1:port"; port 0 of
  // `listen` takes a free one.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Listen(absl::string_view listen,
                                                            absl::string_view target);
  ~FaultProxy();

  // Returns the port of Listen.
  int port() const;

  // Closes every connection at once; TCP ends see a reset. New connections work as before.
  void Reset();
  // Makes everything sent from now on disappear silently, also closes. New connections are affected
  // until Resume; old ones never recover.
  void BlackHole();
  // Stops taking bytes from either side, so that the buffers of both become full. Bytes taken
  // before still arrive.
  void Stall();
  // Ends Stall and HoldAfter, and BlackHole for new connections.
  void Resume();
  // Delays each byte from now on by this time, in each direction. Up to 64 MiB are on their way at
  // a time, so that the delay limits latency and not bandwidth.
  void SetDelay(absl::Duration each_way);
  // Delivers no more than this many bytes a second in each direction, over all connections, and
  // then takes few bytes ahead. 0: no limit.
  void SetRate(int64_t bytes_per_second);

  // Delivers bytes of `direction` only until `forwarded` has reached `most`. Takes and holds later
  // bytes until Resume. For a cut at an exact byte.
  void HoldAfter(Direction direction, int64_t most);

  // Returns the bytes delivered so far, over all connections.
  int64_t forwarded(Direction direction) const;
  // Waits until `forwarded` is at least `bytes`. False after `timeout`.
  bool BlockUntilForwarded(Direction direction, int64_t bytes,
                           absl::Duration timeout = absl::Seconds(60)) const;
  // Returns the number of open connections.
  int connections() const;

 private:
  class Loop;
  explicit FaultProxy(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_FAULT_PROXY_H_
