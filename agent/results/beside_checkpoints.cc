#include "agent/results/beside_checkpoints.h"

#include <cerrno>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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
    Walk(kFolder, {});
    return absl::OkStatus();
  }

 private:
  // Returns false to stop. `info` is the directory's.
  bool Walk(const std::string& relative, const struct stat& info) {
    const absl::StatusOr<std::vector<std::string>> names =
        ListDirectory(JoinPath(job_.dir, relative));
    if (!names.ok()) return IsGone(names.status()) || visit_(relative, info);
    for (const std::string& name : *names) {
      if (relative == kFolder && absl::StartsWith(name, ".")) continue;
      const std::string path = JoinPath(relative, name);
      const absl::StatusOr<struct stat> found = Look(path);
      if (!found.ok() && !IsGone(found.status()) && !visit_(path, {})) return false;
      if (!found.ok()) continue;
      const bool beside = S_ISREG(found->st_mode) && named_.count(path) == 0;
      if (beside && !visit_(path, *found)) return false;
      if (S_ISDIR(found->st_mode) && !Walk(path, *found)) return false;
    }
    return true;
  }

  // Things go away while the job works.
  static bool IsGone(const absl::Status& status) { return absl::IsNotFound(status); }

  absl::StatusOr<struct stat> Look(const std::string& path) const {
    struct stat info {};
    if (lstat(JoinPath(job_.dir, path).c_str(), &info) != 0) {
      return ErrnoStatus(errno, absl::StrCat("look at ", path));
    }
    return info;
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
