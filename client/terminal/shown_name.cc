#include "client/terminal/shown_name.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gpuctl {

std::string ShownName(absl::string_view name) {
  std::string shown;
  for (const char c : name) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    shown += control ? absl::CHexEscape(absl::string_view(&c, 1)) : std::string(1, c);
  }
  return shown;
}

std::string FirstFew(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) shown.push_back(ShownName(names[i]));
  if (names.size() > kShown) shown.push_back(absl::StrCat(names.size() - kShown, " more"));
  return absl::StrJoin(shown, ", ");
}

}  // namespace gpuctl
