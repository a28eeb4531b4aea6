#include "client/ignore/git_repository.h"

#include <sys/stat.h>

#include <filesystem>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr int64_t kMaxPointerBytes = 1 << 16;

// Returns the line of a one-line file, without its end; "" when it cannot be read.
std::string ReadLine(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFileToString(path, kMaxPointerBytes);
  if (!text.ok()) return "";
  absl::string_view line = *text;
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  return std::string(line);
}

// Returns `path`, which may be relative to `directory`, as an absolute path.
std::string Resolve(const std::string& directory, const std::string& path) {
  const std::filesystem::path joined = std::filesystem::path(directory) / path;
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(joined, error);
  return error ? joined.lexically_normal().string() : real.string();
}

bool IsHexId(absl::string_view text) {
  if (text.size() < 40) return false;
  for (const char c : text.substr(0, 40)) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

// True when git itself would accept the directory as a repository's.
bool IsRepository(const GitRepository& repository) {
  const std::string head = JoinPath(repository.git_dir, "HEAD");
  struct stat info {};
  if (lstat(head.c_str(), &info) != 0) return false;
  if (!S_ISLNK(info.st_mode)) {
    absl::string_view text;
    const std::string line = ReadLine(head);
    text = line;
    if (absl::ConsumePrefix(&text, "ref:")) {
      if (!absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "refs/")) return false;
    } else if (!IsHexId(text)) {
      return false;
    }
  }
  return IsDirectory(JoinPath(repository.common_dir, "objects")) &&
         IsDirectory(JoinPath(repository.common_dir, "refs"));
}

std::optional<GitRepository> RepositoryAt(const std::string& directory) {
  GitRepository repository;
  repository.root = directory;
  const std::string dot_git = JoinPath(directory, ".git");
  if (!PathExists(dot_git)) return std::nullopt;
  if (IsDirectory(dot_git)) {
    repository.git_dir = dot_git;
  } else {
    const std::string line = ReadLine(dot_git);
    absl::string_view target = line;
    if (!absl::ConsumePrefix(&target, "gitdir: ") || target.empty()) return std::nullopt;
    repository.git_dir = Resolve(directory, std::string(target));
  }
  const std::string common = ReadLine(JoinPath(repository.git_dir, "commondir"));
  repository.common_dir = common.empty() ? repository.git_dir : Resolve(repository.git_dir, common);
  if (!IsRepository(repository)) return std::nullopt;
  return repository;
}

}  // namespace

std::string GitRepository::InfoExclude() const { return JoinPath(common_dir, "info/exclude"); }

std::optional<GitRepository> FindGitRepository(const std::string& directory) {
  struct stat first {};
  if (stat(directory.c_str(), &first) != 0) return std::nullopt;
  for (std::string at = directory;; at = DirName(at)) {
    struct stat info {};
    if (stat(at.c_str(), &info) != 0 || info.st_dev != first.st_dev) return std::nullopt;
    if (std::optional<GitRepository> found = RepositoryAt(at); found.has_value()) return found;
    if (at == "/" || at.empty()) return std::nullopt;
  }
}

}  // namespace gpuctl
