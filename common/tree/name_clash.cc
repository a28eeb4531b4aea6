#include "common/tree/name_clash.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/unique_fd.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kComposed = "\xC3\xA9";     // é
constexpr absl::string_view kDecomposed = "e\xCC\x81";  // e and a combining accent

const utf8proc_uint8_t* Bytes(absl::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

bool IsAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isascii(static_cast<unsigned char>(c)); });
}

// Returns the number of leading bytes of `text` that are UTF-8.
size_t Utf8Prefix(absl::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    utf8proc_int32_t code_point = 0;
    const absl::string_view rest = text.substr(end);
    const utf8proc_ssize_t length =
        utf8proc_iterate(Bytes(rest), static_cast<utf8proc_ssize_t>(rest.size()), &code_point);
    if (length <= 0) break;
    end += static_cast<size_t>(length);
  }
  return end;
}

// Returns `text`, which is UTF-8, mapped by utf8proc; unchanged when there is no memory.
std::string Mapped(absl::string_view text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(Bytes(text), static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                   static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(mapped, &std::free);
  if (size < 0) return std::string(text);
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

std::string FoldedText(absl::string_view text, const NameFolding& folding) {
  constexpr int kDecompose = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (!folding.letter_case) return Mapped(text, kDecompose);
  if (!folding.unicode_form) return Mapped(text, UTF8PROC_STABLE | UTF8PROC_CASEFOLD);
  // Decompose first: folding turns the mark U+0345 into a letter, and its place among other marks
  // must not matter.
  return Mapped(Mapped(text, kDecompose), kDecompose | UTF8PROC_CASEFOLD);
}

}  // namespace

NameFolding ProbeNameFolding(int dir_fd) {
  NameFolding folding;
  const std::string base = absl::StrCat("case-", RandomHex(8));
  struct stat info {};
  // A file system may refuse the second character set.
  for (const absl::string_view accented : {kComposed, absl::string_view()}) {
    const std::string name = absl::StrCat(base, accented);
    const UniqueFd fd(openat(dir_fd, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd.valid()) continue;
    const std::string upper = absl::StrCat(absl::AsciiStrToUpper(base), accented);
    folding.letter_case = fstatat(dir_fd, upper.c_str(), &info, 0) == 0;
    if (!accented.empty()) {
      const std::string other = absl::StrCat(base, kDecomposed);
      folding.unicode_form = fstatat(dir_fd, other.c_str(), &info, 0) == 0;
    }
    unlinkat(dir_fd, name.c_str(), 0);
    break;
  }
  return folding;
}

std::string FoldedName(absl::string_view name, const NameFolding& folding) {
  if (!folding.any()) return std::string(name);
  if (IsAscii(name)) {
    return folding.letter_case ? absl::AsciiStrToLower(name) : std::string(name);
  }
  std::string folded;
  while (!name.empty()) {
    const size_t text = Utf8Prefix(name);
    if (text > 0) folded += FoldedText(name.substr(0, text), folding);
    name.remove_prefix(text);
    if (name.empty()) break;
    folded += name[0];
    name.remove_prefix(1);
  }
  return folded;
}

absl::Status CheckNameClashes(const Manifest& manifest, const NameFolding& folding) {
  // It compares hashes, not names, to need little memory beside a large manifest.
  std::vector<std::pair<uint64_t, uint32_t>> folded;
  folded.reserve(static_cast<size_t>(manifest.size()));
  for (int64_t i = 0; i < manifest.size(); ++i) {
    folded.emplace_back(absl::Hash<std::string>()(FoldedName(manifest[i].path(), folding)),
                        static_cast<uint32_t>(i));
  }
  std::sort(folded.begin(), folded.end());
  for (size_t i = 1; i < folded.size(); ++i) {
    if (folded[i].first != folded[i - 1].first) continue;
    const std::string a = manifest[folded[i - 1].second].path();
    const std::string b = manifest[folded[i].second].path();
    if (FoldedName(a, folding) != FoldedName(b, folding)) continue;
    return absl::FailedPreconditionError(absl::StrCat("receive tree: ", absl::CHexEscape(a),
                                                      " and ", absl::CHexEscape(b),
                                                      " are the same name on this file system"));
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
