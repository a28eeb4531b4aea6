#include "agent/limits/node_limits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gpuctl {

using gpuctl::v1::NodeLimits;

namespace {

constexpr absl::Duration kDefaultGrace = absl::Seconds(60);
// The interval between looks for the end of a session, when only a session keeps the node from its
// release.
constexpr absl::Duration kContactPatience = absl::Minutes(1);
constexpr double kBytesPerGb = 1e9;

absl::Duration Grace(const NodeLimits& limits) {
  return limits.grace_ms() > 0 ? absl::Milliseconds(limits.grace_ms()) : kDefaultGrace;
}

double Price(const NodeLimits& limits, absl::Duration duration) {
  return limits.rate_usd_per_hour() * absl::ToDoubleHours(duration);
}

// Returns the time until `usd` more are spent.
absl::Duration TimeFor(const NodeLimits& limits, double usd) {
  if (usd <= 0) return absl::ZeroDuration();
  if (limits.rate_usd_per_hour() <= 0) return absl::InfiniteDuration();
  return absl::Hours(usd / limits.rate_usd_per_hour());
}

// Replaces `best` by this action if it is due earlier. At the same time the first one offered
// stays.
void Offer(NodeAction& best, NodeAction::Kind kind, const char* reason, absl::Duration in) {
  if (in == absl::InfiniteDuration() || in >= best.in) return;
  best = {kind, reason, in};
}

}  // namespace

double SpentUsd(const NodeLimits& limits, absl::Duration billed, double traffic_usd) {
  return limits.spent_before_usd() + Price(limits, billed) + traffic_usd;
}

double TrafficUsd(const NodeLimits& limits, const ClockNote& note) {
  const auto usd = [](int64_t bytes, int64_t before, double usd_per_gb) {
    // A node that lost its count began again at 0.
    const int64_t counted = bytes >= before ? bytes - before : bytes;
    return static_cast<double>(counted) / kBytesPerGb * usd_per_gb;
  };
  return usd(note.traffic.sent_bytes, limits.sent_before_bytes(), limits.upload_usd_per_gb()) +
         usd(note.traffic.received_bytes, limits.received_before_bytes(),
             limits.download_usd_per_gb());
}

NodeAction NextAction(const NodeLimits& limits, const NodeFacts& facts) {
  using Kind = NodeAction::Kind;
  NodeAction action;
  const double left = limits.cost_usd() - SpentUsd(limits, facts.billed, facts.traffic_usd);
  if (facts.job_runs) {
    if (limits.cost_usd() > 0) {
      const absl::Duration reserve = Grace(limits) + absl::Seconds(limits.salvage_s());
      Offer(action, Kind::kStopJobs, "limit:cost", TimeFor(limits, left - Price(limits, reserve)));
    }
    return action;
  }
  if (limits.cost_usd() > 0) {
    Offer(action, Kind::kRelease, "limit:cost", TimeFor(limits, left));
  }
  const absl::Duration quiet = std::min(facts.no_job, facts.no_contact);
  const bool here = facts.no_contact <= absl::ZeroDuration();
  if (limits.lease_s() > 0) {
    Offer(action, Kind::kRelease, "limit:lease", absl::Seconds(limits.lease_s()) - quiet);
  }
  const absl::Duration idle_left = limits.idle_s() > 0
                                       ? absl::Seconds(limits.idle_s()) - quiet
                                       : (here ? kContactPatience : absl::ZeroDuration());
  if (facts.results_home) {
    if (limits.idle_s() > 0) Offer(action, Kind::kRelease, "limit:idle", idle_left);
  } else if (limits.salvage_s() > 0) {
    Offer(action, Kind::kRelease, "limit:salvage",
          std::max(absl::Seconds(limits.salvage_s()) - facts.no_job, idle_left));
  }
  return action;
}

ClockNote Advance(const std::optional<ClockNote>& note, const StoredLimits& stored,
                  const JobCensus& census, bool in_contact,
                  const std::optional<TimeStamp>& last_contact, const TimeStamp& now) {
  ClockNote next;
  next.at = now;
  next.revision = stored.limits.revision();
  next.jobs_over = static_cast<int64_t>(census.with_results.size());
  const bool known = note.has_value() && note->revision == next.revision;
  const absl::Duration passed = Elapsed(note.has_value() ? note->at : stored.accepted, now);
  next.billed = known ? note->billed + passed : Elapsed(stored.accepted, now);
  // Durations that began before these limits continue.
  const bool counting = note.has_value() && note->revision > 0;
  // A job that began and ended between two looks counts as ended now. (Removed jobs make the number
  // smaller.)
  const bool unseen_job = counting && note->jobs_over < next.jobs_over;
  if (census.live.empty() && !unseen_job) {
    next.no_job = counting ? note->no_job + passed : Elapsed(stored.accepted, now);
  }
  if (!in_contact) {
    next.no_contact = counting ? note->no_contact + passed : Elapsed(stored.accepted, now);
    if (last_contact.has_value()) {
      next.no_contact = std::min(next.no_contact, Elapsed(*last_contact, now));
    }
    // Zero would mean that somebody is here.
    next.no_contact = std::max(next.no_contact, absl::Milliseconds(1));
  }
  return next;
}

void CountTraffic(const std::optional<ClockNote>& note,
                  const std::optional<NetworkCounters>& counters, ClockNote& next) {
  if (note.has_value()) {
    next.traffic = note->traffic;
    next.counters = note->counters;
  }
  if (!counters.has_value()) return;
  if (note.has_value() && note->counters.has_value()) {
    const bool same_boot = note->at.boot_id == next.at.boot_id;
    const auto count = [same_boot](int64_t before, int64_t now, int64_t& total) {
      const int64_t passed = std::max<int64_t>(0, same_boot && now >= before ? now - before : now);
      total += std::min(passed, std::numeric_limits<int64_t>::max() - total);
    };
    count(note->counters->sent_bytes, counters->sent_bytes, next.traffic.sent_bytes);
    count(note->counters->received_bytes, counters->received_bytes, next.traffic.received_bytes);
  }
  next.counters = counters;
}

}  // namespace gpuctl
