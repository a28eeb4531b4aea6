// What a run spec says of rented machines. The declarations are in run_spec.h.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/spec/run_spec.h"
#include "provisioning/markets.h"

namespace gpuctl {

bool NamesMarket(const RunSpec& spec) {
  return std::any_of(spec.providers.begin(), spec.providers.end(),
                     [](const std::string& name) { return IsRental(name); });
}

absl::Status CheckPriceRule(absl::string_view rule) {
  if (std::find(kPriceRules.begin(), kPriceRules.end(), rule) != kPriceRules.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", rule, "\" is none of ", absl::StrJoin(kPriceRules, ", ")));
}

bool ResumesWhenPreempted(const RunSpec& spec) {
  return spec.max_retries > 0 &&
         std::find(spec.retry_on.begin(), spec.retry_on.end(), kOnPreempted) != spec.retry_on.end();
}

absl::Status CheckScheduler(const RunSpec& spec) {
  const std::vector<std::string> alone = {std::string(kClusterProvider)};
  if (spec.slurm.empty() || !NamesMarket(spec) || spec.providers == alone) return absl::OkStatus();
  return absl::InvalidArgumentError("resources.slurm is for provider slurm alone");
}

absl::Status CheckNothingRented(const RunSpec& spec) {
  const char* field = spec.max_price_usd_per_hour.has_value() ? "resources.max_price"
                      : spec.spot                             ? "resources.spot"
                      : !spec.regions.empty()                 ? "resources.region"
                      : !spec.image.empty()                   ? "resources.image"
                      : !spec.registry.empty()                ? "resources.registry"
                      : !spec.volume.name.empty()             ? "resources.volume"
                      : !spec.slurm.empty()                   ? "resources.slurm"
                      : spec.cost_limit_usd.has_value()       ? "limits.cost"
                                                              : nullptr;
  if (field == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is for rented machines; local and ssh run on the one you name"));
}

}  // namespace gpuctl
