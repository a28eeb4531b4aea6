// Rank 0's side of a gang: the others come here, and here is decided when all begin and how all
// end.
#ifndef GPUCTL_AGENT_GANG_GANG_HUB_H_
#define GPUCTL_AGENT_GANG_GANG_HUB_H_

#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/gang/addresses.h"
#include "agent/gang/gang_line.h"
#include "agent/gang/gang_words.h"
#include "common/base/clock.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// Not thread-safe, and never waits: call Step often, at least every second.
class GangHub {
 public:
  GangHub(gpuctl::v1::Gang gang, std::string key, GangTimes times, Clock& clock);

  // Listens. `place` then says where.
  absl::Status Open();
  const gpuctl::v1::GangPlace& place() const { return place_; }

  // Begins to bring the members together for the epoch. Those of another epoch are refused.
  void BeginEpoch(int64_t epoch);
  // Rank 0's own part of what the others say when they join: the steps of its whole checkpoints.
  void SetReady(std::vector<int64_t> steps);

  void AddTo(std::vector<pollfd>& polled) const;
  // Takes what came, sends what is due, and gives up who is silent.
  void Step();

  // Lets all begin, once all have joined and there is an address of this node that all reach.
  std::optional<GangGo> TryGo();
  // Who or what is missing until then, for people.
  std::string WhyNot() const;

  // Tell how rank 0's own attempt goes.
  void OwnIsStopping(const std::string& reason);
  void OwnEnded(const GangEnd& end);
  // Ends the epoch for this reason, which is nobody's end.
  void Fail(const std::string& reason);
  // The first end that was no success, with the reason that the others record for theirs.
  const std::optional<GangOutcome>& cause() const { return cause_; }
  // True when the member was lost: its connection ended, or it was silent.
  bool IsLost(int rank) const;
  // Counts all as lost that have not told their end.
  void GiveUpOthers();
  // True when every attempt has ended, or nothing is heard of it any more.
  bool AllOver() const;
  // Tells all what becomes of the gang. Call Step until IsSent.
  void Conclude(const GangOutcome& outcome);
  bool IsSent() const;

 private:
  struct Line {
    std::unique_ptr<GangLine> line;
    std::string address;  // of ours that it reached
    bool translated = false;
    bool joined = false;
  };
  struct Peer {
    std::vector<Line> lines;
    std::optional<std::vector<int64_t>> steps;
    std::optional<GangEnd> end;
    bool gone = false;
  };
  struct Stranger {
    std::unique_ptr<GangLine> line;
    absl::Duration since;
  };

  void Accept();
  void StepStrangers();
  void Welcome(Stranger& stranger, const nlohmann::json& hello);
  void StepPeer(int rank, Peer& peer);
  void Obey(int rank, Peer& peer, Line& line, const nlohmann::json& message);
  void TakeEnd(int rank, const GangEnd& end);
  void SetCause(int rank, int code, const std::string& reason);
  bool HasJoined(const Peer& peer) const;
  // Returns the address that all reach; "" while there is none.
  std::string CommonAddress() const;
  // True while a member comes to a private address, too.
  bool PrivateComes() const;
  int64_t CommonStep() const;

  const gpuctl::v1::Gang gang_;
  const std::string key_;
  const GangTimes times_;
  Clock& clock_;
  Listener listener_;
  gpuctl::v1::GangPlace place_;
  std::vector<Stranger> strangers_;
  std::map<int, Peer> peers_;  // of ranks 1 and above
  int64_t epoch_ = 0;
  bool joining_ = false;
  std::optional<std::vector<int64_t>> own_steps_;
  std::optional<GangEnd> own_end_;
  std::optional<GangOutcome> cause_;
  absl::Duration next_beat_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_GANG_GANG_HUB_H_
