#include "client/verbs/changed_files.h"

#include <cstddef>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/terminal/shown_name.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kHeader = "diff --git ";
constexpr size_t kShownCommit = 12;

// Returns the path in what stands behind "diff --git ": "a/PATH b/PATH", each in quotes or not.
// gpuctl asks git for no renames, so both are the same.
std::string PathOf(absl::string_view names) {
  const bool quoted = absl::StartsWith(names, "\"");
  absl::string_view first = names.substr(0, names.size() / 2);
  const absl::string_view mark = quoted ? "\"a/" : "a/";
  if (!absl::ConsumePrefix(&first, mark)) return std::string(names);
  return absl::StrCat(quoted ? "\"" : "", first);
}

// Says why the record of one run does not name all its files; "" when it does.
std::string WhyNotAll(const SourceRecord& source) {
  if (!source.unknown.empty()) return source.unknown;
  if (!source.diff_missing.empty()) return source.diff_missing;
  if (source.diff_cut) return "a kept diff is cut";
  if (source.left_out_count > 0) {
    return absl::StrCat("no diff has ", FirstFew(source.left_out));
  }
  return "";
}

}  // namespace

std::map<std::string, std::string> PartsOfDiff(absl::string_view diff) {
  std::map<std::string, std::string> parts;
  while (absl::StartsWith(diff, kHeader)) {
    // Lines of files begin with ' ', '+', '-' or '\'.
    const size_t next = diff.find(absl::StrCat("\n", kHeader));
    const absl::string_view part = diff.substr(0, next == diff.npos ? diff.size() : next + 1);
    const absl::string_view head = part.substr(0, part.find('\n'));
    parts[PathOf(head.substr(kHeader.size()))] = std::string(part);
    diff.remove_prefix(part.size());
  }
  return parts;
}

ChangedFiles FilesThatDiffer(const KeptSource& first, const KeptSource& second) {
  ChangedFiles changed;
  for (const KeptSource* const side : {&first, &second}) {
    if (changed.why_not_all.empty()) changed.why_not_all = WhyNotAll(side->source);
  }
  if (!first.source.unknown.empty() || !second.source.unknown.empty()) return changed;
  const std::map<std::string, std::string> before = PartsOfDiff(first.diff);
  std::map<std::string, std::string> after = PartsOfDiff(second.diff);
  std::set<std::string> files;
  for (const auto& [path, part] : before) {
    const auto other = after.find(path);
    if (other == after.end() || other->second != part) files.insert(path);
    if (other != after.end()) after.erase(other);
  }
  for (const auto& [path, part] : after) files.insert(path);
  changed.files.assign(files.begin(), files.end());
  const std::string& old_commit = first.source.commit;
  const std::string& new_commit = second.source.commit;
  if (old_commit != new_commit && !old_commit.empty() && !new_commit.empty()) {
    changed.why_not_all = absl::StrCat(
        "what was committed between them is not kept: git diff --stat ",
        old_commit.substr(0, kShownCommit), " ", new_commit.substr(0, kShownCommit), " shows it");
  } else if (changed.files.empty() && changed.why_not_all.empty()) {
    changed.why_not_all = "git's diff has no difference; git may ignore what differs";
  }
  return changed;
}

}  // namespace gpuctl
