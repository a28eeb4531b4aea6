#include "common/packing/whole_frames.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gpuctl {

absl::StatusOr<std::string> UnpackZstd(absl::string_view zstd, size_t most_bytes) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                   ZSTD_freeDCtx);
  if (context == nullptr) return absl::ResourceExhaustedError("unpack: out of memory");
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
