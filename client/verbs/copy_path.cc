#include "client/verbs/copy_path.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"

namespace gpuctl {

absl::StatusOr<CopyPath> ParseCopyPath(absl::string_view text) {
  CopyPath parsed;
  if (text.empty()) return UsageError("cp: a path is empty", "gpuctl cp SRC DST");
  const size_t colon = text.find(':');
  if (colon == 0)
    return UsageError(absl::StrCat("cp ", text, ": no run before the colon"),
                      "gpuctl cp RUN:PATH DST; ./:x is a file here");
  if (colon == text.npos || text.find('/') < colon) {
    parsed.path = std::string(text);
    parsed.is_directory = absl::EndsWith(text, "/") || text == "." || absl::EndsWith(text, "/.");
    return parsed;
  }
  parsed.run = std::string(text.substr(0, colon));
  const absl::string_view path = text.substr(colon + 1);
  std::vector<absl::string_view> names;
  for (const absl::string_view name : absl::StrSplit(path, '/')) {
    if (name == "..") {
      return UsageError(absl::StrCat("cp ", text, ": it leads out of the work directory"),
                        "paths of a run are relative to its work directory");
    }
    if (!name.empty() && name != ".") names.push_back(name);
  }
  if (absl::StartsWith(path, "/")) {
    return UsageError(absl::StrCat("cp ", text, ": an absolute path"),
                      "paths of a run are relative to its work directory");
  }
  parsed.path = absl::StrJoin(names, "/");
  parsed.is_directory =
      parsed.path.empty() || absl::EndsWith(path, "/") || absl::EndsWith(path, "/.");
  return parsed;
}

}  // namespace gpuctl
