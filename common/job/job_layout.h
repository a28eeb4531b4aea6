// Where things lie under a node's root, in one place.
#ifndef GPUCTL_COMMON_JOB_JOB_LAYOUT_H_
#define GPUCTL_COMMON_JOB_JOB_LAYOUT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/stream_file.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// Below work/: the built-in trainer that was sent with the job. Never one of its results.
constexpr char kTrainerKitPath[] = ".gpuctl/trainer-kit";

// One job's directory.
struct JobPaths {
  explicit JobPaths(std::string job_dir);
  std::string dir;
  std::string spec;          // spec.json
  std::string lock;          // shim.lock
  std::string control;       // FIFO: "stop <reason>\n" or "signal <number>\n"
  std::string lifecycle;     // lifecycle.jsonl
  std::string output;        // directory of segments
  std::string metrics;       // metrics.jsonl
  std::string metrics_fifo;  // $GPUCTL_METRICS
  std::string work;
  std::string checkpoints;  // ckpt/
  std::string shim_stderr;
  std::string cgroup_note;  // where the job's control group is, if it has one
};

// The node root's own entries.
struct RootPaths {
  explicit RootPaths(std::string root);
  std::string root;
  std::string socket;  // agent.sock
  std::string guard_lock;
  std::string server_lock;
  std::string guard_control;  // FIFO: "upgrade\n"
  std::string bin;
  std::string bin_current;  // symlink to bin/<digest>
  std::string trees;        // blobs/trees/<manifest digest>
  std::string jobs;
  std::string tombstones;  // jobs that were swept: an empty file each
  std::string node_id;
  std::string clock;         // clock.json
  std::string limits;        // limits.json: what a lease may cost; none on a machine of one's own
  std::string home;          // home.json: which results have been brought home
  std::string claimed;       // an agent has been given limits: the start script's deadline is off
  std::string boot;          // boot.json, by the start script
  std::string contact;       // contact.json: when somebody was last here
  std::string contact_lock;  // held shared by whoever is
  std::string release;       // release.json: how the latest request for the node's own end went
  std::string telemetry;     // node/telemetry: segments of JSON lines
  std::string log;           // node/agent.log
  JobPaths Job(absl::string_view job_id) const;
};

// The shape of a job's output stream: segments as its spec says, or by default.
StreamShape OutputShape(const gpuctl::v1::JobSpec& spec);
int64_t OutputLimit(const gpuctl::v1::JobSpec& spec);
// Lifecycle and metrics are plain files.
inline StreamShape PlainShape() { return StreamShape{0}; }
// Telemetry: small segments, so that a reader who only wants the present can begin at one.
inline StreamShape TelemetryShape() { return StreamShape{1 << 20}; }

// spec.json: {"spec_digest": …, "spec": {…}}, the spec as protobuf JSON with the proto's own names.
struct StoredSpec {
  std::string spec_digest;
  gpuctl::v1::JobSpec spec;
};
std::string FormatStoredSpec(const StoredSpec& stored);
// DATA_LOSS when it is not such a file.
absl::StatusOr<StoredSpec> ParseStoredSpec(absl::string_view json);
absl::StatusOr<StoredSpec> ReadStoredSpec(const JobPaths& paths);

// sha256 (hex) of the deterministic serialization: what "the same spec" means.
std::string SpecDigest(const gpuctl::v1::JobSpec& spec);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_JOB_JOB_LAYOUT_H_
