#include "client/due/due_machines.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/market/instance_target.h"
#include "client/node/make_links.h"
#include "client/programs/node_scripts.h"
#include "client/terminal/console.h"
#include "common/base/at_once.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"
#include "common/job/lifecycle.h"
#include "provisioning/ledger/lease_lock.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAnswerWithin = absl::Seconds(20);
// The number of connections at once that a home's internet access carries.
constexpr size_t kAtOnce = 8;
constexpr absl::Duration kSilentFor = absl::Minutes(1);
// The number of release requests without effect from which on something is wrong. A node that can
// end itself asks every few seconds to minutes.
constexpr int64_t kInVain = 3;
// Slack, in milliseconds, for what is not known exactly here: the push before the job, its grace,
// two clocks.
constexpr int64_t kSlackMs = 3'600'000;

std::string StringIn(const nlohmann::json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

absl::StatusOr<std::unique_ptr<LinkFactory>> LinksToInstance(CommandContext& context,
                                                             absl::string_view provider,
                                                             const Instance& instance) {
  if (!instance.address.has_value()) return absl::UnavailableError("it has no address");
  Lease lease;
  lease.provider = std::string(provider);
  lease.instance_id = instance.id;
  lease.address = *instance.address;
  return LinksToNode(context, lease);
}

}  // namespace

absl::StatusOr<NodeVerdict> ParseNodeVerdict(absl::string_view text) {
  const nlohmann::json json = ParseBoundedJson(text);
  const auto is = [&json](const char* name, bool (nlohmann::json::*type)() const noexcept) {
    const auto found = json.find(name);
    return found != json.end() && ((*found).*type)();
  };
  using Json = nlohmann::json;
  if (!json.is_object() || !is("job_runs", &Json::is_boolean) ||
      !is("results_home", &Json::is_boolean) || !is("can_release", &Json::is_boolean) ||
      !is("release_requests", &Json::is_number_integer) || !is("lease_id", &Json::is_string) ||
      json.find("due") == json.end()) {
    return absl::DataLossError("read the node's limits: it answered something else");
  }
  NodeVerdict verdict;
  verdict.lease_id = StringIn(json, "lease_id");
  verdict.job_runs = json["job_runs"].get<bool>();
  verdict.results_home = json["results_home"].get<bool>();
  verdict.due = StringIn(json, "due");
  verdict.can_release = json["can_release"].get<bool>();
  verdict.release_requests = json["release_requests"].get<int64_t>();
  const auto price = [&](const char* name) { return is(name, &Json::is_number); };
  if (price("rate_usd_per_hour") && price("upload_usd_per_gb") && price("download_usd_per_gb")) {
    verdict.usd_per_hour = json["rate_usd_per_hour"].get<double>();
    verdict.upload_usd_per_gb = json["upload_usd_per_gb"].get<double>();
    verdict.download_usd_per_gb = json["download_usd_per_gb"].get<double>();
  }
  if (is("billing_started_ms", &Json::is_number_integer)) {
    verdict.billing_started_ms = json["billing_started_ms"].get<int64_t>();
  }
  if (is("sent_bytes", &Json::is_number_integer) &&
      is("received_bytes", &Json::is_number_integer)) {
    verdict.sent_bytes = json["sent_bytes"].get<int64_t>();
    verdict.received_bytes = json["received_bytes"].get<int64_t>();
  }
  return verdict;
}

// Uses the plain command, not the agent's server. A call to the server counts as contact: the idle
// and lease limits would begin again at each question.
absl::StatusOr<NodeVerdict> AskLimits(LinkFactory& links, absl::string_view lease_id) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SshSession> session, links.OpenSshSession());
  ASSIGN_OR_RETURN(
      const SshSession::Result result,
      session->RunToEnd(
          ShellCommand(absl::StrCat("r=", RootWord(""),
                                    "; exec \"$r/bin/current/gpuctl-agent\" limits --root \"$r\"")),
          "", kAnswerWithin));
  if (result.exit_code != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its agent cannot tell: ", absl::StripAsciiWhitespace(result.err).substr(0, 200)));
  }
  ASSIGN_OR_RETURN(const NodeVerdict verdict, ParseNodeVerdict(result.out));
  if (verdict.lease_id != lease_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("its agent knows it as lease ", verdict.lease_id));
  }
  return verdict;
}

absl::StatusOr<NodeVerdict> AskNode(CommandContext& context, absl::string_view provider,
                                    const Instance& instance, absl::string_view lease_id) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links,
                   LinksToInstance(context, provider, instance));
  return AskLimits(*links, lease_id);
}

std::vector<bool> AreServed(CommandContext& context, const std::vector<ServesQuestion>& machines) {
  std::vector<absl::StatusOr<std::unique_ptr<LinkFactory>>> links;
  for (const ServesQuestion& machine : machines) {
    links.push_back(LinksToInstance(context, machine.provider->name(), machine.instance));
  }
  std::vector<char> served(machines.size());  // not bool: its bits share bytes
  ForEachAtOnce(machines.size(), kAtOnce, [&](size_t i) {
    if (!links[i].ok()) return;
    const absl::StatusOr<NodeVerdict> verdict = AskLimits(**links[i], machines[i].lease_id);
    served[i] = verdict.ok() && (verdict->job_runs || !verdict->results_home) ? 1 : 0;
  });
  return {served.begin(), served.end()};
}

std::string SuccessorOf(RunStore* store, const std::string& run_id) {
  if (store == nullptr) return "";
  // Only a run whose machine was taken away goes on. One that ended was run again from its results,
  // and the rest of them may still lie on its machine.
  const absl::StatusOr<RunRow> before = store->Get(run_id);
  if (!before.ok() || !before->end.has_value()) return "";
  if (before->end->state != gpuctl::v1::JOB_STATE_LOST && !IsPreempted(*before->end)) return "";
  // A launch that never came to a machine is no successor.
  const absl::StatusOr<std::vector<std::string>> names = store->SuccessorsOf(run_id);
  return names.ok() && !names->empty() ? names->front() : "";
}

absl::StatusOr<std::unique_ptr<LinkFactory>> LinksToNode(CommandContext& context,
                                                         const Lease& lease) {
  if (lease.address.host.empty()) return absl::UnavailableError("its address is not known here");
  ASSIGN_OR_RETURN(const NodeTarget target, TargetOfInstance(context, lease, lease.address));
  return MakeLinks(context, target);
}

std::string WhyDueByVerdict(const NodeVerdict& verdict) {
  if (verdict.due.empty() || verdict.job_runs) return "";
  if (verdict.can_release && verdict.release_requests < kInVain) return "";
  const absl::string_view limit = LimitOf(verdict.due);
  return absl::StrCat("its ", limit.empty() ? verdict.due : limit, " limit is over, and it ",
                      verdict.can_release ? "asks for its own end in vain" : "cannot end itself");
}

int64_t SurelyDueMs(const Lease& lease, const std::optional<RunRow>& run) {
  const LeaseLimits& limits = lease.limits;
  const int64_t from_ms =
      std::max(lease.claimed_ms, lease.uses.empty() ? 0 : lease.uses.back().from_ms);
  // The last time at which somebody was known to be in contact.
  int64_t heard_ms = from_ms;
  int64_t over_ms = from_ms + limits.time_s * 1000 + kSlackMs;
  if (run.has_value()) {
    heard_ms = std::max(heard_ms, run->heard_ms);
    if (run->end.has_value()) {
      over_ms = run->end->ended_ms;
    } else {
      over_ms = std::max(over_ms, run->accepted_ms + limits.time_s * 1000 + kSlackMs);
    }
  }
  const bool ends = limits.time_s > 0 || (run.has_value() && run->end.has_value());
  if (!ends) return kNeverMs;
  const int64_t quiet_ms = std::max(over_ms, heard_ms);
  int64_t due_ms = kNeverMs;
  if (limits.salvage_s > 0) {
    due_ms = std::max(over_ms + limits.salvage_s * 1000, quiet_ms + limits.idle_s * 1000);
  }
  if (limits.contact_s > 0) due_ms = std::min(due_ms, quiet_ms + limits.contact_s * 1000);
  return due_ms;
}

bool NodeLimitsWatch::HasUse(const Lease& lease) const {
  const absl::StatusOr<ClientPaths> paths = context_.Paths();
  return paths.ok() && LeaseLock::IsUseHeld(paths->state_dir, lease.lease_id).value_or(false);
}

NodeLimitsWatch::Asked NodeLimitsWatch::Prepare(const DueQuestion& machine) {
  const Lease& lease = machine.lease;
  Asked asked;
  asked.lease = &lease;
  std::optional<RunRow> run;
  if (store_ != nullptr && !lease.uses.empty()) {
    const absl::StatusOr<RunRow> row = store_->Get(lease.uses.back().run_id);
    if (row.ok()) run = *row;
  }
  // What waits in a queue has used nothing of its limits, and its scheduler ends what has begun.
  if (machine.provider->traits().has_queue) {
    asked.surely_ms = kNeverMs;
    return asked;
  }
  asked.begins = (!run.has_value() || run->accepted_ms == 0) && HasUse(lease);
  asked.surely_ms = asked.begins ? kNeverMs : SurelyDueMs(lease, run);
  asked.ask = !machine.provider->traits().self_release() || context_.NowMs() >= asked.surely_ms;
  if (!asked.ask) return asked;
  const auto silence = silent_.find(lease.lease_id);
  if (silence != silent_.end() && context_.clock.SinceBoot() - silence->second.since < kSilentFor) {
    asked.verdict = silence->second.cause;
    return asked;
  }
  absl::StatusOr<std::unique_ptr<LinkFactory>> links = LinksToNode(context_, lease);
  if (links.ok()) {
    asked.links = *std::move(links);
  } else {
    asked.verdict = links.status();
  }
  return asked;
}

std::vector<std::string> NodeLimitsWatch::WhyDue(const std::vector<DueQuestion>& machines) {
  std::vector<Asked> all;
  for (const DueQuestion& machine : machines) all.push_back(Prepare(machine));
  ForEachAtOnce(all.size(), kAtOnce, [&all](size_t i) {
    if (all[i].links != nullptr) all[i].verdict = AskLimits(*all[i].links, all[i].lease->lease_id);
  });
  std::vector<std::string> whys;
  for (const Asked& asked : all) {
    if (asked.links != nullptr && !asked.verdict.ok()) {
      silent_[asked.lease->lease_id] = {context_.clock.SinceBoot(), asked.verdict.status()};
    }
    whys.push_back(asked.ask ? Judge(asked) : "");
  }
  return whys;
}

std::string NodeLimitsWatch::Judge(const Asked& asked) {
  if (asked.verdict.ok()) {
    const bool idle = LimitOf(asked.verdict->due) == "idle";
    return idle && asked.begins ? "" : WhyDueByVerdict(*asked.verdict);
  }
  const Lease& lease = *asked.lease;
  const int64_t now_ms = context_.NowMs();
  if (now_ms >= asked.surely_ms) {
    return absl::StrCat("its node does not answer (", asked.verdict.status().message(),
                        "), and by what is written down here its limits were over ",
                        HumanDuration(absl::Milliseconds(now_ms - asked.surely_ms)), " ago");
  }
  if (told_.insert(lease.lease_id).second) {
    const std::string when =
        asked.surely_ms == kNeverMs
            ? "never over"
            : absl::StrCat("over in ", HumanDuration(absl::Milliseconds(asked.surely_ms - now_ms)));
    context_.Warn(absl::StrCat(
        lease.provider, "/", lease.instance_id, ", ", FormatUsdPerHour(lease),
        "/h: it is UNKNOWN whether its job runs, its results are home and its limits "
        "are over: ",
        asked.verdict.status().message(), "; by what is written down here its limits are ", when,
        "; gpuctl down ends it now"));
  }
  return "";
}

}  // namespace gpuctl
