// Compression of frames: several together, and each with what was sent before it in mind.
#ifndef GPUCTL_COMMON_PACKING_PACKER_H_
#define GPUCTL_COMMON_PACKING_PACKER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "gpuctl/v1/transfer.pb.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace gpuctl {

constexpr size_t kMaxPackedBytes = (1 << 20) + 4096;

// Compresses what one channel sends. With a peer that can take it, the compressed data is one
// stream, so that later frames refer to earlier ones; the effort then follows the link: more while
// the link is slower than the processor. Used by one thread.
class Packer {
 public:
  // `clock` must outlive the packer.
  explicit Packer(Clock& clock = Clock::Real()) : clock_(clock) {}
  ~Packer();
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  // From now on the peer takes streams.
  void UseStream() { streams_ = true; }
  // Compresses `frames`, at most kMaxPackedBytes, into `packed`. False when that is not worth it.
  bool Pack(absl::string_view frames, gpuctl::v1::Packed& packed);
  // Notes the time that the link took for what was packed last.
  void Sent(absl::Duration took);
  // Returns the present level of zstd.
  int level() const;

 private:
  bool PackAlone(absl::string_view frames, std::string& zstd);
  bool PackInStream(absl::string_view frames, std::string& zstd);

  Clock& clock_;
  bool streams_ = false;
  ZSTD_CCtx_s* context_ = nullptr;
  size_t effort_ = 1;     // index of the level
  bool changes_ = false;  // the level changes: the zstd frame ends with the next pack
  int packs_ = 0;         // since the last change, as the times below
  absl::Duration packing_;
  absl::Duration sending_;
};

// Decompresses what one channel receives. Used by one thread.
class Unpacker {
 public:
  Unpacker() = default;
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // Returns the frames of `packed` in `frames`. INVALID_ARGUMENT when it is not what it says. Takes
  // at most 8 MiB and a little, whatever the peer sends.
  absl::Status Unpack(const gpuctl::v1::Packed& packed, std::string& frames);

 private:
  ZSTD_DCtx_s* context_ = nullptr;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PACKING_PACKER_H_
