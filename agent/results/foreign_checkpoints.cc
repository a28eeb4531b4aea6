#include "agent/results/foreign_checkpoints.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/path_pattern.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/checkpoint_layout.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;

constexpr int64_t kMaxCheckpointFiles = 100'000;
constexpr absl::string_view kWork = "work";

absl::Time ChangeTime(const struct stat& info) {
#if defined(__APPLE__)
  return absl::TimeFromTimespec(info.st_ctimespec);
#else
  return absl::TimeFromTimespec(info.st_ctim);
#endif
}

class Search {
 public:
  Search(const std::string& job_dir, const ForeignSearch& search)
      : job_dir_(job_dir), search_(search) {
    for (const std::string& pattern : search.patterns) {
      const std::string trimmed(absl::StripSuffix(pattern, "/"));
      if (!trimmed.empty()) patterns_.push_back(trimmed);
    }
  }

  absl::StatusOr<std::vector<CheckpointInfo>> Run() {
    if (!patterns_.empty()) RETURN_IF_ERROR(Descend(""));
    std::stable_sort(found_.begin(), found_.end(),
                     [](const CheckpointInfo& a, const CheckpointInfo& b) {
                       return std::make_pair(a.modified_ms(), a.step()) <
                              std::make_pair(b.modified_ms(), b.step());
                     });
    return std::move(found_);
  }

 private:
  std::string Absolute(const std::string& path) const {
    const std::string work = JoinPath(job_dir_, kWork);
    return path.empty() ? work : JoinPath(work, path);
  }

  // Paths are relative to work/.
  absl::Status Descend(const std::string& path) {
    const absl::StatusOr<std::vector<std::string>> names = ListDirectory(Absolute(path));
    if (!names.ok()) return absl::OkStatus();  // the job removed it meanwhile
    for (const std::string& name : *names) {
      if (IsTemporaryName(name)) continue;
      const std::string child = path.empty() ? name : JoinPath(path, name);
      if (child == kTrainerKitPath) continue;
      struct stat info {};
      if (lstat(Absolute(child).c_str(), &info) != 0) continue;
      if (S_ISLNK(info.st_mode) && search_.links != nullptr) {
        RETURN_IF_ERROR(Follow(child));
      } else if (S_ISDIR(info.st_mode) || S_ISREG(info.st_mode)) {
        RETURN_IF_ERROR(LookAt(child, info));
      }
    }
    return absl::OkStatus();
  }

  absl::Status LookAt(const std::string& path, const struct stat& info) {
    if (const std::string* pattern = Matching(path); pattern != nullptr) {
      return Consider(path, *pattern, info);
    }
    return S_ISDIR(info.st_mode) && MayHold(path) ? Descend(path) : absl::OkStatus();
  }

  absl::Status Follow(const std::string& path) {
    ResultLinks& links = *search_.links;
    const ResultLinks::Link link = links.Look(path);
    if (link.kind == ResultLinks::Kind::kUnreached && search_.unreached != nullptr) {
      search_.unreached->push_back(path);
    }
    if (link.kind != ResultLinks::Kind::kFollow) return absl::OkStatus();
    links.Enter(path, link);
    const absl::Status looked = LookAt(path, link.info);
    links.Leave();
    return looked;
  }

  const std::string* Matching(const std::string& path) const {
    for (const std::string& pattern : patterns_) {
      if (MatchesPattern(pattern, path)) return &pattern;
    }
    return nullptr;
  }

  bool MayHold(const std::string& path) const {
    return std::any_of(patterns_.begin(), patterns_.end(),
                       [&](const std::string& pattern) { return MayMatchBelow(pattern, path); });
  }

  struct Contents {
    std::vector<LayoutFile> files;
    std::vector<int64_t> modified_ms;
    absl::Time changed = absl::InfinitePast();
  };

  // False when something disappeared meanwhile, because its writer is still working.
  absl::StatusOr<bool> Collect(const std::string& root, const std::string& below,
                               Contents& contents) {
    const std::string dir = below.empty() ? root : JoinPath(root, below);
    const absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
    if (!names.ok()) return false;
    for (const std::string& name : *names) {
      struct stat info {};
      if (lstat(JoinPath(dir, name).c_str(), &info) != 0) return false;
      contents.changed = std::max(contents.changed, ChangeTime(info));
      const std::string path = below.empty() ? name : JoinPath(below, name);
      if (S_ISDIR(info.st_mode)) {
        ASSIGN_OR_RETURN(const bool steady, Collect(root, path, contents));
        if (!steady) return false;
      } else if (S_ISREG(info.st_mode)) {
        if (++files_ > kMaxCheckpointFiles) {
          return absl::ResourceExhaustedError(
              absl::StrCat("list checkpoints: what the patterns match holds more than ",
                           kMaxCheckpointFiles, " files"));
        }
        contents.files.push_back({path, info.st_size});
        contents.modified_ms.push_back(ModifiedMs(info));
      }
    }
    return true;
  }

  bool IsQuiet(absl::Time changed) const {
    if (search_.writers_end.has_value()) return true;
    // It is far in the future when the clock was set back since.
    return absl::AbsDuration(search_.now - changed) >= search_.quiet;
  }

  bool IsComplete(const LayoutVerdict& verdict, absl::Time changed) const {
    if (verdict.wholeness == Wholeness::kTorn) return false;
    const std::optional<WritersEnd>& end = search_.writers_end;
    const bool needs_proof =
        end.has_value() && changed > end->ended - search_.quiet && changed <= end->outlived;
    return !needs_proof || verdict.wholeness == Wholeness::kWhole;
  }

  absl::Status Consider(const std::string& path, const std::string& pattern,
                        const struct stat& info) {
    const bool is_file = S_ISREG(info.st_mode);
    const std::string absolute = Absolute(path);
    Contents contents;
    if (is_file) {
      contents.files.push_back({BaseName(path), info.st_size});
      contents.modified_ms.push_back(ModifiedMs(info));
    } else {
      ASSIGN_OR_RETURN(const bool steady, Collect(absolute, "", contents));
      if (!steady) return absl::OkStatus();
    }
    contents.changed = std::max(contents.changed, ChangeTime(info));
    if (!IsQuiet(contents.changed)) return absl::OkStatus();
    const LayoutVerdict verdict = is_file ? JudgeCheckpointFile(absolute, info.st_size)
                                          : JudgeCheckpointDirectory(absolute, contents.files);
    if (IsComplete(verdict, contents.changed)) Add(path, pattern, is_file, contents);
    return absl::OkStatus();
  }

  void Add(const std::string& path, const std::string& pattern, bool is_file,
           const Contents& contents) {
    CheckpointInfo& checkpoint = found_.emplace_back();
    checkpoint.set_kind(CheckpointInfo::KIND_FOREIGN);
    checkpoint.set_is_file(is_file);
    checkpoint.set_path(JoinPath(kWork, path));
    if (search_.links != nullptr) checkpoint.set_behind(search_.links->behind());
    const std::string fixed = FixedDirectory(pattern);
    checkpoint.set_name(fixed.empty() ? path : path.substr(fixed.size() + 1));
    checkpoint.set_step(StepOfCheckpointName(BaseName(path), is_file));
    int64_t size = 0;
    int64_t modified_ms = 0;
    for (size_t i = 0; i < contents.files.size(); ++i) {
      gpuctl::v1::Artifact& artifact = *checkpoint.add_files();
      artifact.set_path(is_file ? checkpoint.path()
                                : JoinPath(checkpoint.path(), contents.files[i].path));
      artifact.set_size(contents.files[i].size);
      artifact.set_modified_ms(contents.modified_ms[i]);
      size += contents.files[i].size;
      modified_ms = std::max(modified_ms, contents.modified_ms[i]);
    }
    checkpoint.set_size(size);
    checkpoint.set_modified_ms(modified_ms);
  }

  const std::string& job_dir_;
  const ForeignSearch& search_;
  std::vector<std::string> patterns_;
  std::vector<CheckpointInfo> found_;
  int64_t files_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<CheckpointInfo>> FindForeignCheckpoints(const std::string& job_dir,
                                                                   const ForeignSearch& search) {
  return Search(job_dir, search).Run();
}

}  // namespace gpuctl
