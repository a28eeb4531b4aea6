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

// How a job starts the built-in trainer; client/trainer/trainer_choice.h decides it.
struct TrainerStart {
  enum class Way {
    kProgram,  // `path` is a program of this machine
    kKit,      // `path` is the dynamic loader's path in the kit that is sent
    kSources,  // the job compiles the sources that are sent, unless it finds them compiled
  };
  Way way = Way::kProgram;
  std::string path;
};

// Makes the job of a run. `trainer` matters to a run of the built-in trainer only; without a path
// where its way needs one, that is FAILED_PRECONDITION.
absl::StatusOr<gpuctl::v1::JobSpec> MakeJobSpec(const RunSpec& spec, const NodeTarget& target,
                                                const TrainerStart& trainer);

// Makes `job`, a job of the built-in trainer, start it in another way.
void SetTrainerStart(const TrainerStart& trainer, gpuctl::v1::JobSpec& job);

// Returns one line for people: the command as typed, the script's first line, "trainer".
std::string CommandLine(const RunSpec& spec);

// Returns OK when the node has what the run requests. NOT_FOUND with exit code 121 says what it has
// instead.
absl::Status CheckNodeSatisfies(const RunSpec& spec, const gpuctl::v1::HelloReply& node,
                                const std::string& node_name);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_JOB_SPEC_H_
