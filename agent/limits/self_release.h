// How a rented node asks its provider for its own end, with the key that the provider gave the
// instance. The key is read where it is used, stays in memory and goes nowhere but to the provider.
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
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// What the container was started with, by decreasing trust: PID 1's environment (or the file
// $GPUCTL_PID1_ENVIRON), our own, and the file in which Runpod's images keep it for shells.
std::vector<Environment> KeySources();

// Lines of a shell file: [export ]NAME=value, the value perhaps in quotes.
Environment ParseShellEnvironment(absl::string_view text);

// The request that ends the instance. FAILED_PRECONDITION, saying why, where there is none: the
// limits leave the release to the client, the provider gives instances no key, or no key here
// belongs to this instance.
absl::StatusOr<HttpsRequest> ReleaseRequest(const gpuctl::v1::NodeLimits& limits,
                                            const std::vector<Environment>& sources);

// OK where a request can be made; else why not.
absl::Status CanRelease(const gpuctl::v1::NodeLimits& limits);

// release.json: how the latest request went, for people.
struct ReleaseNote {
  int64_t requests = 0;
  int64_t asked_ms = 0;
  std::string outcome;
};
ReleaseNote ReadReleaseNote(const RootPaths& paths);

// `gpuctl-agent release`: makes the request once and notes how it went. With `dry_run` only says
// what it would do. 0: the provider took it, or knows no such instance any more; 1 after saying why
// not. `roots` is the file with trusted roots beside this program.
int RunRelease(const std::string& root, const std::string& roots, bool dry_run);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_SELF_RELEASE_H_
