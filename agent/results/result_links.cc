#include "agent/results/result_links.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/path_pattern.h"
#include "common/files/files.h"
#include "common/tree/hash_cache.h"

namespace gpuctl {
namespace {

constexpr size_t kMostLinksDeep = 8;
// The number of files and directories to look at for a change.
constexpr int kMostLooks = 20'000;

// Returns the path below `dir`, "" for `dir` itself, or nothing for a path elsewhere.
std::optional<std::string> PathBelow(absl::string_view path, absl::string_view dir) {
  if (dir.empty() || !absl::ConsumePrefix(&path, dir)) return std::nullopt;
  if (path.empty()) return std::string();
  if (!absl::ConsumePrefix(&path, "/")) return std::nullopt;
  return std::string(path);
}

std::vector<std::string> Trimmed(const std::vector<std::string>& patterns) {
  std::vector<std::string> trimmed;
  for (const std::string& pattern : patterns) {
    trimmed.emplace_back(absl::StripSuffix(pattern, "/"));
    if (trimmed.back().empty()) trimmed.pop_back();
  }
  return trimmed;
}

void AddChanged(const std::string& path, int64_t since_ns, int& looks, int64_t& bytes) {
  struct stat info {};
  if (looks > kMostLooks || lstat(path.c_str(), &info) != 0) return;
  ++looks;
  const bool changed = FileIdentity::Of(info).ctime_ns >= since_ns;
  if (S_ISREG(info.st_mode) && changed) bytes = std::max<int64_t>(bytes, 0) + info.st_size;
  if (!S_ISDIR(info.st_mode)) return;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
  if (!names.ok()) return;
  for (const std::string& name : *names) AddChanged(JoinPath(path, name), since_ns, looks, bytes);
}

}  // namespace

std::string RealPath(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) != nullptr ? resolved : "";
}

int64_t ChangedBytes(const std::string& path, int64_t since_ns) {
  int looks = 0;
  int64_t bytes = -1;
  AddChanged(path, since_ns, looks, bytes);
  return looks > kMostLooks ? std::max<int64_t>(bytes, 0) : bytes;
}

ResultLinks::ResultLinks(const JobPaths& job, std::vector<std::string> patterns)
    : work_(job.work),
      patterns_(Trimmed(patterns)),
      real_job_(RealPath(job.dir)),
      real_work_(RealPath(job.work)) {
  struct stat accepted {};
  if (lstat(job.spec.c_str(), &accepted) == 0) accepted_ns_ = FileIdentity::Of(accepted).ctime_ns;
}

// True when the target lies in the work directory where the pattern finds it without the symlink.
bool ResultLinks::IsFoundElsewhere(const std::string& pattern, const std::string& target) const {
  const std::optional<std::string> below = PathBelow(target, real_work_);
  if (!below.has_value()) return false;
  return below->empty() || MatchesPattern(pattern, *below) || MayMatchBelow(pattern, *below);
}

ResultLinks::Link ResultLinks::Look(const std::string& path) const {
  Link link;
  const std::string absolute = JoinPath(work_, path);
  if (stat(absolute.c_str(), &link.info) != 0) return link;
  const bool is_directory = S_ISDIR(link.info.st_mode);
  if (!is_directory && !S_ISREG(link.info.st_mode)) return link;
  const std::string target = RealPath(absolute);
  if (target.empty() || PathBelow(real_job_, target).has_value() || target == "/") return link;
  const bool loops = std::any_of(entered_.begin(), entered_.end(), [&](const Entered& each) {
    return each.device == static_cast<uint64_t>(link.info.st_dev) &&
           each.inode == static_cast<uint64_t>(link.info.st_ino);
  });
  if (loops) return link;
  bool meant = false;
  for (const std::string& pattern : patterns_) {
    const bool names = is_directory && NamesPlace(pattern, path);
    const bool means =
        names || MatchesPattern(pattern, path) ||
        (is_directory && absl::StrContains(pattern, "**") && MayMatchBelow(pattern, path));
    if (!means || IsFoundElsewhere(pattern, target)) continue;
    meant = true;
    if (names && entered_.size() < kMostLinksDeep) {
      link.kind = Kind::kFollow;
      return link;
    }
  }
  if (meant && ChangedBytes(target, accepted_ns_) >= 0) link.kind = Kind::kUnreached;
  return link;
}

void ResultLinks::Enter(const std::string& path, const Link& link) {
  entered_.push_back(
      {path, static_cast<uint64_t>(link.info.st_dev), static_cast<uint64_t>(link.info.st_ino)});
}

void ResultLinks::Leave() { entered_.pop_back(); }

std::string ResultLinks::behind() const {
  return entered_.empty() ? "" : JoinPath("work", entered_.back().path);
}

}  // namespace gpuctl
