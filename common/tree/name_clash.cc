#include "common/tree/name_clash.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
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

bool FoldsCase(int dir_fd) {
  const std::string name = absl::StrCat("case-", RandomHex(8));
  const UniqueFd fd(openat(dir_fd, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return false;
  struct stat info {};
  const bool folds = fstatat(dir_fd, absl::AsciiStrToUpper(name).c_str(), &info, 0) == 0;
  unlinkat(dir_fd, name.c_str(), 0);
  return folds;
}

absl::Status CheckNameClashes(const Manifest& manifest) {
  // Hashes, not names: a large manifest is to stay the only large thing.
  std::vector<std::pair<uint64_t, uint32_t>> folded;
  folded.reserve(static_cast<size_t>(manifest.size()));
  for (int64_t i = 0; i < manifest.size(); ++i) {
    folded.emplace_back(absl::Hash<std::string>()(absl::AsciiStrToLower(manifest[i].path())),
                        static_cast<uint32_t>(i));
  }
  std::sort(folded.begin(), folded.end());
  for (size_t i = 1; i < folded.size(); ++i) {
    if (folded[i].first != folded[i - 1].first) continue;
    const std::string a = manifest[folded[i - 1].second].path();
    const std::string b = manifest[folded[i].second].path();
    if (absl::AsciiStrToLower(a) != absl::AsciiStrToLower(b)) continue;
    return absl::FailedPreconditionError(absl::StrCat("receive tree: ", absl::CHexEscape(a),
                                                      " and ", absl::CHexEscape(b),
                                                      " are the same name on this file system"));
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
