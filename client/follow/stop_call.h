// A call to a node to stop a job, which Ctrl-C can leave.
#ifndef GPUCTL_CLIENT_FOLLOW_STOP_CALL_H_
#define GPUCTL_CLIENT_FOLLOW_STOP_CALL_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/base/worker.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {

class LinkFactory;

class StopCall {
 public:
  // `context` and `links` outlive the StopCall.
  StopCall(CommandContext& context, LinkFactory& links, const RunRow& row);

  // Tells the node to stop the job of the run. Returns the node's answer: NOT_FOUND when it has no
  // such job. CANCELLED after a signal, UNAVAILABLE when nothing answered within `limit`. Call it
  // at most once.
  absl::Status Run(SignalPipe& signals, absl::Duration limit);
  // True when the node is still being asked: then this object must not be destroyed (ExitAtOnce).
  bool stuck() const { return stuck_; }

 private:
  struct News {
    bool done = false;
    absl::Status answer;
    void Forget() {}
  };
  absl::Status Ask();

  CommandContext& context_;
  LinkFactory& links_;
  const RunRow row_;
  bool stuck_ = false;
  Worker<News> worker_;  // last: its destructor waits for the thread, which uses the others
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_STOP_CALL_H_
