#include "agent/server.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/base/guard_start.h"
#include "agent/base/held_root.h"
#include "agent/base/node_root.h"
#include "agent/bundle/bundle.h"
#include "agent/bundle/bundle_sweep.h"
#include "agent/envs/cache_sweep.h"
#include "agent/envs/env_store.h"
#include "agent/handover.h"
#include "agent/hold/jobs_end.h"
#include "agent/jobs/job_table.h"
#include "agent/jobs/shim_launcher.h"
#include "agent/server_note.h"
#include "agent/service.h"
#include "agent/slots/visible_gpus.h"
#include "agent/telemetry/telemetry.h"
#include "agent/trees/receive.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

constexpr int kKeepaliveMs = 20'000;
constexpr int kServerTickMs = 1000;
constexpr absl::Duration kSweepEvery = absl::Hours(1);
constexpr int kExitLocked = 100;

std::unique_ptr<grpc::Server> Listen(const RootPaths& paths, AgentService& service) {
  // The path is relative to the root, because a socket path has at most about 100 bytes and a
  // directory may have more.
  if (chdir(paths.root.c_str()) != 0) return nullptr;
  unlink("agent.sock");
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:agent.sock", grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  // The root is private, so nobody else can reach the socket before this. A umask would also affect
  // files of calls that are already served.
  if (server != nullptr) chmod("agent.sock", 0600);
  return server;
}

void SweepOldBundles(const RootPaths& paths) {
  const absl::StatusOr<std::vector<std::string>> swept = SweepBundles(paths, Clock::Real());
  if (!swept.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("server: ", swept.status().message()));
  } else if (!swept->empty()) {
    Log(LogLevel::kInfo, absl::StrCat("server: old bundles removed: ", absl::StrJoin(*swept, " ")));
  }
}

void SweepOldEnvironments(const RootPaths& paths) {
  const absl::StatusOr<std::vector<std::string>> swept =
      SweepEnvs(paths, WantFreeBytes(paths), Clock::Real());
  if (!swept.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("server: ", swept.status().message()));
  } else if (!swept->empty()) {
    Log(LogLevel::kInfo,
        absl::StrCat("server: unused environments removed: ", absl::StrJoin(*swept, " ")));
  }
}

// Makes room on a nearly full disk, after the environments.
void SweepPackageCaches(const RootPaths& paths, JobTable& jobs) {
  const auto in_use = [&jobs] {
    for (const gpuctl::v1::Job& job : jobs.ListLive({})) {
      if (job.state() != gpuctl::v1::JOB_STATE_LOST) return true;
    }
    return false;
  };
  const absl::StatusOr<std::vector<std::string>> swept =
      SweepCaches(paths, WantFreeBytes(paths), in_use);
  if (!swept.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("server: ", swept.status().message()));
  } else if (!swept->empty()) {
    Log(LogLevel::kInfo, absl::StrCat("server: package caches removed, the disk is nearly full: ",
                                      absl::StrJoin(*swept, " ")));
  }
}

// Tends jobs, telemetry, the guard and upgrades once a second until told to stop.
void Maintain(const ServerOptions& options, const RootPaths& paths, const UniqueFd& lock,
              JobTable& jobs, Telemetry& telemetry, const SignalPipe& signals) {
  absl::Duration next_sweep = -absl::InfiniteDuration();
  HolderWatch holder(paths, Clock::Real());
  for (;;) {
    if (holder.IsHolderGone()) {
      Log(LogLevel::kWarning, "server: the allocation has no holder any more");
      // The shims see it, too. What a dead one has left is ended here.
      SweepWithoutHolder(paths, Clock::Real());
      return;
    }
    // Somebody removed the root, and another server has the new one, or will. What is done below
    // would make parts of it again.
    if (IsRemoved(lock)) {
      Log(LogLevel::kWarning, "server: its root was removed");
      return;
    }
    jobs.Tend();
    // The first sweep is right after an upgrade.
    if (const absl::Duration now = Clock::Real().SinceBoot(); now >= next_sweep) {
      next_sweep = now + kSweepEvery;
      SweepOldBundles(paths);
      SweepOldEnvironments(paths);
      SweepPackageCaches(paths, jobs);
    }
    if (absl::Status status = telemetry.Tick(); !status.ok()) {
      Log(LogLevel::kWarning, absl::StrCat("telemetry: ", status.message()));
    }
    if (!holder.held() && !IsRemoved(lock)) (void)EnsureGuard(paths, options.bundle_dir);
    const std::string current = CurrentBundle(paths);
    if (!current.empty() && current != options.bundle_dir) {
      Log(LogLevel::kInfo, absl::StrCat("server: making way for ", current));
      return;
    }
    pollfd waited{signals.fd(), POLLIN, 0};
    if (poll(&waited, 1, kServerTickMs) > 0) return;
  }
}

absl::Status Serve(const ServerOptions& options, const RootPaths& paths, const UniqueFd& lock,
                   const SignalPipe& signals, const UniqueFd& handover) {
  ASSIGN_OR_RETURN(const std::string node_id, NodeId(paths));
  Clock& clock = Clock::Real();
  ProcessShimLauncher launcher(JoinPath(options.bundle_dir, "gpuctl-shim"));
  Telemetry telemetry(paths, std::make_unique<NvidiaSmiProbe>("", clock), clock);
  const auto list_gpus = [&telemetry, visible = OwnVisibleDevices(paths)] {
    const Telemetry::Listed listed = telemetry.ListedGpus();
    return NodeGpus{VisibleGpus(listed.gpus, visible), listed.complete};
  };
  JobTable jobs(paths, node_id, launcher, clock, list_gpus);
  jobs.TakeSecrets(ReceiveHandover(handover));
  AgentService service(paths, node_id, absl::StrCat(BundleVersion(options.bundle_dir)), jobs,
                       telemetry, clock);
  if (const absl::Status noted = WriteServerNote(paths, options.bundle_dir); !noted.ok()) {
    // On a full disk; bridges then look at the program.
    Log(LogLevel::kWarning, absl::StrCat("server: ", noted.message()));
  }
  std::unique_ptr<grpc::Server> server = Listen(paths, service);
  if (server == nullptr) {
    return absl::UnavailableError(absl::StrCat("listen on ", paths.socket));
  }
  Log(LogLevel::kInfo, absl::StrCat("server: node ", node_id, " on ", paths.socket));
  Maintain(options, paths, lock, jobs, telemetry, signals);
  // This cuts running streams; their clients link again.
  server->Shutdown(std::chrono::system_clock::time_point());
  if (handover.valid()) {
    const absl::Status handed = HandOver(handover, jobs.GiveSecrets());
    if (!handed.ok()) Log(LogLevel::kWarning, absl::StrCat("server: ", handed.message()));
  }
  return absl::OkStatus();
}

}  // namespace

int RunServer(const ServerOptions& options) {
  const UniqueFd handover = TakeHandover();
  absl::StatusOr<RootPaths> paths = PrepareNodeRoot(options.root);
  if (!paths.ok()) {
    Log(LogLevel::kError, paths.status().message());
    return 1;
  }
  LogToFile(paths->log);
  absl::StatusOr<UniqueFd> lock = TryLock(paths->server_lock);
  if (absl::IsUnavailable(lock.status())) return kExitLocked;
  if (!lock.ok()) {
    Log(LogLevel::kError, lock.status().message());
    return 1;
  }
  signal(SIGPIPE, SIG_IGN);
  const absl::StatusOr<SignalPipe> signals =
      SignalPipe::Install({SIGTERM, SIGINT}, SignalPipe::WaitingCall::kRestarted);
  const absl::Status status =
      signals.ok() ? Serve(options, *paths, *lock, *signals, handover) : signals.status();
  if (!status.ok()) {
    Log(LogLevel::kError, absl::StrCat("server: ", status.ToString()));
    return 1;
  }
  return 0;
}

}  // namespace gpuctl
