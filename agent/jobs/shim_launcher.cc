#include "agent/jobs/shim_launcher.h"

#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>

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

absl::Status ProcessShimLauncher::Launch(const JobPaths& job, int attempt, const Secrets& secrets) {
  ASSIGN_OR_RETURN(FdPair input, MakePipe("start shim"));
  UniqueFd log(file_ops::Open(job.shim_stderr, O_WRONLY | O_CREAT | O_APPEND, 0600));

  SpawnOptions options;
  options.argv = {shim_path_, job.dir, absl::StrCat(attempt)};
  options.stdin_fd = input.first.get();
  options.stderr_fd = log.get();
  options.new_session = true;
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
  {
    MutexLock lock(mutex_);
    children_.emplace_back(pid, job.dir);
  }
  input.first.reset();
  // A shim that lost the race for its lock exits before it reads. Then the write fails, but the job
  // has not failed.
  std::string encoded = EncodeSecrets(secrets);
  (void)WriteAll(input.second.get(), encoded, "secrets to shim");
  std::fill(encoded.begin(), encoded.end(), '\0');
  return absl::OkStatus();
}

void ProcessShimLauncher::Reap() {
  MutexLock lock(mutex_);
  children_.erase(
      std::remove_if(children_.begin(), children_.end(),
                     [](const auto& child) { return waitpid(child.first, nullptr, WNOHANG) != 0; }),
      children_.end());
}

bool ProcessShimLauncher::IsStarting(const JobPaths& job) {
  MutexLock lock(mutex_);
  return std::any_of(children_.begin(), children_.end(),
                     [&job](const auto& child) { return child.second == job.dir; });
}

}  // namespace gpuctl
