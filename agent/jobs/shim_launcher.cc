#include "agent/jobs/shim_launcher.h"

#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

void AppendLength(uint32_t length, std::string& out) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(length >> shift);
}

}  // namespace

std::string EncodeSecrets(const Secrets& secrets) {
  std::string encoded;
  for (const auto& [name, value] : secrets) {
    AppendLength(static_cast<uint32_t>(name.size()), encoded);
    encoded += name;
    AppendLength(static_cast<uint32_t>(value.size()), encoded);
    encoded += value;
  }
  AppendLength(0xffffffff, encoded);
  encoded += 'C';
  return encoded;
}

absl::Status ProcessShimLauncher::Start(std::vector<std::string> argv,
                                        const std::string& stderr_path, const std::string& name,
                                        std::string input) {
  ASSIGN_OR_RETURN(FdPair pipe, MakePipe("start a job's process"));
  UniqueFd log(file_ops::Open(stderr_path, O_WRONLY | O_CREAT | O_APPEND, 0600));
  SpawnOptions options;
  options.argv = std::move(argv);
  options.stdin_fd = pipe.first.get();
  options.stderr_fd = log.get();
  options.new_session = true;
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
  {
    MutexLock lock(mutex_);
    children_.emplace_back(pid, name);
  }
  pipe.first.reset();
  // A process that lost the race for its lock exits before it reads. Then the write fails, but the
  // job has not failed.
  (void)WriteAll(pipe.second.get(), input, "secrets to a job's process");
  std::fill(input.begin(), input.end(), '\0');
  return absl::OkStatus();
}

absl::Status ProcessShimLauncher::Launch(const JobPaths& job, int attempt, const Secrets& secrets) {
  return Start({shim_path_, job.dir, absl::StrCat(attempt)}, job.shim_stderr, job.dir,
               EncodeSecrets(secrets));
}

absl::Status ProcessShimLauncher::LaunchKeeper(const JobPaths& job, const std::string& ticket) {
  return Start({JoinPath(DirName(shim_path_), "gpuctl-agent"), "gang", "--root",
                DirName(DirName(job.dir)), "--job", BaseName(job.dir)},
               job.shim_stderr, job.gang_lock, ticket);
}

void ProcessShimLauncher::Reap() {
  MutexLock lock(mutex_);
  children_.erase(
      std::remove_if(children_.begin(), children_.end(),
                     [](const auto& child) { return waitpid(child.first, nullptr, WNOHANG) != 0; }),
      children_.end());
}

bool ProcessShimLauncher::Lives(const std::string& name) {
  MutexLock lock(mutex_);
  return std::any_of(children_.begin(), children_.end(),
                     [&name](const auto& child) { return child.second == name; });
}

bool ProcessShimLauncher::IsStarting(const JobPaths& job) { return Lives(job.dir); }
bool ProcessShimLauncher::IsKept(const JobPaths& job) { return Lives(job.gang_lock); }

}  // namespace gpuctl
