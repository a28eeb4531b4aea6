#include "client/verbs/down_losses.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/paths.h"
#include "client/due/findings.h"
#include "client/home/other_parts.h"
#include "client/node/make_links.h"
#include "provisioning/markets.h"

namespace gpuctl {

std::optional<Instance::State> LossFinder::Shown(const Lease& lease) const {
  if (!found_.has_value()) return std::nullopt;
  for (const SeenInstance& seen : found_->instances) {
    if (seen.listed.instance.id == lease.instance_id) return seen.listed.instance.state;
  }
  return std::nullopt;
}

bool LossFinder::MayAnswerLater(const Lease& lease) {
  const std::optional<Instance::State> state = Shown(lease);
  if (!state.has_value() || lease.state != LeaseState::kRented) return false;
  if (*state == Instance::State::kRunning) return true;
  const bool in_salvage =
      lease.trouble_ms == 0 || context_.NowMs() - lease.trouble_ms < lease.limits.salvage_s * 1000;
  if (!in_salvage || *state != Instance::State::kFailed) {
    return in_salvage && *state == Instance::State::kSilent;
  }
  const absl::StatusOr<Provider*> provider = holdings_.Find(lease.provider);
  return provider.ok() && (*provider)->traits().keeps_stopped_disk;
}

bool LossFinder::SchedulerIsSilent(const Lease& lease) const {
  return lease.provider == kClusterProvider && found_.has_value() &&
         std::any_of(found_->unknown.begin(), found_->unknown.end(), [](const UnknownMarket& at) {
           return at.name == kClusterProvider && absl::IsUnavailable(at.cause);
         });
}

Missing LossFinder::MissingOf(NodeCalls& calls, const RunRow& row) {
  if (row.end.has_value()) return JudgeRun(context_, store_, calls, row, /*force=*/true).missing;
  absl::StatusOr<Missing> missing = MissingSoFar(context_, calls, row);
  if (missing.ok()) return *std::move(missing);
  context_.Warn(absl::StrCat("it is not known what of ", row.name,
                             " is at home: ", missing.status().message()));
  return {};
}

NotHomeOn LossFinder::Find(const Lease& lease) {
  NotHomeOn found;
  for (const LeaseUse& use : lease.uses) {
    const absl::StatusOr<RunRow> row = store_.Get(use.run_id);
    if (!row.ok()) continue;
    Add(lease, *row, found);
    const absl::StatusOr<std::vector<RunRow>> members = store_.Members(row->run_id);
    if (!members.ok()) continue;
    for (const RunRow& member : *members) {
      // The further nodes of an allocation have no lease of their own.
      const absl::StatusOr<std::optional<Lease>> own = holdings_.ledger().OfRun(member.run_id);
      if (own.ok() && !own->has_value()) Add(lease, member, found);
    }
  }
  return found;
}

void LossFinder::Add(const Lease& lease, const RunRow& row, NotHomeOn& found) {
  if (row.accepted_ms == 0) return;
  absl::StatusOr<std::unique_ptr<LinkFactory>> links =
      absl::UnavailableError("Slurm does not answer");
  if (!SchedulerIsSilent(lease)) links = MakeLinks(context_, row.target);
  absl::StatusOr<NodeCalls> calls =
      links.ok() ? NodeCalls::Connect(context_, **links, row.target) : links.status();
  if (!calls.ok()) {
    const absl::StatusOr<ClientPaths> paths = context_.Paths();
    if (paths.ok() && IsNotedHome(*paths, row)) return;
    const std::string unknown = absl::StrCat("it is not known whether all results of ", row.name,
                                             " are at home: ", calls.status().message());
    found.unknown = true;
    if (!MayAnswerLater(lease)) {
      context_.Warn(unknown);
      return;
    }
    found.wanted.push_back(unknown);
    const bool stopped = Shown(lease) == Instance::State::kFailed;
    found.ways.push_back(
        absl::StrCat(stopped ? absl::StrCat("once ", lease.provider, " runs it again, ") : "",
                     "gpuctl pull ", row.name));
    return;
  }
  const Missing missing = MissingOf(*calls, row);
  if (missing.empty()) return;
  const Missing wanted = SurelyWanted(missing, row);
  if (!wanted.empty()) {
    found.wanted.push_back(absl::StrCat(row.name, ": ", DescribeMissing(wanted)));
    found.ways.push_back(HowToBring(row.name, wanted));
  }
  if (const std::string others = DescribeOthers(missing, wanted); !others.empty()) {
    found.others.push_back(absl::StrCat(row.name, ": ", others));
  }
}

}  // namespace gpuctl
