#include "client/terminal/shown_name.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/shell_quote.h"
#include "client/terminal/safe_text.h"

namespace gpuctl {

std::string FirstFew(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(kShown, names.size())));
  if (names.size() > kShown) shown.push_back(absl::StrCat(names.size() - kShown, " more"));
  return absl::StrJoin(shown, ", ");
}

std::string TypedName(const std::string& name, absl::string_view otherwise) {
  const bool typed = !absl::StartsWith(name, "-") && MakeSafe(name) == name;
  return typed ? ShellQuote(name) : std::string(otherwise);
}

std::string DescribeGrown(const std::vector<std::string>& names) {
  return absl::StrCat(FirstFew(names), names.size() == 1 ? " grows" : " grow",
                      " meanwhile; the beginning is taken");
}

std::string DescribeSetId(const std::vector<std::string>& names) {
  return absl::StrCat("setuid and setgid are not kept: ", FirstFew(names));
}

}  // namespace gpuctl
