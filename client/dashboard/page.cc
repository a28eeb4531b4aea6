#include "client/dashboard/page.h"

#include <zlib.h>

#include "absl/status/status.h"

namespace gpuctl {

absl::StatusOr<std::string> Unzip(absl::string_view compressed) {
  constexpr size_t kMostBytes = 16 << 20;
  constexpr int kGzip = 16 + MAX_WBITS;
  z_stream stream{};
  if (inflateInit2(&stream, kGzip) != Z_OK) return absl::InternalError("zlib does not begin");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  std::string text;
  char buffer[16 << 10];
  int result = Z_OK;
  while (result == Z_OK && text.size() < kMostBytes) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = sizeof(buffer);
    result = inflate(&stream, Z_NO_FLUSH);
    text.append(buffer, sizeof(buffer) - stream.avail_out);
  }
  inflateEnd(&stream);
  if (result != Z_STREAM_END) return absl::DataLossError("this is not what gzip packs");
  return text;
}

}  // namespace gpuctl
