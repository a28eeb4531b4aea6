// The table of verbs, and the call of one of them from a command line.
#ifndef GPUCTL_CLIENT_VERBS_VERB_H_
#define GPUCTL_CLIENT_VERBS_VERB_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuctl {

class CommandContext;

// A verb: its arguments without its own name. Returns the process's exit code.
using VerbFunction = absl::StatusOr<int> (*)(CommandContext& context,
                                             std::vector<std::string> args);
struct Verb {
  const char* name;
  const char* group;
  const char* summary;
  VerbFunction run;
};
// All verbs, in the order of the help.
const std::vector<Verb>& Verbs();

// Runs what the command line says; never throws for what a user can type. The body of main().
int RunCommandLine(int argc, char** argv);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_VERB_H_
