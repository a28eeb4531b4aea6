#include "client/base/allocation_step.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/shell_quote.h"

namespace gpuctl {

bool IsAllocation(absl::string_view job) {
  return !job.empty() && job.size() < 12 && std::all_of(job.begin(), job.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

std::string InStep(absl::string_view job, int node, absl::string_view command) {
  if (job.empty()) return std::string(command);
  // The newest of the job's starts counts. The directory must be the user's own: another user could
  // have made it first.
  const std::string script = absl::StrCat(
      "d=/tmp/gpuctl-$(id -u); f=; n=-1; for x in \"$d/", job,
      "\"-*.root; do r=${x##*-}; r=${r%.root}; "
      "if [ \"$r\" -gt $n ] 2>/dev/null; then n=$r; f=$x; fi; done; ",
      "if [ ! -O \"$d\" ] || [ ! -O \"$f\" ]; then echo 'the holder of job ", job,
      " has not begun, or is over' >&2; exit ", kNotHeldExit, "; fi; ", kHeldRootVariable,
      "=$(cat \"$f\") && export ", kHeldRootVariable, " || exit ", kNotHeldExit, "; ", command);
  return absl::StrCat("exec srun -u -Q --mpi=none --jobid=", job,
                      " --overlap --nodes=1 --ntasks=1 --relative=", node, " sh -c ",
                      ShellQuote(script));
}

std::string AgentArguments(const NodeTarget& target, absl::string_view arguments) {
  if (target.archive.empty()) return std::string(arguments);
  const absl::string_view next = target.in_queue ? "/again" : "";
  if (arguments == "receive") return absl::StrCat("store-receive --to ", target.archive, next);
  if (absl::StartsWith(arguments, "stage"))
    return absl::StrCat(arguments, " --to ", target.archive);
  if (arguments == "send") return absl::StrCat("archive-send --from ", target.archive);
  return absl::StrCat("archive --from ", target.archive, target.in_queue ? " --in-queue" : "");
}

std::string NameForPrograms(const NodeTarget& target) {
  if (target.allocation.empty()) return target.name;
  return absl::StrCat(target.name, " job ", target.allocation,
                      target.allocation_node > 0 ? absl::StrCat(".", target.allocation_node) : "");
}

}  // namespace gpuctl
