// node/server.json: what the running server says about itself, for bridges.
#ifndef GPUCTL_AGENT_SERVER_NOTE_H_
#define GPUCTL_AGENT_SERVER_NOTE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "agent/base/processes.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Writes this process's pid, start time, protocol level and bundle. The caller holds the server's
// lock and does not listen yet, so that nobody reads another server's words about this one.
absl::Status WriteServerNote(const RootPaths& paths, const std::string& bundle_dir);

// Returns the process that wrote the note; pid 0 when there is none. It may have ended.
ProcessId ServerOfNote(const RootPaths& paths);

// Returns the protocol level of the server with process id `pid`; 0 for a pid that the system did
// not tell. A server that did not write the note is older than the note: then the level is that of
// the directory of its program. 1, the lowest level, when that says nothing either.
int32_t LevelOfServer(const RootPaths& paths, pid_t pid);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SERVER_NOTE_H_
