#include "common/files/relative_path.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace gpuctl {

bool IsSafeRelativePath(absl::string_view path) {
  if (path.empty() || path.find('\0') != path.npos) return false;
  while (true) {
    const size_t slash = path.find('/');
    const absl::string_view component = path.substr(0, slash);
    if (component.empty() || component == "." || component == "..") return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

bool PathLess(absl::string_view a, absl::string_view b) {
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (in_b == b.end()) return false;
  if (in_a == a.end()) return true;
  // A separator sorts before every byte that a name can hold.
  const auto rank = [](char c) { return c == '/' ? 0 : static_cast<int>(static_cast<uint8_t>(c)); };
  return rank(*in_a) < rank(*in_b);
}

absl::string_view ParentPath(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? absl::string_view() : path.substr(0, slash);
}

absl::Status PathError(absl::string_view doing, absl::string_view path) {
  return ErrnoStatus(errno, absl::StrCat(doing, " ", absl::CHexEscape(path)));
}

}  // namespace gpuctl
