// Decides what gpuctl keep does for a run: a command of gpuctl that a user could type. Pure.
#ifndef GPUCTL_CLIENT_KEEP_KEEP_PLAN_H_
#define GPUCTL_CLIENT_KEEP_KEEP_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/runs/run_store.h"
#include "client/spec/launch_record.h"
#include "client/wishes/wish_store.h"

namespace gpuctl {

// After a preemption a launch that shows the run resumes it by itself. It goes first.
inline constexpr absl::Duration kLaunchGoesFirst = absl::Minutes(2);
// A run on a machine of the user's own whose results did not come home for so long is left alone.
inline constexpr absl::Duration kFetchWithin = absl::Hours(7 * 24);

// What is known of a run.
struct KeptRun {
  RunRow row;
  LaunchRecord record;
  bool goes_on = false;       // another run was resumed from it
  int attempts = 1;           // RetriesUsed of its line
  bool machine_gone = false;  // its rented machine bills no more
  // Its rented machine was given a later run, too: that one acts for the machine.
  bool machine_has_later = false;
  bool home = false;        // all results came home after its end
  bool rise_waits = false;  // its machine's host has announced a higher price
  bool given_up = false;    // a user has ended it since it was taken away
  // All that there was was at home shortly before its end, or some checkpoint of its line is.
  bool saved = false;
  std::string machine;       // PROVIDER/ID of its rented machine; empty: none
  double usd_per_hour = 0;   // that was agreed for it
  double cost_left_usd = 0;  // of the cost limit that was agreed
  std::vector<Wish> wishes;  // what was asked for it, and no living gpuctl does
};

struct KeepDeed {
  // For the log: "pull", "ask-resume", "resume", "end-disk", "accept-price", "refuse-price",
  // "stop", "wish".
  std::string verb;
  std::vector<std::string> args;  // of gpuctl; none: it is not done, because of `why_not`
  absl::Duration limit;           // the command is killed after this
  std::string why_not;
  std::string what = "";  // for people, in place of a command that nobody types: "bring …"
};

// Returns what is to be done for the run now, in this order. When one fails, those after it are not
// done.
std::vector<KeepDeed> DeedsFor(const KeptRun& run, int64_t now_ms);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_KEEP_KEEP_PLAN_H_
