#include "common/packing/packer.h"

#include <zstd.h>

#include <array>

namespace gpuctl {
namespace {

constexpr size_t kWorthPackingBytes = 512;
constexpr size_t kRoomInFrame = 1024;
// The level for content that is compressed alone, for older peers.
constexpr int kLevelAlone = 1;
// The levels for a stream; each takes two to three times as long as the one before it.
constexpr std::array<int, 4> kLevels = {1, 3, 6, 9};
// The window of a stream, and the most that one from a peer may have, as log2 of bytes.
constexpr int kStreamWindowLog = 23;
// The number of packs and the time after which the level may change.
constexpr int kPacksToJudge = 2;
constexpr absl::Duration kTimeToJudge = absl::Milliseconds(50);
// The link's time in multiples of the processor's: above the first, the next level is affordable;
// below the second, the processor holds up the link.
constexpr double kAffordable = 4;
constexpr double kTooDear = 0.5;

}  // namespace

Packer::~Packer() { ZSTD_freeCCtx(context_); }

int Packer::level() const { return streams_ ? kLevels[effort_] : kLevelAlone; }

bool Packer::Pack(absl::string_view frames, gpuctl::v1::Packed& packed) {
  // What does not compress gets a little larger, and must still fit into a frame.
  const size_t most = streams_ ? kMaxPackedBytes - kRoomInFrame : kMaxPackedBytes;
  if (frames.size() < kWorthPackingBytes || frames.size() > most) return false;
  std::string& zstd = *packed.mutable_zstd();
  zstd.resize(ZSTD_compressBound(frames.size()) + 64);
  packed.set_size(static_cast<uint32_t>(frames.size()));
  packed.set_stream(streams_);
  const absl::Duration begin = clock_.SinceBoot();
  const bool packs = streams_ ? PackInStream(frames, zstd) : PackAlone(frames, zstd);
  packing_ += clock_.SinceBoot() - begin;
  ++packs_;
  return packs;
}

bool Packer::PackAlone(absl::string_view frames, std::string& zstd) {
  const size_t size =
      ZSTD_compress(zstd.data(), zstd.size(), frames.data(), frames.size(), kLevelAlone);
  if (ZSTD_isError(size) || size > frames.size() - frames.size() / 8) return false;
  zstd.resize(size);
  return true;
}

// Everything goes out compressed once it was given to the stream, even if that saves nothing: the
// peer needs it for what comes later.
bool Packer::PackInStream(absl::string_view frames, std::string& zstd) {
  if (context_ == nullptr) {
    context_ = ZSTD_createCCtx();
    if (context_ == nullptr) return streams_ = false;
    ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, level());
    ZSTD_CCtx_setParameter(context_, ZSTD_c_windowLog, kStreamWindowLog);
  }
  ZSTD_inBuffer in{frames.data(), frames.size(), 0};
  ZSTD_outBuffer out{zstd.data(), zstd.size(), 0};
  const ZSTD_EndDirective end = changes_ ? ZSTD_e_end : ZSTD_e_flush;
  const size_t left = ZSTD_compressStream2(context_, &out, &in, end);
  if (ZSTD_isError(left) || left != 0) {
    // Out of memory. The peer's stream ends here and is never continued.
    ZSTD_freeCCtx(context_);
    context_ = nullptr;
    return streams_ = false;
  }
  if (changes_) ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, level());
  changes_ = false;
  zstd.resize(out.pos);
  return true;
}

void Packer::Sent(absl::Duration took) {
  sending_ += took;
  if (!streams_ || packs_ < kPacksToJudge || packing_ + sending_ < kTimeToJudge) return;
  const size_t before = effort_;
  if (sending_ > kAffordable * packing_ && effort_ + 1 < kLevels.size()) ++effort_;
  if (sending_ < kTooDear * packing_ && effort_ > 0) --effort_;
  changes_ = changes_ || effort_ != before;
  packs_ = 0;
  packing_ = sending_ = absl::ZeroDuration();
}

Unpacker::~Unpacker() { ZSTD_freeDCtx(context_); }

absl::Status Unpacker::Unpack(const gpuctl::v1::Packed& packed, std::string& frames) {
  const auto bad = [&] {
    frames.clear();
    return absl::InvalidArgumentError("transfer: the peer sent frames that do not unpack");
  };
  // The output buffer has the announced size, so no more than that can come out.
  if (packed.size() == 0 || packed.size() > kMaxPackedBytes) return bad();
  frames.resize(packed.size());
  if (!packed.stream()) {
    const size_t size =
        ZSTD_decompress(frames.data(), frames.size(), packed.zstd().data(), packed.zstd().size());
    return ZSTD_isError(size) || size != frames.size() ? bad() : absl::OkStatus();
  }
  if (context_ == nullptr) {
    context_ = ZSTD_createDCtx();
    if (context_ == nullptr) return absl::ResourceExhaustedError("transfer: out of memory");
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, kStreamWindowLog);
  }
  ZSTD_inBuffer in{packed.zstd().data(), packed.zstd().size(), 0};
  ZSTD_outBuffer out{frames.data(), frames.size(), 0};
  while (in.pos < in.size || out.pos < out.size) {
    const size_t before = in.pos + out.pos;
    const size_t result = ZSTD_decompressStream(context_, &out, &in);
    if (ZSTD_isError(result) || in.pos + out.pos == before) return bad();
  }
  // More than was announced would come out with the next frames.
  char more = 0;
  ZSTD_inBuffer nothing{nullptr, 0, 0};
  ZSTD_outBuffer rest{&more, 1, 0};
  const size_t result = ZSTD_decompressStream(context_, &rest, &nothing);
  return ZSTD_isError(result) || rest.pos > 0 ? bad() : absl::OkStatus();
}

}  // namespace gpuctl
