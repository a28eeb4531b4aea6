// Accepting a job: its directory is made under another name, which may take long, and gets its own
// name at the end. So a directory of a job has always had its spec.json.
#ifndef GPUCTL_AGENT_JOBS_JOB_ACCEPT_H_
#define GPUCTL_AGENT_JOBS_JOB_ACCEPT_H_

#include <string>

#include "absl/status/status.h"
#include "agent/store/tree_store.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// The ending of the name under which a job's directory is made. It is no part of an id.
constexpr char kPreparedEnding[] = ".gpuctl-new";

// How a job gets its `data:` trees; see GiveOptions in agent/store/tree_store.h.
struct DataOptions {
  bool may_clone = true;
  bool modes_bind = ModesBind();
};

// Makes the job's directory under its name with kPreparedEnding, with spec.json and its content.
// FAILED_PRECONDITION with KIND_CONTENT_MISSING when a tree must be pushed again.
absl::Status PrepareJob(const RootPaths& root, const std::string& node_id, const StoredSpec& stored,
                        const DataOptions& options = {});

// Gives the prepared directory its name: from here on the node has the job. FAILED_PRECONDITION
// when a directory is there that lost its spec.json; it may hold results.
absl::Status CommitJob(const RootPaths& root, const std::string& job_id);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_JOBS_JOB_ACCEPT_H_
