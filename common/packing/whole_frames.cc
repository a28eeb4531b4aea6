#include "common/packing/whole_frames.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr int kLevelAgainst = 9;
// The window must reach from the end of the content to the beginning of the base.
constexpr int kLeastWindowLog = 20;
constexpr int kMostWindowLog = 27;

}  // namespace

absl::StatusOr<std::string> UnpackZstd(absl::string_view zstd, size_t most_bytes) {
  return UnpackAgainst(zstd, "", most_bytes);
}

std::string PackAgainst(absl::string_view content, absl::string_view base) {
  const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(),
                                                                   ZSTD_freeCCtx);
  int window = kLeastWindowLog;
  while (window < kMostWindowLog && size_t{1} << window < content.size() + base.size()) ++window;
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevelAgainst);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, window);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_enableLongDistanceMatching, 1);
  ZSTD_CCtx_refPrefix(context.get(), base.data(), base.size());
  std::string packed(ZSTD_compressBound(content.size()), '\0');
  const size_t size =
      ZSTD_compress2(context.get(), packed.data(), packed.size(), content.data(), content.size());
  // It fits, so this fails only without memory. Nothing unpacks "".
  packed.resize(ZSTD_isError(size) ? 0 : size);
  return packed;
}

absl::StatusOr<std::string> UnpackAgainst(absl::string_view zstd, absl::string_view base,
                                          size_t most_bytes) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                   ZSTD_freeDCtx);
  if (context == nullptr) return absl::ResourceExhaustedError("unpack: out of memory");
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kMostWindowLog);
  // For the first frame.
  if (!base.empty()) ZSTD_DCtx_refPrefix(context.get(), base.data(), base.size());
  std::vector<char> buffer(ZSTD_DStreamOutSize());
  ZSTD_inBuffer in{zstd.data(), zstd.size(), 0};
  std::string content;
  size_t left = 1;  // 0 at the end of a frame
  while (in.pos < in.size || left != 0) {
    const size_t before = in.pos;
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    left = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_isError(left)) {
      return absl::InvalidArgumentError(
          absl::StrCat("unpack: not a zstd file, or a damaged one: ", ZSTD_getErrorName(left)));
    }
    if (content.size() + out.pos > most_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("unpack: it has more than ", most_bytes, " bytes"));
    }
    content.append(buffer.data(), out.pos);
    if (left != 0 && in.pos == before && out.pos == 0) {
      return absl::InvalidArgumentError("unpack: the zstd file is cut");
    }
  }
  return content;
}

}  // namespace gpuctl
