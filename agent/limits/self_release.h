// A rented node's own end: a request to its provider, with the key that the provider gave the
// instance; the end of its start command; or the shutdown of its system. A key is read only for the
// request, stays in memory and goes only to the provider.
#ifndef GPUCTL_AGENT_LIMITS_SELF_RELEASE_H_
#define GPUCTL_AGENT_LIMITS_SELF_RELEASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/base/environment.h"
#include "agent/https/https_client.h"
#include "common/job/job_layout.h"
#include "common/release/release_route.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns the container's environments, the most trusted first: PID 1's (or the file
// $GPUCTL_PID1_ENVIRON), our own, and the file in which Runpod's images keep it for shells.
std::vector<Environment> KeySources();

// Parses lines of a shell file: [export ]NAME=value, with or without quotes around the value.
Environment ParseShellEnvironment(absl::string_view text);

// Returns the request that ends the instance. FAILED_PRECONDITION, with the reason, when there is
// none: the limits leave the release to the client, the provider gives instances no key, or no key
// here belongs to this instance.
absl::StatusOr<HttpsRequest> ReleaseRequest(const gpuctl::v1::NodeLimits& limits,
                                            const std::vector<Environment>& sources);

// How a node ends its bill.
struct OwnRelease {
  EndsItself way = EndsItself::kNo;
  HttpsRequest request;  // for kByKey
  std::string command;   // for kByShutdown: of a shell; sudo makes another user root
  // Returns what is done, for people: "POST https://…", "shutdown -h now".
  std::string InWords() const;
};
// Returns how the node of `limits` ends its bill. FAILED_PRECONDITION as above.
absl::StatusOr<OwnRelease> ReleaseOf(const gpuctl::v1::NodeLimits& limits,
                                     const std::vector<Environment>& sources, bool root);

// Returns OK where a request can be made, else the reason.
absl::Status CanRelease(const gpuctl::v1::NodeLimits& limits, const RootPaths& paths);

// The content of release.json: the result of the latest request, for people.
struct ReleaseNote {
  int64_t requests = 0;
  int64_t asked_ms = 0;
  std::string outcome;
};
ReleaseNote ReadReleaseNote(const RootPaths& paths);

// `gpuctl-agent release`: does it once and records the result. With `dry_run` it only prints what
// it would do. Returns 0 when the provider accepted the request, or does not know the instance any
// more, when the start command is told to end, and when the command of a shutdown succeeded; 1
// after printing why not. `roots` is the file with trusted roots beside this program.
int RunRelease(const std::string& root, const std::string& roots, bool dry_run);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_SELF_RELEASE_H_
