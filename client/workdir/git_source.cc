#include "client/workdir/git_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/base/run_program.h"
#include "client/ignore/git_repository.h"
#include "client/ignore/secret_files.h"
#include "client/workdir/workdir.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kGitPatience = absl::Seconds(10);
constexpr size_t kMostStatusBytes = 4 << 20;
constexpr size_t kMostNamed = 100;
// Each file that is left out is one more argument of git diff.
constexpr size_t kMostExcluded = 500;
// git looks for a NUL in so many bytes to tell binary files.
constexpr size_t kLookedAtForNul = 8000;

// Runs git in `root`. Nothing of it asks, fetches, writes, or starts a monitor; settings of the
// user that change the form of its answers do not hold.
absl::StatusOr<ProgramEnd> RunGit(const GitEnvironment& environment, const std::string& root,
                                  const std::vector<std::string>& args, size_t keep_bytes) {
  std::vector<std::string> argv = {environment.git,
                                   "--no-pager",
                                   "-C",
                                   root,
                                   "-c",
                                   "core.fsmonitor=false",
                                   "-c",
                                   "core.quotePath=true",
                                   "-c",
                                   "diff.relative=false"};
  argv.insert(argv.end(), args.begin(), args.end());
  return RunWithin(kGitPatience, argv,
                   {"GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_ALLOW_PROTOCOL=none",
                    "GIT_LITERAL_PATHSPECS=0", "GIT_GLOB_PATHSPECS=0", "GIT_NOGLOB_PATHSPECS=0",
                    "GIT_ICASE_PATHSPECS=0", "LC_ALL=C"},
                   -1, keep_bytes);
}

// The answer of git status.
struct Changes {
  std::string commit, branch;
  struct File {
    std::string path;  // below the repository's root; a directory ends with '/'
    bool is_new = false;
  };
  std::vector<File> files;
};

// Parses `git status --porcelain=v2 --branch -z`. Returns nothing when it is not that.
std::optional<Changes> ParseStatus(absl::string_view text) {
  Changes changes;
  bool known = false, skip = false;
  for (absl::string_view entry : absl::StrSplit(text, '\0', absl::SkipEmpty())) {
    if (std::exchange(skip, false)) continue;
    if (absl::ConsumePrefix(&entry, "# branch.oid ")) {
      known = true;
      if (entry != "(initial)") changes.commit = std::string(entry);
    } else if (absl::ConsumePrefix(&entry, "# branch.head ")) {
      if (entry != "(detached)") changes.branch = std::string(entry);
    } else if (absl::ConsumePrefix(&entry, "? ")) {
      changes.files.push_back({std::string(entry), true});
    } else {
      // The path stands behind 8 fields; of a renamed file behind 9, and its old path follows; of
      // one with conflicts behind 10.
      const int before = entry[0] == '1' ? 8 : entry[0] == '2' ? 9 : entry[0] == 'u' ? 10 : 0;
      const std::vector<absl::string_view> parts =
          absl::StrSplit(entry, absl::MaxSplits(' ', before));
      if (before == 0 || parts.size() <= static_cast<size_t>(before)) continue;
      changes.files.push_back({std::string(parts.back()), false});
      skip = entry[0] == '2';
    }
  }
  if (!known) return std::nullopt;
  return changes;
}

// Returns the name as it stands in a diff: in quotes when it has bytes that are not plain.
std::string QuotedName(absl::string_view prefix, absl::string_view name) {
  const auto plain = [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; };
  if (std::all_of(name.begin(), name.end(), plain)) return absl::StrCat(prefix, name);
  std::string quoted = absl::StrCat("\"", prefix);
  for (const char c : name) {
    if (plain(c)) {
      quoted += c;
    } else if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else {
      absl::StrAppendFormat(&quoted, "\\%03o", static_cast<unsigned char>(c));
    }
  }
  return quoted + "\"";
}

// Reads a new file, or the target of a symlink. Returns nothing when it is neither, or larger than
// `most` bytes.
std::optional<std::string> ReadNew(const std::string& path, const struct stat& info, int64_t most) {
  if (S_ISLNK(info.st_mode)) {
    std::string target(PATH_MAX, '\0');
    const ssize_t size = readlink(path.c_str(), target.data(), target.size());
    if (size < 0) return std::nullopt;
    target.resize(static_cast<size_t>(size));
    return target;
  }
  if (!S_ISREG(info.st_mode) || info.st_size > most) return std::nullopt;
  const UniqueFd fd(file_ops::Open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return std::nullopt;
  std::string content(static_cast<size_t>(info.st_size), '\0');
  size_t size = 0;
  while (size < content.size()) {
    const ssize_t got = read(fd.get(), content.data() + size, content.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  content.resize(size);
  return content;
}

// Returns the part of a diff that makes the new file `name`, as git writes it.
std::string DiffOfNew(const std::string& name, const struct stat& info,
                      const std::string& content) {
  const char* mode = S_ISLNK(info.st_mode)           ? "120000"
                     : (info.st_mode & S_IXUSR) != 0 ? "100755"
                                                     : "100644";
  const std::string to = QuotedName("b/", name);
  std::string diff =
      absl::StrCat("diff --git ", QuotedName("a/", name), " ", to, "\nnew file mode ", mode, "\n");
  if (content.empty()) return diff;
  if (absl::string_view(content).substr(0, kLookedAtForNul).find('\0') != absl::string_view::npos) {
    return absl::StrCat(diff, "Binary files /dev/null and ", to, " differ\n");
  }
  const bool whole = content.back() == '\n';
  const int64_t lines = std::count(content.begin(), content.end(), '\n') + (whole ? 0 : 1);
  // A tab ends a name with spaces.
  absl::StrAppend(&diff, "--- /dev/null\n+++ ", to, absl::StrContains(name, ' ') ? "\t" : "",
                  "\n@@ -0,0 +1", lines == 1 ? "" : absl::StrCat(",", lines), " @@\n");
  absl::string_view rest = content;
  if (whole) rest.remove_suffix(1);
  for (const absl::string_view line : absl::StrSplit(rest, '\n')) {
    absl::StrAppend(&diff, "+", line, "\n");
  }
  if (!whole) absl::StrAppend(&diff, "\\ No newline at end of file\n");
  return diff;
}

bool IsSame(const std::string& path, const std::string& other) {
  std::error_code ignored;
  return std::filesystem::equivalent(path, other, ignored);
}

class SourceReader {
 public:
  SourceReader(const GitEnvironment& environment, const SourceQuestion& question)
      : environment_(environment), question_(question) {}

  Source Read() {
    record_.unknown = Find();
    if (!record_.unknown.empty()) return {std::move(record_), ""};
    const absl::StatusOr<ProgramEnd> status =
        RunGit(environment_, question_.root,
               {"status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all",
                "--no-renames", "--ignore-submodules=none", "--", "."},
               kMostStatusBytes);
    std::optional<Changes> changes;
    if (status.ok() && status->exit_code == 0) changes = ParseStatus(status->output);
    if (!changes.has_value()) {
      record_.unknown = status.ok() ? "git status failed" : std::string(status.status().message());
      return {std::move(record_), ""};
    }
    record_.commit = changes->commit;
    record_.branch = changes->branch;
    if (status->cut) {
      record_.changed = static_cast<int64_t>(changes->files.size());
      record_.diff_missing = "too many files changed";
      return {std::move(record_), ""};
    }
    Sort(*changes);
    record_.changed = static_cast<int64_t>(changed_.size() + new_.size()) + record_.left_out_count;
    if (!changed_.empty()) AskForDiff();
    for (const std::string& path : new_) AddNew(path);
    if (record_.left_out.size() > kMostNamed) record_.left_out.resize(kMostNamed);
    record_.diff_bytes = static_cast<int64_t>(diff_.size());
    return {std::move(record_), std::move(diff_)};
  }

 private:
  // Finds the repository and whether git takes the same one. Returns why not; "" otherwise.
  std::string Find() {
    const std::optional<GitRepository> repository = FindGitRepository(question_.root);
    if (!repository.has_value()) return "not in a git repository";
    if (environment_.git.empty()) return "git is not installed";
    root_ = repository->root;
    if (root_ != question_.root) {
      prefix_ = absl::StrCat(question_.root.substr(root_ == "/" ? 1 : root_.size() + 1), "/");
    }
    const absl::StatusOr<ProgramEnd> told =
        RunGit(environment_, question_.root, {"rev-parse", "--show-toplevel", "--absolute-git-dir"},
               kMostStatusBytes);
    if (!told.ok()) return std::string(told.status().message());
    // For example because it belongs to somebody else.
    if (told->exit_code != 0) return "git does not accept the repository";
    // GIT_DIR can name another one.
    const std::vector<std::string> lines = absl::StrSplit(told->output, '\n');
    if (lines.size() == 3 && IsSame(lines[0], root_) && IsSame(lines[1], repository->git_dir)) {
      return "";
    }
    return "git works with another repository here";
  }

  bool StaysHome(IgnoreRules& rules, const std::string& path, bool is_directory) {
    const auto holds = [&path](const std::string& other) {
      return path == other || absl::StartsWith(path, other + "/");
    };
    return std::any_of(question_.leave_out.begin(), question_.leave_out.end(), holds) ||
           rules.Decide(path, is_directory).excluded;
  }

  // Decides what becomes of each file.
  void Sort(const Changes& changes) {
    absl::StatusOr<IgnoreRules> rules =
        IgnoreRules::Load(question_.root, environment_, question_.include);
    for (const Changes::File& file : changes.files) {
      if (!absl::StartsWith(file.path, prefix_)) continue;
      std::string path = file.path.substr(prefix_.size());
      const bool is_directory = absl::EndsWith(path, "/");  // another repository
      if (is_directory) path.pop_back();
      if (path.empty()) continue;
      const bool stays = !rules.ok() || StaysHome(*rules, path, is_directory);
      // It is neither in the commit nor with the job.
      if (stays && file.is_new) continue;
      if (stays || is_directory || LooksLikeSecret(path)) {
        if (!file.is_new) excluded_.push_back(file.path);
        LeaveOut(path);
      } else {
        (file.is_new ? new_ : changed_).push_back(path);
      }
    }
    // Before the first commit git has nothing to compare with: everything is new.
    if (record_.commit.empty()) {
      new_.insert(new_.end(), changed_.begin(), changed_.end());
      changed_.clear();
      std::sort(new_.begin(), new_.end());
    }
  }

  void LeaveOut(const std::string& path) {
    ++record_.left_out_count;
    if (record_.left_out.size() < kMostNamed) record_.left_out.push_back(path);
  }

  void AskForDiff() {
    if (excluded_.size() > kMostExcluded) {
      record_.diff_missing = "too many changed files stay here";
      return;
    }
    std::vector<std::string> args = {"diff",
                                     "HEAD",
                                     "--no-color",
                                     "--no-ext-diff",
                                     "--no-textconv",
                                     "--no-renames",
                                     "--full-index",
                                     "--unified=3",
                                     "--src-prefix=a/",
                                     "--dst-prefix=b/",
                                     "--submodule=short",
                                     "--ignore-submodules=none",
                                     "--",
                                     "."};
    for (const std::string& path : excluded_) {
      args.push_back(absl::StrCat(":(top,exclude,literal)", path));
    }
    absl::StatusOr<ProgramEnd> end = RunGit(environment_, question_.root, args, kMostDiffBytes);
    if (end.ok() && end->exit_code == 0) {
      diff_ = std::move(end->output);
      record_.diff_cut = end->cut;
      return;
    }
    record_.diff_missing = end.ok() ? "git diff failed" : std::string(end.status().message());
  }

  // Adds a new file to the diff while there is room.
  void AddNew(const std::string& path) {
    const std::string full = JoinPath(question_.root, path);
    struct stat info {};
    if (lstat(full.c_str(), &info) != 0) return;  // it is gone again
    const std::optional<std::string> content = ReadNew(full, info, kMostNewFileBytes);
    if (!content.has_value()) return LeaveOut(path);
    const std::string part = DiffOfNew(prefix_ + path, info, *content);
    if (diff_.size() + part.size() > kMostDiffBytes || record_.diff_cut) {
      record_.diff_cut = true;
      return LeaveOut(path);
    }
    diff_ += part;
  }

  const GitEnvironment& environment_;
  const SourceQuestion& question_;
  std::string root_, prefix_;               // of the repository; from there to the work directory
  std::vector<std::string> changed_, new_;  // below the work directory
  std::vector<std::string> excluded_;       // below the repository's root
  SourceRecord record_;
  std::string diff_;
};

}  // namespace

Source ReadSource(const GitEnvironment& environment, const SourceQuestion& question) {
  return SourceReader(environment, question).Read();
}

}  // namespace gpuctl
