// The paths under a node's root.
#ifndef GPUCTL_COMMON_JOB_JOB_LAYOUT_H_
#define GPUCTL_COMMON_JOB_JOB_LAYOUT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// The place, below work/, of the built-in trainer that was sent with the job: its kit or its
// sources. It is never a result.
constexpr char kTrainerKitPath[] = ".gpuctl/trainer-kit";
// True for the place of its settings, or of those of one of its processes: "trainer-1.json". The
// run's spec has them, so nothing is lost with the file.
bool IsTrainerSettings(absl::string_view path);

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
  std::string gpus;         // gpus.json: which GPUs the server gave to which attempt
  std::string environment;  // env.json: the environment that the job's setup made or found
  std::string stop;         // why the job must end; no attempt begins once it is there
  std::string time_limit;   // the running time of SetJobTime in seconds; none before that
  std::string gang;         // gang.json: what a member of a gang has agreed with the others
  std::string gang_lock;    // held by the member's keeper while it lives
  // kept.json: this is the copy of a job on a cluster's shared file system (agent/hold). Nothing
  // runs here, and what lies in it is whole.
  std::string kept;
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
  std::string envs;        // envs/<digest>: what `setup` of jobs made
  std::string caches;      // caches of package managers that jobs share
  std::string tombstones;  // one empty file for each swept job
  std::string node_id;
  std::string clock;         // clock.json
  std::string limits;        // limits.json: what a lease may cost; none on a machine of one's own
  std::string home;          // home.json: which results were brought home
  std::string claimed;       // an agent has limits, so the start script's deadline is off
  std::string boot;          // boot.json, from the start script
  std::string contact;       // contact.json: when somebody was last here
  std::string contact_lock;  // held shared by whoever is here
  std::string release;       // release.json: how the latest request for the node's own end went
  std::string telemetry;     // node/telemetry: segments of JSON lines
  std::string log;           // node/agent.log
  std::string server_note;   // node/server.json: the running server, its level and bundle
  JobPaths Job(absl::string_view job_id) const;
};

// Returns the shape of a job's output stream: the spec's segment size, or the default.
StreamShape OutputShape(const gpuctl::v1::JobSpec& spec);
int64_t OutputLimit(const gpuctl::v1::JobSpec& spec);
// Returns the time between SIGTERM and SIGKILL: the spec's, or the default.
absl::Duration GraceOf(const gpuctl::v1::JobSpec& spec);
// Returns the running time after which the job is stopped: that of SetJobTime, else the spec's. 0:
// it has no such limit.
absl::Duration TimeLimitOf(const JobPaths& paths, const gpuctl::v1::JobSpec& spec);
// Returns the shape of lifecycle and metrics: plain files.
inline StreamShape PlainShape() { return StreamShape{0}; }
// Returns the shape of telemetry: small segments, so that a reader can begin near the present.
inline StreamShape TelemetryShape() { return StreamShape{1 << 20}; }

// The content of spec.json: {"spec_digest": …, "spec": {…}}, with the spec as protobuf JSON and the
// proto's own field names.
struct StoredSpec {
  std::string spec_digest;
  gpuctl::v1::JobSpec spec;
};
std::string FormatStoredSpec(const StoredSpec& stored);
// Parses spec.json. DATA_LOSS when it is not such a file.
absl::StatusOr<StoredSpec> ParseStoredSpec(absl::string_view json);
absl::StatusOr<StoredSpec> ReadStoredSpec(const JobPaths& paths);

// Returns the job's lifecycle; empty when there is no file yet.
absl::StatusOr<Lifecycle> ReadLifecycle(const JobPaths& paths);

// Returns the sha256 (hex) of the deterministic serialization. Equal digests mean the same spec.
std::string SpecDigest(const gpuctl::v1::JobSpec& spec);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_JOB_JOB_LAYOUT_H_
