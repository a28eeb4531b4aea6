#include "client/ignore/ignore_rules.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/ignore/ask_git.h"
#include "client/ignore/secret_files.h"
#include "common/base/status_macros.h"
#include "common/files/exchange_paths.h"
#include "common/files/files.h"
#include "common/files/staging_dir.h"

namespace gpuctl {
namespace {

constexpr char kOurFile[] = ".gpuctlignore";
constexpr char kGitFile[] = ".gitignore";
constexpr int64_t kMaxFileBytes = 16 << 20;

absl::string_view LastComponent(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

absl::string_view ParentOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? "" : path.substr(0, slash);
}

bool IsBelow(absl::string_view path, absl::string_view directory) {
  return path.size() > directory.size() && path[directory.size()] == '/' &&
         absl::StartsWith(path, directory);
}

// True for files that an unfinished pull or cp leaves beside its target.
bool IsOurs(absl::string_view name) {
  return absl::StartsWith(name, kStagingPrefix) || absl::StartsWith(name, ".gpuctl-sftp-") ||
         absl::StartsWith(name, ".gpuctl-removed-") || absl::StartsWith(name, kOlderPrefix);
}

// Returns the contents of a regular file; NOT_FOUND for anything else that git silently skips.
absl::StatusOr<std::string> ReadRuleFile(const std::string& path, bool follow) {
  // Non-blocking, because it could be a FIFO.
  const int flags = O_RDONLY | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW);
  UniqueFd fd(file_ops::Open(path, flags));
  struct stat info {};
  if (!fd.valid() && (errno == ENOENT || errno == ENOTDIR)) return absl::NotFoundError(path);
  if (!fd.valid() && errno == ELOOP && !follow) {
    return absl::FailedPreconditionError(
        absl::StrCat("read ", path, ": a symbolic link, which holds no rules"));
  }
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("read ", path));
  }
  if (!S_ISREG(info.st_mode)) return absl::NotFoundError(path);
  if (info.st_size > kMaxFileBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("read ", path, ": larger than ", kMaxFileBytes, " bytes"));
  }
  std::string contents(static_cast<size_t>(info.st_size), '\0');
  size_t size = 0;
  while (size < contents.size()) {
    const ssize_t got = read(fd.get(), contents.data() + size, contents.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  contents.resize(size);
  return contents;
}

// Returns the last pattern of `file` that matches; null when none does.
const IgnorePattern* LastMatch(const IgnoreRules::File& file, absl::string_view name,
                               absl::string_view basename, bool is_directory) {
  for (auto pattern = file.patterns.rbegin(); pattern != file.patterns.rend(); ++pattern) {
    if (pattern->Matches(name, basename, is_directory)) return &*pattern;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<IgnoreRules> IgnoreRules::Load(const std::string& root,
                                              const GitEnvironment& environment,
                                              const std::vector<std::string>& include) {
  IgnoreRules rules;
  rules.root_ = root;
  for (const std::string& path : include) RETURN_IF_ERROR(rules.AddIncluded(path));
  const std::optional<GitRepository> repository = FindGitRepository(root);
  GitConfig config = GitConfigFor(environment, repository, root);
  rules.notes_ = std::move(config.notes);
  rules.ignore_case_ = config.ignore_case;
  if (!config.excludes_file.empty()) {
    rules.excludes_file_ = rules.ReadFile(config.excludes_file, config.excludes_file, true);
  }
  if (repository.has_value()) rules.LoadAbove(*repository);
  auto directory = std::make_unique<Directory>();
  if (!rules.above_.empty()) directory->above = Nearest(*rules.above_.back());
  directory->base = rules.prefix_.size();
  rules.ReadRules(root, "", *directory);
  rules.last_ = directory.get();
  rules.directories_[""] = std::move(directory);
  return rules;
}

absl::Status IgnoreRules::AddIncluded(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  if (absl::EndsWith(normal, "/")) normal.pop_back();
  const std::vector<absl::string_view> parts = absl::StrSplit(normal, '/');
  if (normal.empty() || normal == "." || normal[0] == '/' || parts[0] == "..") {
    return absl::InvalidArgumentError(
        absl::StrCat("include ", path, ": it has to be a path below the work directory"));
  }
  if (std::find(parts.begin(), parts.end(), ".git") != parts.end()) {
    return absl::InvalidArgumentError(absl::StrCat("include ", path, ": .git stays home"));
  }
  if (!PathExists(JoinPath(root_, normal))) {
    return absl::NotFoundError(absl::StrCat("include ", path, ": not there in ", root_));
  }
  include_.push_back(std::move(normal));
  return absl::OkStatus();
}

// Reads the rules of the directories from the repository's root down to the one above the work
// directory.
void IgnoreRules::LoadAbove(const GitRepository& repository) {
  info_exclude_ = ReadFile(repository.InfoExclude(), repository.InfoExclude(), true);
  if (repository.root == root_) return;
  const size_t skipped = repository.root == "/" ? 1 : repository.root.size() + 1;
  prefix_ = absl::StrCat(root_.substr(skipped), "/");
  std::string path = repository.root;
  for (size_t at = 0; at < prefix_.size();) {
    auto directory = std::make_unique<Directory>();
    if (!above_.empty()) directory->above = Nearest(*above_.back());
    directory->base = at;
    ReadRules(path, absl::StrCat(path, "/"), *directory);
    above_.push_back(std::move(directory));
    const size_t slash = prefix_.find('/', at);
    full_ = prefix_.substr(0, slash);
    if (Match(Nearest(*above_.back()), true).excluded) {
      root_is_ignored_ = true;
      above_.clear();
      info_exclude_.reset();
      prefix_.clear();
      return;
    }
    path = JoinPath(path, absl::string_view(full_).substr(at));
    at = slash + 1;
  }
}

void IgnoreRules::ReadRules(const std::string& directory, const std::string& shown,
                            Directory& into) {
  into.ours = ReadFile(JoinPath(directory, kOurFile), absl::StrCat(shown, kOurFile), false);
  if (into.ours != nullptr) into.ours->ours = true;
  into.git = ReadFile(JoinPath(directory, kGitFile), absl::StrCat(shown, kGitFile), false);
}

std::unique_ptr<IgnoreRules::File> IgnoreRules::ReadFile(const std::string& path,
                                                         const std::string& shown, bool follow) {
  const absl::StatusOr<std::string> contents = ReadRuleFile(path, follow);
  if (!contents.ok()) {
    if (!absl::IsNotFound(contents.status())) {
      notes_.emplace_back(contents.status().message());
    }
    return nullptr;
  }
  auto file = std::make_unique<File>();
  file->shown = shown;
  file->path = path;
  file->patterns = ParseIgnoreFile(*contents, ignore_case_);
  return file->patterns.empty() ? nullptr : std::move(file);
}

const IgnoreRules::Directory& IgnoreRules::DirectoryOf(absl::string_view path) {
  if (last_path_ == path) return *last_;
  const auto found = directories_.find(path);
  const Directory* directory = found == directories_.end() ? nullptr : found->second.get();
  if (directory == nullptr) {
    const Directory& parent = DirectoryOf(ParentOf(path));
    auto made = std::make_unique<Directory>();
    made->decision = DecideIn(parent, path, true);
    made->above = Nearest(parent);
    made->base = prefix_.size() + path.size() + 1;
    const std::string name(path);
    if (!made->decision.excluded) ReadRules(JoinPath(root_, name), absl::StrCat(name, "/"), *made);
    const File* ours = made->ours.get();
    if (ours != nullptr && ours->patterns.size() == 1 && ours->patterns[0].text() == "*" &&
        !IsIncluded(path)) {
      made->decision = {true, Reason::kRule, ours, &ours->patterns[0], name};
    }
    directory = made.get();
    directories_[name] = std::move(made);
  }
  last_path_ = std::string(path);
  last_ = directory;
  return *directory;
}

IgnoreRules::Decision IgnoreRules::Decide(const std::string& path, bool is_directory) {
  if (!is_directory) return DecideIn(DirectoryOf(ParentOf(path)), path, false);
  Decision decision = DirectoryOf(path).decision;
  if (decision.excluded && HoldsIncluded(path)) {
    decision = Decision();
    decision.reason = Reason::kIncluded;
  }
  return decision;
}

IgnoreRules::Decision IgnoreRules::DecideIn(const Directory& parent, absl::string_view path,
                                            bool is_directory) {
  const bool included = IsIncluded(path);
  if (parent.decision.excluded && !included) return parent.decision;
  Decision decision;
  if (EqualBytes(LastComponent(path), ".git", ignore_case_)) {
    decision = {true, Reason::kGit, nullptr, nullptr, std::string(path)};
    return decision;
  }
  if (IsOurs(LastComponent(path))) {
    return {true, Reason::kOurs, nullptr, nullptr, std::string(path)};
  }
  full_.assign(prefix_);
  full_.append(path.data(), path.size());
  if (included) {
    decision.reason = Reason::kIncluded;
  } else {
    decision = Match(Nearest(parent), is_directory);
    if (decision.reason == Reason::kRule) decision.decided = std::string(path);
    if (decision.excluded) return decision;
  }
  if (!is_directory && LooksLikeSecret(path) &&
      std::find(include_.begin(), include_.end(), path) == include_.end() &&
      !IsNamed(Nearest(parent))) {
    decision = {true, Reason::kSecret, nullptr, nullptr, std::string(path)};
  }
  return decision;
}

IgnoreRules::Decision IgnoreRules::Match(const Directory* directory, bool is_directory) const {
  Decision decision;
  const absl::string_view full = full_;
  const absl::string_view basename = LastComponent(full);
  const auto decides = [&](const std::unique_ptr<File>& file, absl::string_view name) {
    if (file == nullptr) return false;
    decision.pattern = LastMatch(*file, name, basename, is_directory);
    if (decision.pattern == nullptr) return false;
    decision.file = file.get();
    decision.reason = Reason::kRule;
    decision.excluded = !decision.pattern->negative();
    return true;
  };
  for (; directory != nullptr; directory = directory->above) {
    const absl::string_view name = full.substr(directory->base);
    if (decides(directory->ours, name) || decides(directory->git, name)) return decision;
  }
  if (decides(info_exclude_, full) || decides(excludes_file_, full)) return decision;
  return decision;
}

bool IgnoreRules::IsNamed(const Directory* directory) const {
  const absl::string_view full = full_;
  const absl::string_view basename = LastComponent(full);
  for (; directory != nullptr; directory = directory->above) {
    if (directory->ours == nullptr) continue;
    const std::vector<IgnorePattern>& patterns = directory->ours->patterns;
    for (auto pattern = patterns.rbegin(); pattern != patterns.rend(); ++pattern) {
      if (!pattern->Matches(full.substr(directory->base), basename, false)) continue;
      if (!pattern->negative()) return false;
      if (pattern->NamesSomething()) return true;
    }
  }
  return false;
}

bool IgnoreRules::IsIncluded(absl::string_view path) const {
  return std::any_of(include_.begin(), include_.end(), [path](const std::string& included) {
    return path == included || IsBelow(path, included);
  });
}

bool IgnoreRules::HoldsIncluded(absl::string_view path) const {
  return std::any_of(include_.begin(), include_.end(),
                     [path](const std::string& included) { return IsBelow(included, path); });
}

std::string DescribeDecision(const IgnoreRules::Decision& decision) {
  using Reason = IgnoreRules::Reason;
  switch (decision.reason) {
    case Reason::kRule:
      return absl::StrCat(decision.file->shown, ":", decision.pattern->line(), ": ",
                          decision.pattern->text());
    case Reason::kSecret:
      return "it looks like a secret";
    case Reason::kGit:
      return ".git stays home";
    case Reason::kIncluded:
      return "included by name";
    case Reason::kOurs:
      return "gpuctl's own, left for the next pull";
    case Reason::kNone:
      break;
  }
  return "";
}

}  // namespace gpuctl
