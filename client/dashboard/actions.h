// What the page asks gpuctl to do: each is a process of this program, with the same verb that a
// user would type.
#ifndef GPUCTL_CLIENT_DASHBOARD_ACTIONS_H_
#define GPUCTL_CLIENT_DASHBOARD_ACTIONS_H_

#include <poll.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

struct Action {
  int64_t number = 0;
  std::string verb;  // "stop", "pull", or "list": a pull that only lists checkpoints
  std::string run_id, run_name;
  enum class State { kRunning, kDone, kFailed } state = State::kRunning;
  int64_t started_ms = 0;  // Unix time
  std::string text;        // what came of it, of "list" as JSON; while it runs, how far it is
  std::string hint;        // what helps, when it failed
};

// Returns what came of an action for people, from what the verb printed with --json.
void ReadOutcome(absl::string_view output, int exit_code, Action& action);

class Actions {
 public:
  static constexpr size_t kAtOnce = 8;
  static constexpr size_t kKept = 50;  // of those that have ended

  // `program` is this gpuctl. Pulls go below the working directory, as those of a terminal.
  Actions(std::string program, Clock& clock);
  // Leaves what still runs alone.
  ~Actions() = default;

  // Begins a stop, a pull or a list. FAILED_PRECONDITION when the same is at work,
  // RESOURCE_EXHAUSTED when too many are.
  absl::Status Begin(const std::string& verb, const std::string& run_id,
                     const std::string& run_name);
  void AddPolled(std::vector<pollfd>& polled) const;
  // Takes what the processes say. Returns true when an action began or ended since the last call.
  bool Step();
  // The newest last.
  const std::deque<Action>& all() const { return actions_; }
  // Interrupts the pulls, which can go on later, and waits for them, at most `patience`. A stop
  // goes on: it was asked for.
  void End(absl::Duration patience);

 private:
  struct Process {
    int64_t number = 0;
    pid_t pid = -1;
    UniqueFd output_fd, progress_fd;
    std::string output, progress;  // `progress`: its last line, which may be incomplete
    bool interrupts = false;
  };
  Action* Find(int64_t number);
  void ReadProgress(Process& process);
  void Settle(Process& process, int status);

  const std::string program_;
  Clock& clock_;
  int64_t next_ = 1;
  bool changed_ = false;
  std::deque<Action> actions_;
  std::vector<Process> processes_;
};

nlohmann::ordered_json ActionToJson(const Action& action);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DASHBOARD_ACTIONS_H_
