// Whether the copy of a job on a cluster's shared file system has all results, and still has them.
#ifndef GPUCTL_AGENT_HOLD_WHOLE_COPY_H_
#define GPUCTL_AGENT_HOLD_WHOLE_COPY_H_

#include <string>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Writes the kept.json of a copy that has not got all yet.
absl::Status NotePartOfCopy(const JobPaths& copied);
// Writes that of a copy that has all, with the numbers and sizes of its files.
absl::Status NoteWholeCopy(const JobPaths& copied, const gpuctl::v1::KeptResults& wanted,
                           Clock& clock);
// True for a copy that has, or had, all results.
bool IsWholeCopy(const JobPaths& copied);
// Returns what a copy lacks, for people: what was never copied, or what it has lost since. "" when
// it has all, and for a job that is no copy. Lists all its results.
std::string MissingInCopy(const JobPaths& copied, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_HOLD_WHOLE_COPY_H_
