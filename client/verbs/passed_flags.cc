#include "client/verbs/passed_flags.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gpuctl {

void PassedFlags::Declare(FlagSet& set, const std::string& name, const std::string& help) {
  Passed& passed = flags_.emplace_back(Passed{name, "", FlagSet::Flag(nullptr)});
  passed.flag = set.Option(absl::StrCat("--", name), passed.value, help);
}

bool PassedFlags::given(const std::string& name) const {
  return std::any_of(flags_.begin(), flags_.end(), [&name](const Passed& passed) {
    return passed.name == name && passed.flag.given();
  });
}

void PassedFlags::AddTo(std::vector<std::string>& words) const {
  for (const Passed& passed : flags_) {
    if (passed.flag.given()) words.push_back(absl::StrCat("--", passed.name, "=", passed.value));
  }
}

}  // namespace gpuctl
