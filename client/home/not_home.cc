#include "client/home/not_home.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/base/quantity.h"
#include "common/base/path_pattern.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;

constexpr size_t kNamed = 3;
constexpr absl::string_view kBesideCheckpoints = "ckpt/";

bool IsSame(const PulledItem& item, const CheckpointInfo& checkpoint) {
  return item.kind != PulledItem::Kind::kFiles && item.from == checkpoint.path() &&
         item.node_modified_ms == checkpoint.modified_ms();
}

bool IsHome(const CheckpointInfo& checkpoint, const PulledRecord::All& pulled) {
  return std::any_of(pulled.there.begin(), pulled.there.end(),
                     [&](const PulledItem& item) {
                       return IsSame(item, checkpoint) && !item.files.empty() && IsUntouched(item);
                     }) ||
         std::any_of(pulled.removed.begin(), pulled.removed.end(),
                     [&](const PulledItem& item) { return IsSame(item, checkpoint); });
}

// A file of work/, or beside the checkpoints, that is home.
struct CopyAtHome {
  int64_t size = 0;
  int64_t node_modified_ms = 0;  // 0: not known
  bool after_end = false;        // brought when the job had ended
};

// Returns them by their paths in the job's directory.
std::map<std::string, CopyAtHome> CopiesAtHome(const PulledRecord::All& pulled, int64_t ended_ms) {
  std::map<std::string, CopyAtHome> home;
  for (const PulledItem& item : pulled.there) {
    if (item.kind != PulledItem::Kind::kFiles) continue;
    for (const PulledFile& file : item.files) {
      PulledItem one = item;
      one.files = {file};
      if (!IsUntouched(one)) continue;
      home[JoinPath(item.from, file.path)] = {file.size, file.node_modified_ms,
                                              item.time_ms >= ended_ms};
    }
  }
  return home;
}

// True when the node's file is the one at home: nothing has written it since it was brought.
bool IsHome(const gpuctl::v1::Artifact& file, const std::map<std::string, CopyAtHome>& home) {
  const auto found = home.find(file.path());
  if (found == home.end() || found->second.size != file.size()) return false;
  return found->second.after_end || (found->second.node_modified_ms > 0 &&
                                     found->second.node_modified_ms == file.modified_ms());
}

// True when patterns of files brought all bytes of the checkpoint after the job's end.
bool CameAsFiles(const CheckpointInfo& checkpoint, const std::map<std::string, CopyAtHome>& home) {
  int64_t bytes = 0;
  for (auto at = home.lower_bound(checkpoint.path()); at != home.end(); ++at) {
    if (!absl::StartsWith(at->first, checkpoint.path())) break;
    if (at->second.after_end && IsPartOf(at->first, checkpoint)) bytes += at->second.size;
  }
  return bytes > 0 && bytes == checkpoint.size();
}

// True when a file in a checkpoint's directory needs no count of its own: its checkpoint is counted
// as missing, or was brought and removed again, or the copy at home has it.
bool IsCounted(const gpuctl::v1::Artifact& file, const CheckpointInfo& checkpoint,
               const PulledRecord::All& pulled, const std::map<std::string, CopyAtHome>& home) {
  if (!IsPartOf(file.path(), checkpoint)) return false;
  if (!IsHome(checkpoint, pulled) && CameAsFiles(checkpoint, home)) return false;
  if (!IsHome(checkpoint, pulled)) return true;
  const auto same = [&](const PulledItem& item) { return IsSame(item, checkpoint); };
  if (std::none_of(pulled.there.begin(), pulled.there.end(), same)) return true;
  absl::string_view below = file.path();
  below.remove_prefix(std::min(below.size(), checkpoint.path().size() + 1));
  return std::any_of(pulled.there.begin(), pulled.there.end(), [&](const PulledItem& item) {
    return same(item) &&
           std::any_of(item.files.begin(), item.files.end(), [&](const PulledFile& copy) {
             return copy.path == below && copy.size == file.size();
           });
  });
}

// Returns "2 checkpoints and 3 files (1.20 GB)".
std::string CountMissing(int64_t checkpoints, absl::string_view checkpoint, int64_t files,
                         absl::string_view file, int64_t bytes) {
  const auto count = [](int64_t number, absl::string_view what) {
    return absl::StrCat(number, " ", what, number == 1 ? "" : "s");
  };
  std::string text;
  if (checkpoints > 0) text = count(checkpoints, checkpoint);
  if (files > 0) absl::StrAppend(&text, text.empty() ? "" : " and ", count(files, file));
  return absl::StrCat(text, " (", FormatBytes(bytes), ")");
}

}  // namespace

bool IsPartOf(absl::string_view path, const CheckpointInfo& checkpoint) {
  return path == checkpoint.path() || absl::StartsWith(path, absl::StrCat(checkpoint.path(), "/"));
}

// True when the run's patterns name the path, relative to the job's directory. A pattern of
// checkpoints also names what is below it: a file there that belongs to no complete checkpoint may
// be all that there is.
bool IsNamed(absl::string_view path, const RunRow& row) {
  if (!absl::ConsumePrefix(&path, "work/")) return false;
  const auto any_matches = [](const std::vector<std::string>& patterns, const std::string& text) {
    return std::any_of(patterns.begin(), patterns.end(), [&text](const std::string& pattern) {
      return MatchesPattern(pattern, text);
    });
  };
  if (any_matches(row.artifact_patterns, std::string(path))) return true;
  for (size_t end = path.find('/'); end != path.npos; end = path.find('/', end + 1)) {
    if (any_matches(row.checkpoint_patterns, std::string(path.substr(0, end)))) return true;
  }
  return any_matches(row.checkpoint_patterns, std::string(path));
}

std::vector<std::string> ResultPatterns(const RunRow& row) {
  std::vector<std::string> patterns = row.checkpoint_patterns;
  patterns.insert(patterns.end(), row.artifact_patterns.begin(), row.artifact_patterns.end());
  return patterns;
}

Missing FindMissing(const gpuctl::v1::RemoveJobReply& left,
                    const gpuctl::v1::ListArtifactsReply& listed, const PulledRecord::All& pulled,
                    int64_t ended_ms) {
  Missing missing;
  const std::map<std::string, CopyAtHome> home = CopiesAtHome(pulled, ended_ms);
  for (const CheckpointInfo& checkpoint : listed.checkpoints()) {
    if (IsHome(checkpoint, pulled) || CameAsFiles(checkpoint, home)) continue;
    ++missing.checkpoints;
    missing.bytes += checkpoint.size();
    missing.items.push_back({NotHome::Kind::kCheckpoint, checkpoint.path(), checkpoint.size()});
  }
  // Name the newest first, because it matters most.
  std::reverse(missing.items.begin(), missing.items.end());
  if (!missing.items.empty()) {
    missing.items[0].newest =
        missing.items[0].path == listed.checkpoints(listed.checkpoints_size() - 1).path();
  }
  int64_t named_bytes = 0;
  for (const gpuctl::v1::Artifact& file : left.left()) {
    named_bytes += file.size();
    const bool counted = std::any_of(listed.checkpoints().begin(), listed.checkpoints().end(),
                                     [&](const CheckpointInfo& checkpoint) {
                                       return IsCounted(file, checkpoint, pulled, home);
                                     });
    if (counted || IsHome(file, home)) continue;
    ++missing.files;
    missing.bytes += file.size();
    missing.items.push_back({NotHome::Kind::kFile, file.path(), file.size()});
  }
  // One can be on two pages.
  const std::set<std::string> unreached(listed.unreached().begin(), listed.unreached().end());
  for (const std::string& path : unreached) {
    const bool named = std::any_of(left.left().begin(), left.left().end(),
                                   [&](const auto& file) { return file.path() == path; });
    if (named) continue;
    ++missing.files;
    missing.items.push_back({NotHome::Kind::kFile, path, 0});
  }
  // Files beyond the named ones are unknown here, so they count as missing.
  missing.files += left.left_count() - left.left_size();
  missing.bytes += left.left_bytes() - named_bytes;
  return missing;
}

Missing SurelyWanted(const Missing& missing, const RunRow& row) {
  Missing wanted;
  for (const NotHome& item : missing.items) {
    const bool named = IsNamed(item.path, row);
    const bool file = item.kind == NotHome::Kind::kFile &&
                      (named || absl::StartsWith(item.path, kBesideCheckpoints));
    if (!file && !item.newest) continue;
    ++(item.newest ? wanted.checkpoints : wanted.files);
    wanted.bytes += item.bytes;
    wanted.items.push_back(item);
  }
  return wanted;
}

std::string DescribeMissing(const Missing& missing) {
  std::string text =
      CountMissing(missing.checkpoints, "checkpoint", missing.files, "file", missing.bytes);
  for (size_t i = 0; i < std::min(kNamed, missing.items.size()); ++i) {
    absl::StrAppend(&text, i == 0 ? ": " : ", ", missing.items[i].path);
  }
  if (missing.checkpoints + missing.files > static_cast<int64_t>(kNamed)) {
    absl::StrAppend(&text, ", …");
  }
  return text;
}

std::string DescribeOthers(const Missing& missing, const Missing& wanted) {
  const int64_t checkpoints = missing.checkpoints - wanted.checkpoints;
  const int64_t files = missing.files - wanted.files;
  if (checkpoints + files <= 0) return "";
  std::string text = CountMissing(checkpoints, "older checkpoint", files, "other file",
                                  missing.bytes - wanted.bytes);
  std::vector<std::string> named;
  for (const NotHome& item : missing.items) {
    const bool other = std::none_of(wanted.items.begin(), wanted.items.end(),
                                    [&](const NotHome& one) { return one.path == item.path; });
    if (other && item.kind == NotHome::Kind::kFile) named.push_back(item.path);
  }
  if (files > static_cast<int64_t>(kNamed)) named.resize(std::min(kNamed, named.size()));
  if (named.empty()) return text;
  return absl::StrCat(text, ": ", absl::StrJoin(named, ", "),
                      files > static_cast<int64_t>(named.size()) ? ", …" : "");
}

std::string HowToBring(const std::string& run_name, const Missing& missing) {
  std::vector<std::string> ways;
  if (missing.checkpoints > 0) {
    const bool newest_alone =
        missing.checkpoints == 1 && !missing.items.empty() && missing.items[0].newest;
    ways.push_back(newest_alone
                       ? absl::StrCat("gpuctl pull ", run_name, " brings the newest checkpoint")
                       : absl::StrCat("gpuctl pull ", run_name, " --watch brings all checkpoints"));
  }
  const auto beside =
      std::count_if(missing.items.begin(), missing.items.end(), [](const NotHome& item) {
        return item.kind == NotHome::Kind::kFile && absl::StartsWith(item.path, kBesideCheckpoints);
      });
  if (beside > 0) {
    ways.push_back(
        absl::StrCat("gpuctl pull ", run_name, " brings the files beside the checkpoints"));
  }
  if (missing.files > beside) {
    ways.push_back(
        absl::StrCat("gpuctl pull ", run_name, " '**' brings all files of the work directory"));
  }
  return absl::StrJoin(ways, ", ");
}

}  // namespace gpuctl
