// A node on this machine, for tests: real sshd, bridge, guard, server and shim under a temporary
// root, connected as by the `local` provider.
#ifndef GPUCTL_TESTS_SUPPORT_LOOPBACK_NODE_H_
#define GPUCTL_TESTS_SUPPORT_LOOPBACK_NODE_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/link/link.h"
#include "client/link/local_sshd.h"
#include "client/streams/follower.h"
#include "common/base/mutex.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/agent.pb.h"
#include "tests/support/programs_at.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {

class LoopbackNode {
 public:
  LoopbackNode();
  // Ends every process of the node and fails the test when one of ours cannot be ended.
  ~LoopbackNode();

  // Return the laptop's state directory and the node's root.
  std::string state_dir() const { return dir_.Sub("state"); }
  std::string root_dir() const { return dir_.Sub("node"); }
  RootPaths root() const { return RootPaths(root_dir()); }
  const TempDir& dir() const { return dir_; }

  SshLinkOptions Options() const;
  std::unique_ptr<LinkFactory> Links() const { return MakeSshLinkFactory(Options()); }

  // Returns a request for a job with a new id. `change` may edit the spec before its digest is
  // made.
  gpuctl::v1::StartJobRequest Request(
      std::vector<std::string> argv,
      const std::function<void(gpuctl::v1::JobSpec&)>& change = nullptr) const;

  // Returns options of a follower that starts `request`, with its own mirror named `mirror`.
  FollowOptions Following(const gpuctl::v1::StartJobRequest& request,
                          const std::string& mirror = "mirror") const;

  // Returns the live processes of this node whose command line contains `what` ("guard",
  // "gpuctl-shim", …).
  std::vector<pid_t> Pids(const std::string& what) const;

  // Waits until Pids finds exactly one process, and returns its pid. For a moment there may be
  // more, such as a fork before its exec, or a guard that exits because it found another. Otherwise
  // fails the test and returns -1.
  pid_t OnlyPid(const std::string& what) const;

 private:
  TempDir dir_;
};

// Serves an sshd for each connection to a loopback port chosen by the kernel, so that a proxy can
// be put in front.
class SshdListener {
 public:
  explicit SshdListener(const std::string& state_dir);
  ~SshdListener();
  int port() const { return port_; }
  // Returns the pids of the sshd processes started so far.
  std::vector<pid_t> pids();

 private:
  void Run();
  LocalSshd sshd_;
  UniqueFd listener_;
  UniqueFd stop_read_;
  UniqueFd stop_write_;
  int port_ = 0;
  Mutex mutex_;
  std::vector<pid_t> pids_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// Returns the directory of the built programs: $GPUCTL_BIN_DIR.
std::string BinDir();
// Returns the path of a built test program: $GPUCTL_BIN_DIR/../tests/<name>.
std::string TestProgram(const std::string& name);

// Returns all of a stream, from its first stored byte.
std::string ReadStream(const std::string& path, StreamShape shape);

// Waits until `condition` is true. Fails the test and returns false after a minute. For conditions
// that no descriptor signals.
bool Eventually(const std::function<bool()>& condition, const std::string& what);

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_LOOPBACK_NODE_H_
