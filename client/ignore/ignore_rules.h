// Decides which files of a work directory are sent.
//
// These rules apply in order; the first that says anything about a path decides:
//   1. Every `.git`, of any type and in any place, stays home.
//   2. Everything below a directory that stays home stays home: no rule brings it back.
//   3. A path that `include` names, or below a directory that it names, is exempt from 2 and 4.
//   4. The rule files. For each directory, from the path's own up to the repository's root (the
//      work directory where there is no repository): its .gpuctlignore, then its .gitignore. Then
//      .git/info/exclude, then core.excludesFile, as client/ignore/ask_git.h returns it. In a file
//      the last matching pattern counts, and "!" brings back a path that an earlier pattern or a
//      later file of this list leaves out. A directory whose own .gpuctlignore is just `*` is left
//      out as a whole.
//   5. A file that looks like a secret (client/ignore/secret_files.h) stays home unless it is
//      named: by `include` exactly, or by a "!" pattern of a .gpuctlignore whose last component has
//      a character that stands for itself (`!.env`, `!certs/*.pem`; `!*` names nothing).
//
// The patterns mean what gitignore(5) says, byte for byte. There are three intended differences
// from `git status`. The index is not read, so a tracked file that matches a pattern stays home, as
// in `git check-ignore --no-index`. A repository within the work directory is a directory like any
// other. The repository is the one that the work directory lies in: GIT_DIR changes at most
// settings, GIT_WORK_TREE nothing. When the rules ignore the work directory itself, those from
// above it and info/exclude do not hold, because the user named that directory.
//
// Each rule file is read once, at the first question about its directory. Not thread-safe.
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
  // A file of patterns. `shown` is its path for people: relative to the work directory when the
  // file lies in it, else absolute.
  struct File {
    std::string shown, path;
    bool ours = false;  // a .gpuctlignore
    std::vector<IgnorePattern> patterns;
  };

  // kOurs: files that an interrupted pull or copy of gpuctl left for the next one.
  enum class Reason { kNone, kRule, kSecret, kGit, kIncluded, kOurs };
  struct Decision {
    bool excluded = false;
    Reason reason = Reason::kNone;
    // kRule: the deciding file and pattern, also for a "!". They live as long as the rules.
    const File* file = nullptr;
    const IgnorePattern* pattern = nullptr;
    // The path itself, or the directory above it whose decision holds.
    std::string decided;
  };

  // `root` is absolute with its symlinks resolved; the paths of `include` are relative to it.
  // INVALID_ARGUMENT when one of these leads out of the root or to .git, NOT_FOUND when one does
  // not exist.
  static absl::StatusOr<IgnoreRules> Load(const std::string& root,
                                          const GitEnvironment& environment,
                                          const std::vector<std::string>& include = {});
  IgnoreRules(IgnoreRules&&) = default;
  IgnoreRules& operator=(IgnoreRules&&) = default;

  // Decides about a path relative to the root, without "." and "..". A directory is not excluded
  // when `include` names something below it, even if everything else in it stays home.
  Decision Decide(const std::string& path, bool is_directory);

  // Returns the rule and configuration files that could not be read, and why. The list grows as
  // directories are read.
  const std::vector<std::string>& notes() const { return notes_; }
  // True when the rules from above ignore the work directory itself, and therefore were dropped.
  bool root_is_ignored() const { return root_is_ignored_; }

 private:
  struct Directory {
    const Directory* above = nullptr;  // the nearest one with patterns
    size_t base = 0;                   // the position in a full path where names below it begin
    std::unique_ptr<File> ours, git;   // null without patterns
    Decision decision;                 // when excluded, so is everything below
    bool HasPatterns() const { return ours != nullptr || git != nullptr; }
  };

  IgnoreRules() = default;

  absl::Status AddIncluded(const std::string& path);
  void LoadAbove(const GitRepository& repository);
  // Returns the directory at `path`, relative to the root. The first call decides about it and
  // reads its rules.
  const Directory& DirectoryOf(absl::string_view path);
  void ReadRules(const std::string& directory, const std::string& shown, Directory& into);
  std::unique_ptr<File> ReadFile(const std::string& path, const std::string& shown, bool follow);
  Decision DecideIn(const Directory& parent, absl::string_view path, bool is_directory);
  // Returns the decision of the patterns about full_, from `directory` upwards; kNone when none
  // matches.
  Decision Match(const Directory* directory, bool is_directory) const;
  // True when a .gpuctlignore brings full_, a file, back by name.
  bool IsNamed(const Directory* directory) const;
  bool IsIncluded(absl::string_view path) const;     // it or a directory above it
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
  // Keyed by the path relative to the root; "" is the root.
  absl::flat_hash_map<std::string, std::unique_ptr<Directory>> directories_;
  std::string last_path_;  // of the directory of the last question
  const Directory* last_ = nullptr;
  std::string full_;  // prefix_ and the path of the current question
  std::vector<std::string> notes_;
};

// Returns the reason for people: `.gitignore:3: data/`, `.git stays home`; "" for kNone.
std::string DescribeDecision(const IgnoreRules::Decision& decision);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_IGNORE_IGNORE_RULES_H_
