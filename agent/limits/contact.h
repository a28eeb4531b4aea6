// Whether somebody is on the node, and when somebody last was: what idle and lease count from.
#ifndef GPUCTL_AGENT_LIMITS_CONTACT_H_
#define GPUCTL_AGENT_LIMITS_CONTACT_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "agent/base/time_stamp.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Somebody is here as long as this lives: a bridge, a push, a pull, a command. Both ends are
// stamped in contact.json. Failures are not told: contact that is not noted costs an idle limit's
// patience, not the user's work.
class Contact {
 public:
  Contact(const RootPaths& paths, Clock& clock);
  ~Contact();
  Contact(const Contact&) = delete;
  Contact& operator=(const Contact&) = delete;

 private:
  const RootPaths paths_;
  Clock& clock_;
  UniqueFd lock_;
};

// True while a Contact lives in any process, or while a session of sshd's with a terminal does.
// $GPUCTL_PROC stands for /proc where several nodes share a machine, as in tests.
bool InContact(const RootPaths& paths);

// Whether one of the processes below `proc_dir` is an ssh session with a terminal. Such sessions
// belong to people and hold no lock of ours.
bool HasTerminalSession(const std::string& proc_dir);

std::optional<TimeStamp> LastContact(const RootPaths& paths);

// `gpuctl-agent contact --pid PID`: is a Contact for as long as process PID lives as the child of
// who is its parent now. For commands that are no program of ours.
int RunContact(const std::string& root, pid_t pid);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_CONTACT_H_
