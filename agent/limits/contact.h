// Contact: whether somebody uses the node, and when somebody last did. The idle and lease limits
// count from it.
#ifndef GPUCTL_AGENT_LIMITS_CONTACT_H_
#define GPUCTL_AGENT_LIMITS_CONTACT_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "agent/base/time_stamp.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// A contact (a bridge, a push, a pull, a command) that lasts while this object lives. Its beginning
// and end are recorded in contact.json. Failures are not reported: an unrecorded contact lets an
// idle limit come early, but loses no work of the user.
class Contact {
 public:
  Contact(const RootPaths& paths, Clock& clock);
  ~Contact();
  Contact(const Contact&) = delete;
  Contact& operator=(const Contact&) = delete;

 private:
  void Note();

  const RootPaths paths_;
  Clock& clock_;
  UniqueFd lock_;
};

// True while a Contact lives in any process, or while sshd has a session with a terminal.
// $GPUCTL_PROC replaces /proc where several nodes share a machine, as in tests.
bool InContact(const RootPaths& paths);

// True when a process below `proc_dir` is an ssh session with a terminal. Such sessions belong to
// people and hold no lock of ours.
bool HasTerminalSession(const std::string& proc_dir);

// Returns a number that changes when a Contact begins or ends, also on a node without limits, which
// keeps no contact.json; 0 before the first.
int64_t ContactMark(const RootPaths& paths);

std::optional<TimeStamp> LastContact(const RootPaths& paths);

// `gpuctl-agent contact --pid PID`: keeps a Contact while process PID lives and has its present
// parent. For commands that are not programs of ours.
int RunContact(const std::string& root, pid_t pid);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_CONTACT_H_
