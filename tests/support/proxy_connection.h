// One connection through the FaultProxy: two sockets, and the bytes in transit in each direction.
#ifndef GPUCTL_TESTS_SUPPORT_PROXY_CONNECTION_H_
#define GPUCTL_TESTS_SUPPORT_PROXY_CONNECTION_H_

#include <poll.h>

#include <cstdint>
#include <deque>
#include <limits>
#include <string>

#include "absl/time/time.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// The rules for all connections.
struct ProxyRules {
  bool stalled = false;
  bool black_hole = false;  // new connections are swallowed
  absl::Duration delay;
  int64_t bytes_per_second = 0;  // in each direction; 0: no limit
  absl::Duration free_at[2];     // when each direction has carried all bytes that were taken
  // The bytes that may still be delivered in each direction, over all connections.
  int64_t room[2] = {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()};
};

// One connection. Used by the proxy's thread only.
class ProxyConnection {
 public:
  ProxyConnection(UniqueFd first, UniqueFd second, bool swallow);
  ProxyConnection(ProxyConnection&&) = default;
  ProxyConnection& operator=(ProxyConnection&&) = default;

  // Sets the poll events of both sockets; fd -1 means none.
  void Want(const ProxyRules& rules, absl::Duration now, pollfd polls[2]) const;
  // Returns the time after `now` until the next delayed bytes are due; infinite when there are
  // none.
  absl::Duration NextDue(absl::Duration now) const;
  // Moves the bytes that can be moved and adds the delivered ones to `forwarded`. False when the
  // connection is over.
  bool Move(ProxyRules& rules, absl::Duration now, const pollfd polls[2], int64_t forwarded[2]);
  // Makes everything disappear from now on.
  void Swallow();
  // Closes with a TCP reset.
  void Reset();

 private:
  struct Chunk {
    absl::Duration due;
    std::string bytes;
  };
  struct Flow {
    std::deque<Chunk> queue;
    size_t queued_bytes = 0;
    size_t sent_of_front = 0;
    bool ended = false;   // the sender has closed its side
    bool closed = false;  // and the receiver has been told
  };
  bool Read(int from, Flow& flow, ProxyRules& rules, absl::Duration now);
  bool Write(int to, Flow& flow, absl::Duration now, int64_t& room, int64_t& forwarded);

  UniqueFd sockets_[2];
  Flow flows_[2];  // flows_[i] goes from sockets_[i] to the other
  bool swallow_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_PROXY_CONNECTION_H_
