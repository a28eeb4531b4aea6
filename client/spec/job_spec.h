// Converts the user's request into the node's job specification.
#ifndef GPUCTL_CLIENT_SPEC_JOB_SPEC_H_
#define GPUCTL_CLIENT_SPEC_JOB_SPEC_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/base/node_target.h"
#include "client/spec/run_spec.h"
#include "gpuctl/v1/agent.pb.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// Most bytes that Linux passes to a program in one argument, or in NAME=value of its environment.
constexpr size_t kLongestArgument = (128 << 10) - 1;

// Makes the job of a run. `trainer` is the built-in trainer: for a run on this machine its program,
// else the dynamic loader's path in the kit that is sent (client/workdir/trainer_kit.h).
// FAILED_PRECONDITION when the run needs a trainer and `trainer` is empty.
absl::StatusOr<gpuctl::v1::JobSpec> MakeJobSpec(const RunSpec& spec, const NodeTarget& target,
                                                const std::string& trainer);

// Returns one line for people: the command as typed, the script's first line, "trainer".
std::string CommandLine(const RunSpec& spec);

// Returns OK when the node has what the run requests. NOT_FOUND with exit code 121 says what it has
// instead.
absl::Status CheckNodeSatisfies(const RunSpec& spec, const gpuctl::v1::HelloReply& node,
                                const std::string& node_name);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_JOB_SPEC_H_
