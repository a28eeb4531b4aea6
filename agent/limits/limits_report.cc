#include "agent/limits/limits_report.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "nlohmann/json.hpp"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/base/time_stamp.h"
#include "agent/limits/contact.h"
#include "agent/limits/node_limits.h"
#include "agent/limits/node_limits_store.h"
#include "agent/limits/self_release.h"
#include "common/process/process.h"

namespace gpuctl {

std::optional<gpuctl::v1::NodeLimitsState> DescribeNodeLimits(const RootPaths& paths,
                                                              const std::string& boot_id,
                                                              Clock& clock) {
  const absl::StatusOr<StoredLimits> stored = ReadNodeLimits(paths);
  if (!stored.ok()) return std::nullopt;
  const TimeStamp now = StampNow(boot_id, clock);
  const JobCensus census = TakeCensus(paths);
  // The asking client will be gone in a moment. Report what happens then.
  const std::optional<ClockNote> before = ReadClockNote(paths);
  ClockNote note = Advance(before, *stored, census, /*in_contact=*/true, {}, now);
  CountTraffic(before, ReadNetworkCounters(), note);
  note.no_contact = absl::Milliseconds(1);
  NodeFacts facts{note.billed,          note.no_job, note.no_contact,
                  !census.live.empty(), true,        TrafficUsd(stored->limits, note)};
  facts.results_home = ResultsHome(paths, stored->limits, census.with_results);
  const NodeAction action = NextAction(stored->limits, facts);
  gpuctl::v1::NodeLimitsState state;
  *state.mutable_limits() = stored->limits;
  state.set_spent_usd(SpentUsd(stored->limits, facts.billed, facts.traffic_usd));
  state.set_sent_bytes(note.traffic.sent_bytes);
  state.set_received_bytes(note.traffic.received_bytes);
  state.set_results_home(facts.results_home);
  if (action.kind != NodeAction::Kind::kNone) {
    state.set_next(action.kind == NodeAction::Kind::kStopJobs
                       ? gpuctl::v1::NodeLimitsState::NEXT_STOP_JOBS
                       : gpuctl::v1::NodeLimitsState::NEXT_RELEASE);
    state.set_reason(action.reason);
    state.set_next_ms(now.time_ms + std::max(int64_t{0}, absl::ToInt64Milliseconds(action.in)));
  }
  const absl::Status can = CanRelease(stored->limits, paths);
  state.set_can_release(can.ok());
  if (!can.ok()) state.set_cannot_release_why(std::string(can.message()));
  const ReleaseNote release = ReadReleaseNote(paths);
  state.set_release_requests(static_cast<int32_t>(release.requests));
  state.set_release_asked_ms(release.asked_ms);
  state.set_release_outcome(release.outcome);
  return state;
}

int RunLimits(const std::string& root) {
  const RootPaths paths(root);
  const absl::StatusOr<StoredLimits> stored = ReadNodeLimits(paths);
  if (!stored.ok()) {
    fprintf(stderr, "gpuctl-agent: %s\n", std::string(stored.status().message()).c_str());
    return 3;
  }
  const TimeStamp now = StampNow(BootId(), Clock::Real());
  const JobCensus census = TakeCensus(paths);
  const bool live = !census.live.empty();
  const std::optional<ClockNote> before = ReadClockNote(paths);
  ClockNote note =
      Advance(before, *stored, census, !live && InContact(paths), LastContact(paths), now);
  CountTraffic(before, ReadNetworkCounters(), note);
  const bool home = ResultsHome(paths, stored->limits, census.with_results);
  const NodeAction action = NextAction(
      stored->limits,
      {note.billed, note.no_job, note.no_contact, live, home, TrafficUsd(stored->limits, note)});
  const bool releases = action.kind == NodeAction::Kind::kRelease;
  const absl::Status can = CanRelease(stored->limits, paths);
  nlohmann::json json = {{"lease_id", stored->limits.lease_id()},
                         {"job_runs", live},
                         {"results_home", home},
                         {"due", nullptr},
                         {"next", nullptr},
                         {"can_release", can.ok()},
                         {"cannot_release_why", std::string(can.message())},
                         {"release_requests", ReadReleaseNote(paths).requests},
                         {"rate_usd_per_hour", stored->limits.rate_usd_per_hour()},
                         {"upload_usd_per_gb", stored->limits.upload_usd_per_gb()},
                         {"download_usd_per_gb", stored->limits.download_usd_per_gb()},
                         {"billing_started_ms", stored->limits.billing_started_ms()},
                         {"sent_bytes", note.traffic.sent_bytes},
                         {"received_bytes", note.traffic.received_bytes}};
  if (releases) {
    json[action.in <= absl::ZeroDuration() ? "due" : "next"] = action.reason;
    json["in_s"] = absl::ToDoubleSeconds(action.in);
  }
  printf("%s\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return 0;
}

}  // namespace gpuctl
