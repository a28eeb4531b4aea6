// The programs that the self-test's jobs run. All end by themselves when the file "alive" in their
// directory is gone, or after two minutes.
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/base/run_program.h"
#include "client/self_test/job_files.h"
#include "client/self_test/parts.h"
#include "client/terminal/console.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kLongestLife = absl::Minutes(2);
constexpr absl::Duration kLook = absl::Milliseconds(50);

// Waits until the file "alive" is gone.
void LiveOn(const JobFiles& files, Clock& clock) {
  const absl::Duration end = clock.SinceBoot() + kLongestLife;
  while (PathExists(files.alive) && clock.SinceBoot() < end) clock.SleepFor(kLook);
}

std::vector<std::string> PartCommand(const char* part, const std::string& dir) {
  return {ExecutablePath(), "doctor", "--self-test-part", part, "--self-test-dir", dir};
}

// Publishes a checkpoint with the file that was sent, as trainers do.
absl::Status WriteCheckpoint() {
  const char* root = std::getenv("GPUCTL_CHECKPOINT_DIR");
  if (root == nullptr) return absl::FailedPreconditionError("GPUCTL_CHECKPOINT_DIR is not set");
  ASSIGN_OR_RETURN(const std::string content, ReadFileToString(kSentFile));
  const std::string building = JoinPath(root, ".tmp-1");
  RETURN_IF_ERROR(MakeDirectories(building));
  RETURN_IF_ERROR(WriteFileAtomic(JoinPath(building, kSentFile), content, 0644));
  RETURN_IF_ERROR(WriteFileAtomic(
      JoinPath(building, "manifest.json"),
      absl::StrCat("{\"format\":1,\"step\":1,\"files\":[{\"path\":\"", kSentFile,
                   "\",\"size\":", content.size(), ",\"sha256\":\"", Sha256HexOf(content), "\"}]}"),
      0644));
  if (file_ops::Rename(building, JoinPath(root, "step-1")) != 0) {
    return ErrnoStatus(errno, "publish the checkpoint");
  }
  return absl::OkStatus();
}

absl::Status StartJob(const JobFiles& files, const std::string& dir) {
  RETURN_IF_ERROR(OutputOf(PartCommand("orphans", dir)).status());
  if (PathExists(kSentFile)) RETURN_IF_ERROR(WriteCheckpoint());
  RETURN_IF_ERROR(WriteFileAtomic(files.shim_pid, absl::StrCat(getppid())));
  return WriteFileAtomic(files.pid, absl::StrCat(getpid()));
}

absl::Status StartOrphans(const JobFiles& files, const std::string& dir) {
  SpawnOptions own;
  own.argv = PartCommand("orphan", dir);
  own.new_session = true;
  RETURN_IF_ERROR(Spawn(own).status());
  // The other is a program of the system, whose environment macOS shows to nobody. It holds the
  // lock through its stdin.
  ASSIGN_OR_RETURN(const UniqueFd lock, TryLock(files.system_lock));
  SpawnOptions foreign;
  foreign.argv = {"/bin/sh", "-c",
                  "i=0; while [ -e \"$0\" ] && [ $i -lt 1200 ]; do sleep 0.1; i=$((i+1)); done",
                  files.alive};
  foreign.stdin_fd = lock.get();
  foreign.new_session = true;
  return Spawn(foreign).status();
}

}  // namespace

int RunTestJob(const TestPlace& place, Clock& clock) {
  const JobFiles files(place.dir);
  const Console console;
  const absl::StatusOr<UniqueFd> lock = TryLock(files.lock);
  const absl::Status begun = lock.ok() ? StartJob(files, place.dir) : lock.status();
  if (!begun.ok()) {
    console.PrintLine(absl::StrCat(kJobFailed, begun.message()));
    return kExitFailed;
  }
  console.PrintLine(kJobReady);
  LiveOn(files, clock);
  return kExitOk;
}

int MakeOrphans(const TestPlace& place) {
  return StartOrphans(JobFiles(place.dir), place.dir).ok() ? kExitOk : kExitFailed;
}

int RunOrphan(const TestPlace& place, Clock& clock) {
  const JobFiles files(place.dir);
  const absl::StatusOr<UniqueFd> lock = TryLock(files.orphan_lock);
  if (!lock.ok()) return kExitFailed;
  LiveOn(files, clock);
  return kExitOk;
}

}  // namespace gpuctl
