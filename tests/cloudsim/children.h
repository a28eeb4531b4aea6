// The processes of the simulated nodes. Each has GPUCTL_SIM_NODE=<tag> in its environment or
// descends from one started here; the tag or the descent is used to find and end it.
#ifndef GPUCTL_TESTS_CLOUDSIM_CHILDREN_H_
#define GPUCTL_TESTS_CLOUDSIM_CHILDREN_H_

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/process/process.h"

namespace gpuctl::cloudsim {

// The processes. Thread safe. A program has only one object, because orphans of all nodes become
// children of this process.
class Children {
 public:
  static Children& Get();
  // Starts a process of the node `tag`.
  absl::StatusOr<pid_t> Spawn(SpawnOptions options, const std::string& tag);
  // Reaps ended processes.
  void Reap();
  // Ends every process of the node and waits until only zombies are left.
  void KillAll(const std::string& tag);
  // Returns the live processes of the node.
  std::vector<pid_t> Pids(const std::string& tag);

 private:
  Children();
  Mutex mutex_;
  std::map<std::string, std::set<pid_t>> started_ ABSL_GUARDED_BY(mutex_);
};

// Runs a program to its end and returns its standard output.
absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& argv);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_CHILDREN_H_
