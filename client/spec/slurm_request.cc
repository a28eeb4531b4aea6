#include "client/spec/slurm_request.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 127; });
}

}  // namespace

absl::Status CheckSlurmName(const std::string& name) {
  if (!name.empty() && IsPrintable(name) && name[0] != '-') return absl::OkStatus();
  return absl::InvalidArgumentError("must be a name, which does not begin with -");
}

absl::Status CheckSlurmFlag(const std::string& flag) {
  if (!absl::StartsWith(flag, "-") || !IsPrintable(flag)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", flag, "\" does not begin with -; write --flag=value as one word"));
  }
  const std::string name = flag.substr(0, flag.find('='));
  for (const absl::string_view own :
       {"--job-name", "--array", "--wrap", "--parsable", "--nodes", "-J", "-a", "-N"}) {
    // sbatch takes the beginnings of its long words, too.
    const bool is_own = own.size() == 2 ? absl::StartsWith(flag, own)
                                        : name.size() > 3 && absl::StartsWith(own, name);
    if (is_own) return absl::InvalidArgumentError(absl::StrCat(own, " is gpuctl's own"));
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
