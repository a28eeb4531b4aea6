#include "client/base/allocation_step.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/shell_quote.h"
#include "common/release/slurm_job.h"

namespace gpuctl {

namespace {

// The states of a job that has nodes.
constexpr char kBegun[] = "CONFIGURING,RUNNING,SUSPENDED,COMPLETING";

std::string StepLine(absl::string_view number, int node, absl::string_view script) {
  return absl::StrCat("exec srun -u -Q --mpi=none --jobid=", number,
                      " --overlap --nodes=1 --ntasks=1 --relative=", node, " sh -c ",
                      ShellQuote(script));
}

}  // namespace

bool IsAllocation(absl::string_view job) { return ParseSlurmJob(job).has_value(); }

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
  const std::optional<SlurmJob> parsed = ParseSlurmJob(job);
  if (!parsed.has_value() || !parsed->is_task()) return StepLine(job, node, script);
  // srun knows a task by another number, which the task has once it has begun.
  return absl::StrCat("j=$(LC_ALL=C timeout -k 2 10 squeue -h -t ", kBegun, " -j ", job,
                      " -o %A 2>/dev/null) || { echo 'Slurm does not say where job ", job,
                      " runs' >&2; exit 1; }; [ -n \"$j\" ] || { echo 'the holder of job ", job,
                      " has not begun, or is over' >&2; exit ", kNotHeldExit, "; }; ",
                      StepLine("$j", node, script));
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
