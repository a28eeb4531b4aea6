// The side of a gang's other members: each connects to rank 0 and does what is decided there.
#ifndef GPUCTL_AGENT_GANG_GANG_SEAT_H_
#define GPUCTL_AGENT_GANG_GANG_SEAT_H_

#include <poll.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/gang/gang_line.h"
#include "agent/gang/gang_words.h"
#include "common/base/clock.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// Not thread-safe, and never waits: call Step often, at least every second.
class GangSeat {
 public:
  GangSeat(gpuctl::v1::Gang gang, std::string key, gpuctl::v1::GangPlace place, GangTimes times,
           Clock& clock);

  // Begins to join the epoch: tries every address, again and again.
  void BeginEpoch(int64_t epoch);
  // This member could begin; `steps` are those of its whole checkpoints. It joins from now on.
  void SetReady(std::vector<int64_t> steps);

  void AddTo(std::vector<pollfd>& polled) const;
  void Step();

  // Set once all may begin.
  const std::optional<GangGo>& go() const { return go_; }
  // Through which this member reaches rank 0; valid after go.
  const std::string& interface() const { return interface_; }
  // Why this attempt must end; set when rank 0 says so.
  const std::optional<std::string>& stop() const { return stop_; }
  // What becomes of the gang; set when all have ended.
  const std::optional<GangOutcome>& outcome() const { return outcome_; }
  // After go: why rank 0 is lost; "" while it is heard.
  const std::string& lost() const { return lost_; }
  // Why it has not joined, for people.
  std::string WhyNot() const;

  // Tell how the attempt goes.
  void Stopping(const std::string& reason);
  void Ended(const GangEnd& end);
  bool IsSent() const;
  // True while rank 0 has let this member in and is heard.
  bool IsHeard() const;

 private:
  struct Try {
    std::string address;
    std::unique_ptr<GangLine> line;
    bool answered = false;  // the challenge
    bool welcome = false;
    bool joined = false;
    bool failed = false;      // at least once
    absl::Duration again_at;  // since boot
    absl::Duration begun_at;
  };

  void Connect(Try& attempt);
  void StepTry(Try& attempt);
  void Obey(Try& attempt, const nlohmann::json& message);
  void JoinIfSettled();
  void Tell(const nlohmann::json& message);

  const gpuctl::v1::Gang gang_;
  const std::string key_;
  const gpuctl::v1::GangPlace place_;
  const GangTimes times_;
  Clock& clock_;
  int64_t epoch_ = 0;
  std::vector<Try> tries_;
  std::optional<std::vector<int64_t>> steps_;
  std::optional<GangGo> go_;
  std::string interface_, lost_;
  std::optional<std::string> stop_;
  std::optional<GangOutcome> outcome_;
  absl::Duration next_beat_;
  absl::Duration first_welcome_ = absl::InfiniteDuration();
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_GANG_GANG_SEAT_H_
