// Fuzzes ignore files: any bytes are patterns, and a match takes bounded time.
#include <cstdint>
#include <cstdlib>

#include "client/ignore/git_glob.h"
#include "client/ignore/ignore_pattern.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  // The last line is the path.
  const size_t end = text.rfind('\n');
  const absl::string_view rules = end == absl::string_view::npos ? "" : text.substr(0, end);
  const absl::string_view path = end == absl::string_view::npos ? text : text.substr(end + 1);
  const size_t slash = path.rfind('/');
  const absl::string_view name = slash == absl::string_view::npos ? path : path.substr(slash + 1);
  for (const bool ignore_case : {false, true}) {
    for (const gpuctl::IgnorePattern& pattern : gpuctl::ParseIgnoreFile(rules, ignore_case)) {
      // A rule for directories matches no file that it does not match as a directory.
      const bool as_file = pattern.Matches(path, name, false);
      if (as_file && !pattern.Matches(path, name, true)) abort();
    }
    const gpuctl::GitGlob glob(rules, ignore_case);
    (void)glob.Matches(path);
    // Every pattern without wildcards matches itself, and nothing longer.
    if (gpuctl::LiteralPrefix(path) == path.size()) {
      const gpuctl::GitGlob literal(path, ignore_case);
      if (!literal.Matches(path) || literal.Matches(std::string(path) + "x")) abort();
    }
  }
  return 0;
}
