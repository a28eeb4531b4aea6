#include "client/verbs/job_shell.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/shell_quote.h"
#include "common/job/job_layout.h"

namespace gpuctl {

std::string EnterJob(const RunRow& row, const gpuctl::v1::JobSpec& spec, int attempt,
                     const std::string& root) {
  const JobPaths job = RootPaths(root).Job(row.job_id);
  std::string line = absl::StrCat("cd ", ShellQuote(job.work), " || exit 126; export");
  const auto add = [&line](const std::string& name, const std::string& value) {
    absl::StrAppend(&line, " ", name, "=", ShellQuote(value));
  };
  for (const auto& [name, value] : spec.env()) add(name, value);
  add("GPUCTL_RUN_ID", row.run_id);
  add("GPUCTL_JOB_ID", row.job_id);
  add("GPUCTL_ATTEMPT", absl::StrCat(std::max(attempt, 1)));
  add("GPUCTL_CHECKPOINT_DIR", job.checkpoints);
  add("GPUCTL_EXEC", "1");  // the job's end leaves the command alone
  return absl::StrCat(line, "; ");
}

}  // namespace gpuctl
