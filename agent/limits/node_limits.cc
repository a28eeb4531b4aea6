#include "agent/limits/node_limits.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gpuctl {

using gpuctl::v1::NodeLimits;

namespace {

constexpr absl::Duration kDefaultGrace = absl::Seconds(60);
// The interval between looks for the end of a session, when only a session keeps the node from its
// release.
constexpr absl::Duration kContactPatience = absl::Minutes(1);

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

double SpentUsd(const NodeLimits& limits, absl::Duration billed) {
  return limits.spent_before_usd() + Price(limits, billed);
}

NodeAction NextAction(const NodeLimits& limits, const NodeFacts& facts) {
  using Kind = NodeAction::Kind;
  NodeAction action;
  const double left = limits.cost_usd() - SpentUsd(limits, facts.billed);
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

}  // namespace gpuctl
