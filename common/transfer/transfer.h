// The words that a push and a pull share: how much was moved, over which streams, and how.
#ifndef GPUCTL_COMMON_TRANSFER_TRANSFER_H_
#define GPUCTL_COMMON_TRANSFER_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/transfer/byte_stream.h"

namespace gpuctl {

// Content bytes and files of one transfer.
struct TransferCount {
  int64_t bytes = 0;
  int64_t total_bytes = 0;  // what has to be moved; what is there already is not in it
  int64_t files = 0;
  int64_t total_files = 0;
  int streams = 1;
};
// Called with what has been moved so far, by one thread at a time. May be empty.
using TransferProgress = std::function<void(const TransferCount&)>;

// One connection to a command on the node, which ends with the last copy of `bytes`.
struct TransferStream {
  std::shared_ptr<ByteStream> bytes;
  absl::Duration round_trip;
  // The network is what is waited for, not a processor: compression pays.
  bool IsSlow() const { return round_trip > absl::Milliseconds(4); }
};
using OpenTransferStream = std::function<absl::StatusOr<TransferStream>()>;

struct TransferOptions {
  // Opens further streams; called from a thread of its own. Empty: one stream is all.
  OpenTransferStream open;
  // Streams at once; 0: as many as gain something, eight at most.
  int streams = 0;
  bool slow_link = false;  // set by PushTree and PullTree
  TransferProgress progress;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_TRANSFER_H_
