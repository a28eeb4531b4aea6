// Ports of this computer that lead to ports of a run's machine, on a thread of its own: the user's
// ssh forwards them, and is started again after a broken connection.
#ifndef GPUCTL_CLIENT_REACH_PORT_FORWARD_H_
#define GPUCTL_CLIENT_REACH_PORT_FORWARD_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/base/port_pair.h"
#include "client/base/wake_pipe.h"
#include "client/base/worker.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "common/base/mutex.h"

namespace gpuctl {

class PortForward {
 public:
  PortForward(CommandContext& context, RunRow row, std::vector<PortPair> pairs);
  // Cancels and waits for the thread, which may be inside a connection attempt.
  ~PortForward();

  absl::Status Start();
  // Ends the thread and its ssh, and waits at most `patience`. Returns false when the thread is
  // still inside a connection attempt (see ExitAtOnce).
  bool Cancel(absl::Duration patience);

  struct News {
    std::vector<std::string> notices;  // since the last call
    // The pairs that work now, with their ports here; since the last call.
    std::vector<PortPair> ready;
    // Why it ended by itself: it never worked, or never will again.
    absl::Status result;
    bool done = false;

    void Forget() {
      notices.clear();
      ready.clear();
    }
  };
  // Readable when there may be news. Take clears it.
  int wake_fd() const { return worker_.wake_fd(); }
  News Take() { return worker_.Take(); }

 private:
  void Run();
  // Forwards until the connection ends. Returns why; `worked` tells whether it ever worked.
  absl::Status ForwardOnce(bool& worked);
  absl::Status ChoosePorts();
  absl::Status Serve(std::vector<std::string> argv, bool& worked);
  void Ready();
  void TellSshLines(std::string& text);
  void Tell(std::string notice);
  bool cancelled();
  // Returns true when it was cancelled meanwhile.
  bool Sleep(absl::Duration time);

  CommandContext& context_;
  const RunRow row_;
  const std::vector<PortPair> asked_;

  // Used by the thread only.
  std::vector<PortPair> pairs_;  // empty until their ports are chosen
  bool ever_ = false;            // it worked before
  std::set<std::string> told_;   // of ssh's messages, without numbers

  WakePipe cancel_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;

  Worker<News> worker_;  // last member: its destructor waits for the thread, which uses the others
};

// Returns "http://127.0.0.1:8080".
std::string LocalUrl(const PortPair& pair);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_REACH_PORT_FORWARD_H_
