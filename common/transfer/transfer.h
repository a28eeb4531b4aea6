// Types that a push and a pull share: counts, streams and options.
#ifndef GPUCTL_COMMON_TRANSFER_TRANSFER_H_
#define GPUCTL_COMMON_TRANSFER_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/files/byte_stream.h"

namespace gpuctl {

// The content bytes and files of one transfer.
struct TransferCount {
  int64_t bytes = 0;
  int64_t total_bytes = 0;  // to be moved; without content that is there already
  int64_t files = 0;
  int64_t total_files = 0;
  int streams = 1;
};
// A function called with the counts so far, by one thread at a time. May be empty.
using TransferProgress = std::function<void(const TransferCount&)>;

// One connection to a command on the node. It ends with the last copy of `bytes`.
struct TransferStream {
  std::shared_ptr<ByteStream> bytes;
  absl::Duration round_trip;
  // True when the network is the bottleneck, not a processor, so that compression pays.
  bool IsSlow() const { return round_trip > absl::Milliseconds(4); }
};
using OpenTransferStream = std::function<absl::StatusOr<TransferStream>()>;

struct TransferOptions {
  // Opens further streams; called on a thread of its own. Empty: one stream only.
  OpenTransferStream open;
  // The number of streams at once; 0: as many as make it faster, at most eight.
  int streams = 0;
  bool slow_link = false;  // set by PushTree and PullTree
  // False: parts of large files come whole, whatever older versions of them have.
  bool use_older = true;
  TransferProgress progress;
  // Returns the bytes that are free on the disk of a directory, -1 when that is unknown. Empty: the
  // file system is asked.
  std::function<int64_t(const std::string& dir)> free_bytes;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_TRANSFER_H_
