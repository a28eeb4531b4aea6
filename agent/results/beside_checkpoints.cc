#include "agent/results/beside_checkpoints.h"

#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/checkpoint.h"

namespace gpuctl {
namespace {

constexpr char kFolder[] = "ckpt";

class BesideCheckpoints {
 public:
  BesideCheckpoints(const JobPaths& job,
                    const std::function<bool(const std::string&, const struct stat&)>& visit)
      : job_(job), visit_(visit) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(const std::vector<CheckpointDir> complete, ListCheckpoints(job_.checkpoints));
    for (const CheckpointDir& checkpoint : complete) {
      const std::string path = JoinPath(kFolder, BaseName(checkpoint.path));
      named_.insert(JoinPath(path, "manifest.json"));
      for (const CheckpointFile& file : checkpoint.manifest.files) {
        named_.insert(JoinPath(path, file.path));
      }
    }
    Walk(kFolder);
    return absl::OkStatus();
  }

 private:
  // Returns false to stop.
  bool Walk(const std::string& relative) {
    const absl::StatusOr<std::vector<std::string>> names =
        ListDirectory(JoinPath(job_.dir, relative));
    if (!names.ok()) return true;  // it went away while the job works
    for (const std::string& name : *names) {
      if (relative == kFolder && absl::StartsWith(name, ".")) continue;
      const std::string path = JoinPath(relative, name);
      struct stat info {};
      if (lstat(JoinPath(job_.dir, path).c_str(), &info) != 0) continue;
      const bool beside = S_ISREG(info.st_mode) && named_.count(path) == 0;
      if (beside && !visit_(path, info)) return false;
      if (S_ISDIR(info.st_mode) && !Walk(path)) return false;
    }
    return true;
  }

  const JobPaths& job_;
  const std::function<bool(const std::string&, const struct stat&)>& visit_;
  std::set<std::string> named_;
};

}  // namespace

absl::Status ForEachBesideCheckpoints(
    const JobPaths& job, const std::function<bool(const std::string&, const struct stat&)>& visit) {
  if (!IsDirectory(job.checkpoints)) return absl::OkStatus();
  return BesideCheckpoints(job, visit).Run();
}

}  // namespace gpuctl
