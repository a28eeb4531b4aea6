// Brings several runs up to date side by side.
#ifndef GPUCTL_CLIENT_FOLLOW_CATCH_UP_ALL_H_
#define GPUCTL_CLIENT_FOLLOW_CATCH_UP_ALL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/follow/catch_up.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

struct CaughtRun {
  Caught caught = Caught::kNot;
  absl::Status error;                // why it is kNot
  std::vector<std::string> notices;  // for the user
};

class CatchUpAll {
 public:
  // `rows` get the ends of their runs. All are used until this object is destroyed.
  CatchUpAll(CommandContext& context, RunStore& store, std::vector<RunRow>& rows);
  ~CatchUpAll();

  // Asks the nodes of all rows, many at a time. Returns one result for each row, after about
  // `limit` at the latest: a node that has answered by then counts as asked, though not all that it
  // has may be here. CANCELLED after Ctrl-C. Ctrl-Z ends the asking and stops the process.
  absl::StatusOr<std::vector<CaughtRun>> Run(absl::Duration limit);
  // True when a link's thread does not end: then this object must not be destroyed (ExitAtOnce).
  bool stuck() const { return stuck_; }

 private:
  class Round;

  CommandContext& context_;
  RunStore& store_;
  std::vector<RunRow>& rows_;
  std::vector<std::unique_ptr<CatchUpWork>> works_;
  bool stuck_ = false;
};

// Says on stderr what the machines of `rows` told, and which of them could not be asked: each
// reason of a machine once, and at most ten. `results`: one for each row.
void TellOfCaughtRuns(CommandContext& context, const std::vector<RunRow>& rows,
                      const std::vector<CaughtRun>& results);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_CATCH_UP_ALL_H_
