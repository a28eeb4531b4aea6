#include "client/runs/pulled_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/bounded_json.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "nlohmann/json.hpp"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kAsidePrefix[] = ".gpuctl-removed-";
constexpr int64_t kMaxRecordBytes = int64_t{1} << 30;

const char* KindWord(PulledItem::Kind kind) {
  switch (kind) {
    case PulledItem::Kind::kTrainer:
      return "trainer";
    case PulledItem::Kind::kForeign:
      return "foreign";
    case PulledItem::Kind::kFiles:
      break;
  }
  return "files";
}

// Escapes a path, which is bytes, for JSON, which is UTF-8.
std::string ToText(const std::string& path) { return absl::CHexEscape(path); }

std::optional<std::string> FromText(const Json& object, const char* key) {
  const auto found = object.find(key);
  std::string path;
  if (found == object.end() || !found->is_string() ||
      !absl::CUnescape(found->get<std::string>(), &path)) {
    return std::nullopt;
  }
  return path;
}

int64_t Number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

std::optional<PulledItem> ParseItem(const Json& json) {
  PulledItem item;
  const auto kind = json.find("kind");
  const std::optional<std::string> path = FromText(json, "path");
  if (kind == json.end() || !kind->is_string() || !path.has_value()) return std::nullopt;
  if (*kind == "trainer") item.kind = PulledItem::Kind::kTrainer;
  if (*kind == "foreign") item.kind = PulledItem::Kind::kForeign;
  item.path = *path;
  item.from = FromText(json, "from").value_or("");
  item.step = Number(json, "step");
  item.time_ms = Number(json, "time_ms");
  item.node_modified_ms = Number(json, "node_modified_ms");
  const auto ours = json.find("ours");
  item.ours = ours != json.end() && ours->is_boolean() && ours->get<bool>();
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array()) return item;
  for (const Json& entry : *files) {
    const std::optional<std::string> name =
        entry.is_object() ? FromText(entry, "path") : std::nullopt;
    const auto sha256 = name.has_value() ? entry.find("sha256") : entry.end();
    if (sha256 == entry.end() || !sha256->is_string()) return std::nullopt;
    item.files.push_back({*name, Number(entry, "size"), sha256->get<std::string>(),
                          Number(entry, "modified_ns"), Number(entry, "node_modified_ms")});
  }
  return item;
}

Json ToJson(const PulledItem& item) {
  Json json;
  json["kind"] = KindWord(item.kind);
  json["path"] = ToText(item.path);
  json["from"] = ToText(item.from);
  json["step"] = item.step;
  json["time_ms"] = item.time_ms;
  json["node_modified_ms"] = item.node_modified_ms;
  json["ours"] = item.ours;
  json["files"] = Json::array();
  for (const PulledFile& file : item.files) {
    json["files"].push_back({{"path", ToText(file.path)},
                             {"size", file.size},
                             {"sha256", file.sha256},
                             {"modified_ns", file.modified_ns}});
    if (file.node_modified_ms != 0) {
      json["files"].back()["node_modified_ms"] = file.node_modified_ms;
    }
  }
  return json;
}

// Counts the files (not directories) below `dir`; -1 when it cannot be read.
int64_t CountFiles(const std::string& dir) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
  if (!names.ok()) return -1;
  int64_t count = 0;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(dir, name);
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0) return -1;
    const int64_t below = S_ISDIR(info.st_mode) ? CountFiles(path) : S_ISREG(info.st_mode);
    if (below < 0) return -1;
    count += below;
  }
  return count;
}

// Drops from `items` all that later items replace. Goes from the last item to the first.
void DropReplaced(std::vector<PulledItem>& items) {
  std::set<std::string> files;
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    std::vector<PulledFile> kept;
    for (PulledFile& file : item->files) {
      if (files.insert(PulledPath(*item, file)).second) kept.push_back(std::move(file));
    }
    item->files = std::move(kept);
  }
  items.erase(std::remove_if(items.begin(), items.end(),
                             [](const PulledItem& item) { return item.files.empty(); }),
              items.end());
}

}  // namespace

std::string PulledPath(const PulledItem& item, const PulledFile& file) {
  return file.path.empty() ? item.path : JoinPath(item.path, file.path);
}

int64_t PulledTime(const struct stat& info) {
#if defined(__APPLE__)
  return info.st_mtimespec.tv_sec * int64_t{1'000'000'000} + info.st_mtimespec.tv_nsec;
#else
  return info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
#endif
}

PulledItem DescribePulled(const std::string& path, const Manifest& manifest, bool is_file) {
  PulledItem item;
  item.path = path;
  for (const gpuctl::v1::FileEntry& entry : manifest) {
    if (entry.kind() != gpuctl::v1::FileEntry::KIND_FILE) continue;
    PulledFile file;
    if (!is_file) file.path = entry.path();
    struct stat info {};
    if (lstat(PulledPath(item, file).c_str(), &info) != 0) continue;
    file.size = entry.size();
    file.sha256 = absl::BytesToHexString(entry.sha256());
    file.modified_ns = PulledTime(info);
    item.files.push_back(std::move(file));
  }
  return item;
}

bool IsUntouched(const PulledItem& item) {
  return std::all_of(item.files.begin(), item.files.end(), [&](const PulledFile& file) {
    struct stat info {};
    return lstat(PulledPath(item, file).c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
           info.st_size == file.size && PulledTime(info) == file.modified_ns;
  });
}

bool IsUntouchedAndAlone(const PulledItem& item) {
  if (!IsUntouched(item)) return false;
  struct stat info {};
  // The user may have moved the directory away and left a symlink to it.
  if (lstat(item.path.c_str(), &info) != 0 || S_ISLNK(info.st_mode)) return false;
  return !S_ISDIR(info.st_mode) || CountFiles(item.path) == static_cast<int64_t>(item.files.size());
}

absl::StatusOr<std::string> MoveAside(const std::string& path) {
  const std::string aside = JoinPath(DirName(path), absl::StrCat(kAsidePrefix, NewRunId()));
  if (file_ops::Rename(path, aside) != 0) {
    return ErrnoStatus(errno, absl::StrCat("move away ", path));
  }
  return aside;
}

absl::Status RemoveAsides(const std::string& dir) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(dir));
  for (const std::string& name : names) {
    if (absl::StartsWith(name, kAsidePrefix)) RETURN_IF_ERROR(RemoveTree(JoinPath(dir, name)));
  }
  return absl::OkStatus();
}

PulledRecord::PulledRecord(const std::string& run_dir)
    : path_(JoinPath(run_dir, "pulled.jsonl")), home_path_(JoinPath(run_dir, "all-home")) {}

absl::Status PulledRecord::NoteAllHome(int64_t now_ms) {
  RETURN_IF_ERROR(MakeDirectories(std::string(DirName(home_path_))));
  return WriteFileAtomic(home_path_, absl::StrCat(now_ms));
}

bool PulledRecord::HasCheckpoint() const {
  const absl::StatusOr<std::vector<PulledItem>> items = Read();
  return items.ok() && std::any_of(items->begin(), items->end(), [](const PulledItem& item) {
           return item.kind != PulledItem::Kind::kFiles && PathExists(item.path);
         });
}

int64_t PulledRecord::AllHomeMs() const {
  int64_t time_ms = 0;
  const absl::StatusOr<std::string> text = ReadFileToString(home_path_, 64);
  return text.ok() && absl::SimpleAtoi(*text, &time_ms) ? time_ms : 0;
}

absl::Status PulledRecord::Append(const PulledItem& item) {
  return AppendLine(ToJson(item).dump());
}

absl::Status PulledRecord::AppendRemoved(const std::string& path, int64_t time_ms) {
  Json json;
  json["kind"] = "removed";
  json["path"] = ToText(path);
  json["time_ms"] = time_ms;
  return AppendLine(json.dump());
}

absl::Status PulledRecord::AppendLine(std::string line) {
  RETURN_IF_ERROR(MakeDirectories(DirName(path_)));
  const bool is_new = !PathExists(path_);
  const UniqueFd fd(file_ops::Open(path_, O_WRONLY | O_APPEND | O_CREAT));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path_));
  // The lock is for one write; closing the descriptor ends it.
  while (flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, absl::StrCat("lock ", path_));
  }
  // The newline before it ends a line that a crash left incomplete; readers skip empty lines.
  line = absl::StrCat("\n", line, "\n");
  RETURN_IF_ERROR(WriteAll(fd.get(), line, path_));
  if (file_ops::DataSync(fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", path_));
  return is_new ? SyncDirectory(DirName(path_)) : absl::OkStatus();
}

absl::StatusOr<std::vector<PulledItem>> PulledRecord::Read() const {
  ASSIGN_OR_RETURN(All all, ReadAll());
  return std::move(all.there);
}

absl::StatusOr<PulledRecord::All> PulledRecord::ReadAll() const {
  const absl::StatusOr<std::string> text = ReadFileToString(path_, kMaxRecordBytes);
  if (absl::IsNotFound(text.status())) return All();
  if (!text.ok()) return text.status();
  All all;
  std::vector<PulledItem>& items = all.there;
  const auto forget = [&items](const std::string& path) {
    items.erase(std::remove_if(items.begin(), items.end(),
                               [&](const PulledItem& item) {
                                 return item.path == path && item.kind != PulledItem::Kind::kFiles;
                               }),
                items.end());
  };
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const Json json = ParseBoundedOrderedJson(line, {.bytes = size_t{kMaxRecordBytes}, .depth = 8});
    if (!json.is_object()) continue;
    std::optional<PulledItem> item = ParseItem(json);
    if (!item.has_value()) continue;
    if (json["kind"] == "removed") {
      std::copy_if(items.begin(), items.end(), std::back_inserter(all.removed),
                   [&](const PulledItem& other) {
                     return other.path == item->path && other.kind != PulledItem::Kind::kFiles;
                   });
    }
    if (item->kind != PulledItem::Kind::kFiles || json["kind"] == "removed") forget(item->path);
    if (json["kind"] != "removed") items.push_back(*std::move(item));
  }
  DropReplaced(items);
  return all;
}

}  // namespace gpuctl
