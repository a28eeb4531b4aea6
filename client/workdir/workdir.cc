#include "client/workdir/workdir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/shell_quote.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/tree/hash_cache.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

// Number of files after which counting stops: a refusal is certain, and nobody needs the exact
// number.
constexpr int64_t kMaxCountedFiles = 10 * kMaxUnaskedFiles;

// Decides about each path for the scan, and counts.
class Sieve {
 public:
  explicit Sieve(IgnoreRules rules) : rules_(std::move(rules)) {}

  // True when the path is sent.
  bool Ask(const std::string& path, const struct stat& info) {
    const IgnoreRules::Decision decision = rules_.Decide(path, S_ISDIR(info.st_mode));
    if (decision.excluded) {
      if (decision.reason == IgnoreRules::Reason::kRule) ++left_out_;
      if (decision.reason == IgnoreRules::Reason::kSecret) held_back_.push_back(path);
      return false;
    }
    if (S_ISREG(info.st_mode)) size_.Add(path, info.st_size);
    return true;
  }

  const WorkSize& size() const { return size_; }
  const std::vector<std::string>& notes() const { return rules_.notes(); }
  int64_t left_out() const { return left_out_; }
  std::vector<std::string> TakeHeldBack() {
    std::sort(held_back_.begin(), held_back_.end());
    return std::move(held_back_);
  }

 private:
  IgnoreRules rules_;
  WorkSize size_;
  int64_t left_out_ = 0;
  std::vector<std::string> held_back_;
};

absl::Status RefuseLarge(const std::string& root, const WorkSize& size) {
  const std::string prefix = size.files() > kMaxCountedFiles ? "more than " : "";
  const std::vector<WorkSize::Offender> largest = size.Largest();
  // A plain name can be a line of an ignore file unchanged.
  const bool plain = !largest.empty() && IsPlainWord(largest[0].path);
  const std::string largest_path = plain ? largest[0].path : "PATTERN";
  return WithExitCode(
      WithHint(absl::FailedPreconditionError(absl::StrCat(
                   "send the work directory ", root, ": it is large: ", prefix, size.Describe())),
               absl::StrCat("a line /", largest_path,
                            " in .gpuctlignore leaves that out; -y sends it all, --workdir DIR "
                            "another directory, --no-workdir none")),
      kExitUsage);
}

void Report(const CommandContext& context, const std::string& root, Sieve& sieve,
            const ScanNotes& notes, std::string* told) {
  const std::vector<std::string> held_back = sieve.TakeHeldBack();
  if (told != nullptr) {
    std::string now =
        absl::StrCat(sieve.size().IsLarge(), sieve.size().files() == 0, "\n",
                     absl::StrJoin(sieve.notes(), "\n"), "\n", absl::StrJoin(held_back, "\n"), "\n",
                     absl::StrJoin(notes.grown, "\n"), "\n", absl::StrJoin(notes.set_id, "\n"));
    if (now == *told) return;
    *told = std::move(now);
  }
  PrintWorkdirRemarks(context, sieve.notes(), held_back);
  if (!notes.grown.empty()) context.Warn(DescribeGrown(notes.grown));
  if (!notes.set_id.empty()) context.Warn(DescribeSetId(notes.set_id));
  if (sieve.size().IsLarge()) {
    context.Say(absl::StrCat("the work directory is large: ", sieve.size().Describe()));
  }
  if (sieve.size().files() == 0 && sieve.left_out() > 0) {
    context.Warn(absl::StrCat("no file of ", root,
                              " is sent: rules leave all out; gpuctl sync --explain PATH "
                              "says which"));
  }
}

}  // namespace

absl::StatusOr<std::string> ResolveWorkdir(const std::string& path) {
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved) == nullptr || !IsDirectory(resolved)) {
    return UsageError(absl::StrCat("work directory ", path, ": no such directory"),
                      "it is relative to the run file, or to here without one");
  }
  return std::string(resolved);
}

absl::StatusOr<IgnoreRules> LoadWorkdirRules(const std::string& root,
                                             const std::vector<std::string>& include) {
  absl::StatusOr<IgnoreRules> rules =
      IgnoreRules::Load(root, GitEnvironment::FromProcess(), include);
  if (rules.ok()) return rules;
  return WithExitCode(WithHint(rules.status(), "name files as seen from the work directory"),
                      kExitUsage);
}

void PrintWorkdirRemarks(const CommandContext& context, const std::vector<std::string>& notes,
                         const std::vector<std::string>& held_back) {
  for (const std::string& note : notes) {
    context.Warn(absl::StrCat("ignored rules: ", note));
  }
  if (held_back.empty()) return;
  context.Warn(absl::StrCat("held back, as secrets by their names: ", FirstFew(held_back),
                            "; to send one: --include ", TypedName(held_back[0], "PATH")));
}

absl::StatusOr<Workdir> ScanWorkdir(CommandContext& context, const std::string& path,
                                    const WorkdirOptions& options) {
  Workdir workdir;
  ASSIGN_OR_RETURN(workdir.path, ResolveWorkdir(path));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  RETURN_IF_ERROR(MakeDirectories(paths.hash_cache()));
  const std::string hashes = paths.WorkdirHashes(workdir.path);
  if (options.read_all) unlink(hashes.c_str());
  HashCache cache(hashes, context.clock);
  ASSIGN_OR_RETURN(IgnoreRules rules, LoadWorkdirRules(workdir.path, options.include));
  Sieve sieve(std::move(rules));
  bool refused = false;
  ScanOptions scan;
  scan.skip = [&](const std::string& file, const struct stat& info) {
    if (refused && sieve.size().files() > kMaxCountedFiles) return true;
    if (std::find(options.leave_out.begin(), options.leave_out.end(), file) !=
        options.leave_out.end()) {
      return true;
    }
    const bool sent = sieve.Ask(file, info);
    refused = !options.allow_large && sieve.size().IsLarge();
    // After the refusal the rest is counted, for a useful message, but not read.
    return !sent || (refused && !S_ISDIR(info.st_mode));
  };
  scan.skipped = &workdir.skipped;
  scan.cache = &cache;
  ScanNotes notes;
  scan.notes = &notes;
  scan.leave_changed = options.leave_changed;
  absl::StatusOr<Manifest> manifest = ScanTree(workdir.path, scan);
  if (refused) return RefuseLarge(workdir.path, sieve.size());
  if (absl::IsAborted(manifest.status())) {
    // The same error as for a change during the sending. A watch tries again.
    return WithHint(absl::FailedPreconditionError(manifest.status().message()),
                    "leave these files alone for a moment and try again");
  }
  if (!manifest.ok()) {
    // An unreadable file is an error of files, not of credentials.
    return WithExitCode(
        WithHint(manifest.status(), "make it readable, or leave it out by a line in .gpuctlignore"),
        kExitUsage);
  }
  Report(context, workdir.path, sieve, notes, options.told);
  // Losing the cache costs time only.
  (void)cache.Save();
  workdir.manifest = *std::move(manifest);
  workdir.digest = workdir.manifest.Digest();
  workdir.grown = std::move(notes.grown);
  workdir.changed = std::move(notes.changed);
  workdir.files = sieve.size().files();
  workdir.bytes = sieve.size().bytes();
  return workdir;
}

absl::StatusOr<WorkdirListing> ListWorkdir(const std::string& path,
                                           const std::vector<std::string>& include) {
  WorkdirListing listing;
  ASSIGN_OR_RETURN(listing.path, ResolveWorkdir(path));
  ASSIGN_OR_RETURN(IgnoreRules rules, LoadWorkdirRules(listing.path, include));
  Sieve sieve(std::move(rules));
  ScanOptions scan;
  scan.skip = [&](const std::string& file, const struct stat& info) {
    const bool sent = sieve.Ask(file, info);
    if (sent && S_ISREG(info.st_mode)) listing.files.push_back({file, info.st_size, false});
    if (sent && S_ISLNK(info.st_mode)) listing.files.push_back({file, 0, true});
    // The scan enters directories only, and reads no file.
    return !sent || !S_ISDIR(info.st_mode);
  };
  if (const auto scanned = ScanTree(listing.path, scan); !scanned.ok()) {
    return WithExitCode(scanned.status(), kExitUsage);
  }
  std::sort(listing.files.begin(), listing.files.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  listing.size = sieve.size();
  listing.left_out = sieve.left_out();
  listing.held_back = sieve.TakeHeldBack();
  listing.notes = sieve.notes();
  return listing;
}

}  // namespace gpuctl
