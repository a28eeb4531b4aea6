// Which files of a work directory are sent.
//
// In this order; the first that says anything about a path decides:
//   1. `.git`, whatever it is and wherever, stays home.
//   2. What stands below a directory that stays home stays home: no rule brings it back.
//   3. A path named by `include`, or below a directory that is, passes the rules.
//   4. The rules: from the path's own directory up to the repository's root (the work directory
//      where there is no repository) first that directory's .gpuctlignore, then its .gitignore;
//      then .git/info/exclude; then core.excludesFile, as client/ignore/ask_git.h has it. In a file
//      the last pattern that matches counts, and "!" brings back what an earlier one or a file
//      further down this list left out. A directory whose own .gpuctlignore is just `*` is left out
//      as a whole.
//   5. A file that looks like a secret (client/ignore/secret_files.h) stays home unless it is
//   named: by
//      `include` exactly, or by a "!" pattern of a .gpuctlignore whose last component has a
//      character that stands for itself (`!.env`, `!certs/*.pem`; `!*` names nothing).
//
// The patterns mean what gitignore(5) says, byte for byte. Differences from `git status`, on
// purpose: the index is not read, so a tracked file that matches a pattern stays home, as
// `git check-ignore --no-index` has it; a repository within the work directory is a directory like
// any other; the repository is the one that the work directory lies in: GIT_DIR changes at most
// settings, GIT_WORK_TREE nothing. When the rules ignore the work directory itself, those from
// above it and info/exclude do not hold: it was asked for by name.
//
// Rule files are read when something in their directory is first asked about, each once. Not
// thread-safe.
#ifndef GPUCTL_CLIENT_IGNORE_IGNORE_RULES_H_
#define GPUCTL_CLIENT_IGNORE_IGNORE_RULES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/ignore/git_config.h"
#include "client/ignore/git_repository.h"
#include "client/ignore/ignore_pattern.h"

namespace gpuctl {

class IgnoreRules {
 public:
  // A file of patterns. `shown` is its path as people know it: relative to the work directory where
  // it lies in it, else absolute.
  struct File {
    std::string shown, path;
    bool ours = false;  // a .gpuctlignore
    std::vector<IgnorePattern> patterns;
  };

  // kOurs: what an interrupted pull or copy of gpuctl's left for the next.
  enum class Reason { kNone, kRule, kSecret, kGit, kIncluded, kOurs };
  struct Decision {
    bool excluded = false;
    Reason reason = Reason::kNone;
    // kRule: what decided, also when it says "!". They live as long as the rules.
    const File* file = nullptr;
    const IgnorePattern* pattern = nullptr;
    // The path itself, or the directory above it that was decided on.
    std::string decided;
  };

  // `root` is absolute with its symlinks resolved; the paths of `include` are relative to it.
  // INVALID_ARGUMENT when one of these leads out of the root or to .git, NOT_FOUND when nothing is
  // there.
  static absl::StatusOr<IgnoreRules> Load(const std::string& root,
                                          const GitEnvironment& environment,
                                          const std::vector<std::string>& include = {});
  IgnoreRules(IgnoreRules&&) = default;
  IgnoreRules& operator=(IgnoreRules&&) = default;

  // For a path relative to the root, without "." and "..". A directory that is not excluded may
  // hold nothing that is sent: where something below it was included by name.
  Decision Decide(const std::string& path, bool is_directory);

  // Rule and configuration files that could not be read, and why; grows as directories are read.
  const std::vector<std::string>& notes() const { return notes_; }
  // Whether the rules from above ignore the work directory itself, and were dropped therefore.
  bool root_is_ignored() const { return root_is_ignored_; }

 private:
  struct Directory {
    const Directory* above = nullptr;  // the nearest one with patterns
    size_t base = 0;                   // where names below it begin in a full path
    std::unique_ptr<File> ours, git;   // none without patterns
    Decision decision;                 // excluded: so is everything below
    bool HasPatterns() const { return ours != nullptr || git != nullptr; }
  };

  IgnoreRules() = default;

  absl::Status AddIncluded(const std::string& path);
  void LoadAbove(const GitRepository& repository);
  // The directory `path` relative to the root; decided on, and its rules read, at the first call.
  const Directory& DirectoryOf(absl::string_view path);
  void ReadRules(const std::string& directory, const std::string& shown, Directory& into);
  std::unique_ptr<File> ReadFile(const std::string& path, const std::string& shown, bool follow);
  Decision DecideIn(const Directory& parent, absl::string_view path, bool is_directory);
  // The pattern that decides about full_, asked from `directory` upwards; no reason when none does.
  Decision Match(const Directory* directory, bool is_directory) const;
  // Whether a .gpuctlignore brings full_, a file, back by name.
  bool IsNamed(const Directory* directory) const;
  bool IsIncluded(absl::string_view path) const;     // or a directory above it
  bool HoldsIncluded(absl::string_view path) const;  // something below it is
  static const Directory* Nearest(const Directory& directory) {
    return directory.HasPatterns() ? &directory : directory.above;
  }

  std::string root_;    // of the work directory
  std::string prefix_;  // from the repository's root to it: "" or "a/b/"
  bool ignore_case_ = false, root_is_ignored_ = false;
  std::vector<std::string> include_;
  std::vector<std::unique_ptr<Directory>> above_;  // from the repository's root down
  std::unique_ptr<File> info_exclude_, excludes_file_;
  // By path relative to the root, "" being the root.
  absl::flat_hash_map<std::string, std::unique_ptr<Directory>> directories_;
  std::string last_path_;  // of the directory that was asked about last
  const Directory* last_ = nullptr;
  std::string full_;  // prefix_ and the path that is being decided on
  std::vector<std::string> notes_;
};

// What decided, for people: `.gitignore:3: data/`, `.git stays home`; "" when nothing did.
std::string DescribeDecision(const IgnoreRules::Decision& decision);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_IGNORE_IGNORE_RULES_H_
