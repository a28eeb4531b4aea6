// One connection between two members of a gang: lines of JSON, each with proof that its sender
// knows the key.
#ifndef GPUCTL_AGENT_GANG_GANG_LINE_H_
#define GPUCTL_AGENT_GANG_GANG_LINE_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// The sides. Rank 0 is the hub; all others connect to it.
enum class GangSide { kHub, kMember };

// A connection: rank 0 sends "gpuctl-gang 1 NONCE\n". The member answers "MAC JSON\n" with its own
// nonce and what it is; its MAC is made with the key of its rank over both. From then on both send
// "MAC JSON\n": the MAC is made with a key of this connection alone, over the sender's side, the
// number of the line and the JSON. So no line can be made, repeated, moved or left out by somebody
// who does not know that key. The lines are not secret. Not thread-safe.
class GangLine {
 public:
  // `fd` does not block, and may still be connecting. `side` is this end's.
  GangLine(UniqueFd fd, GangSide side, Clock& clock);

  int fd() const { return fd_.get(); }
  bool open() const { return fd_.valid(); }
  bool has_unsent() const { return !out_.empty(); }
  // The time since boot when the last valid line came, or when this object was made.
  absl::Duration heard_at() const { return heard_at_; }
  // True once the other end has proved that it knows the key.
  bool proved() const { return proved_; }

  // Sends and reads what is possible now. The line is closed after an error, at its end, when the
  // other end sends too much, and when it does not take what it is sent.
  void Pump();
  void Close() { fd_.reset(); }

  // The first lines, before there is a key of the connection.
  void SendChallenge();                        // by the hub
  std::optional<std::string> TakeChallenge();  // by the member: the hub's nonce
  void AnswerChallenge(absl::string_view key, const std::string& hub_nonce, nlohmann::json hello);
  // By the hub: the member's hello, whose "rank" is proved. Closes the line when it comes from
  // somebody without the key of that rank, GangKeyOfRank of `run_key`.
  std::optional<nlohmann::json> TakeHello(absl::string_view run_key);

  // Sends a message. Requires a key of the connection.
  void Send(const nlohmann::json& message);
  // Returns the next message. Closes the line at one that is not proved.
  std::optional<nlohmann::json> Take();

 private:
  std::optional<std::string> TakeLine();
  void Derive(absl::string_view key, const std::string& hub_nonce, const std::string& member_nonce);

  UniqueFd fd_;
  const GangSide side_;
  Clock& clock_;
  std::string in_, out_;
  std::string nonce_;    // the hub's own
  std::string session_;  // the key of the connection
  uint64_t sent_ = 0, taken_ = 0;
  bool proved_ = false;
  absl::Duration heard_at_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_GANG_GANG_LINE_H_
