#include "common/job/checkpoint_layout.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/bounded_json.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "nlohmann/json.hpp"

namespace gpuctl {
namespace {

using Json = nlohmann::json;

// The largest header read, in bytes. A model of 100,000 tensors in one file has 12 MB of header;
// the format allows 100 MB.
constexpr int64_t kMaxSafetensorsHeader = 32 << 20;
constexpr int64_t kMaxJsonBytes = 64 << 20;
constexpr int64_t kZipEndBytes = 22;
constexpr int64_t kMaxZipComment = 0xffff;

LayoutVerdict Torn(std::string why) { return {Wholeness::kTorn, std::move(why)}; }
LayoutVerdict Whole() { return {Wholeness::kWhole, ""}; }

// Returns `size` bytes at `offset`, or nothing when the file is too short or cannot be read.
std::optional<std::string> ReadRange(const std::string& path, int64_t offset, int64_t size) {
  const UniqueFd fd(file_ops::Open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  std::string bytes(static_cast<size_t>(size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(fd.get(), bytes.data() + done, bytes.size() - done,
                              static_cast<off_t>(offset + static_cast<int64_t>(done)));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    done += static_cast<size_t>(got);
  }
  return bytes;
}

uint64_t LittleEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Returns the offset where the last tensor ends, counted from the end of the header.
std::optional<uint64_t> EndOfTensors(const std::string& header) {
  const Json root = ParseBoundedJson(header, {.bytes = size_t{kMaxSafetensorsHeader}, .depth = 16});
  if (!root.is_object()) return std::nullopt;
  uint64_t end = 0;
  for (const auto& [name, tensor] : root.items()) {
    if (name == "__metadata__") continue;
    if (!tensor.is_object()) return std::nullopt;
    const auto offsets = tensor.find("data_offsets");
    if (offsets == tensor.end() || !offsets->is_array() || offsets->size() != 2 ||
        !(*offsets)[1].is_number_unsigned()) {
      return std::nullopt;
    }
    end = std::max(end, (*offsets)[1].get<uint64_t>());
  }
  return end;
}

LayoutVerdict JudgeSafetensors(const std::string& path, int64_t size) {
  constexpr int64_t kLengthBytes = 8;
  const std::optional<std::string> length = ReadRange(path, 0, kLengthBytes);
  if (!length.has_value()) return Torn("it has no header");
  const uint64_t header_size = LittleEndian(*length);
  if (header_size > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    return Torn(absl::StrCat("its header says it has ", header_size, " bytes"));
  }
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(header_size);
  const std::optional<std::string> header =
      ReadRange(path, kLengthBytes, static_cast<int64_t>(header_size));
  if (!header.has_value()) return Torn("it ends within its header");
  const std::optional<uint64_t> end = EndOfTensors(*header);
  if (!end.has_value()) return Torn("its header is none");
  const uint64_t held = static_cast<uint64_t>(std::max<int64_t>(0, size - data_begin));
  if (*end != held) {
    return Torn(absl::StrCat("its header describes ", *end, " bytes of tensors, it holds ", held));
  }
  return Whole();
}

LayoutVerdict JudgeZip(const std::string& path, int64_t size) {
  if (size == 0) return Torn("it is empty");
  const std::optional<std::string> begin = ReadRange(path, 0, std::min<int64_t>(size, 4));
  // Older formats of torch.save do not say how long they are.
  if (begin != "PK\3\4") return {};
  const int64_t tail_size = std::min(size, kZipEndBytes + kMaxZipComment);
  const std::optional<std::string> tail = ReadRange(path, size - tail_size, tail_size);
  if (!tail.has_value()) return Torn("it became shorter");
  if (tail_size < kZipEndBytes) return Torn("its archive has no end");
  for (size_t at = tail->rfind("PK\5\6", static_cast<size_t>(tail_size - kZipEndBytes));
       at != std::string::npos; at = at == 0 ? std::string::npos : tail->rfind("PK\5\6", at - 1)) {
    const uint64_t comment = LittleEndian(absl::string_view(*tail).substr(at + 20, 2));
    if (at + kZipEndBytes + comment == tail->size()) return Whole();
  }
  return Torn("its archive has no end");
}

std::optional<Json> ReadJson(const std::string& path, int64_t size) {
  if (size > kMaxJsonBytes) return std::nullopt;
  const std::optional<std::string> text = ReadRange(path, 0, size);
  if (!text.has_value()) return std::nullopt;
  Json json = ParseBoundedJson(*text, {.bytes = size_t{kMaxJsonBytes}, .depth = 64});
  if (json.is_discarded()) return std::nullopt;
  return json;
}

// One file of several: "model-00002-of-00003.safetensors" is number 2 of 3 of
// "model-*-of-00003.safetensors".
struct Shard {
  std::string series;
  int64_t number = 0;
  int64_t count = 0;
};

std::optional<Shard> ShardOf(absl::string_view path) {
  const size_t of = path.rfind("-of-");
  if (of == path.npos) return std::nullopt;
  const absl::string_view before = path.substr(0, of);
  const absl::string_view after = path.substr(of + 4);
  const size_t dash = before.rfind('-');
  const size_t dot = std::min(after.find('.'), after.size());
  Shard shard;
  if (dash == before.npos || !absl::SimpleAtoi(before.substr(dash + 1), &shard.number) ||
      !absl::SimpleAtoi(after.substr(0, dot), &shard.count) || shard.count < 1 ||
      shard.number < 0 || shard.number > shard.count) {
    return std::nullopt;
  }
  shard.series = absl::StrCat(before.substr(0, dash), "-*-of-", after);
  return shard;
}

// Judges numbered files. Some writers count from 0, others from 1.
LayoutVerdict JudgeShards(const std::vector<LayoutFile>& files) {
  std::map<std::string, std::pair<int64_t, std::set<int64_t>>> series;
  for (const LayoutFile& file : files) {
    const std::optional<Shard> shard = ShardOf(file.path);
    if (!shard.has_value()) continue;
    auto& [count, numbers] = series[shard->series];
    count = shard->count;
    numbers.insert(shard->number);
  }
  for (const auto& [name, counted] : series) {
    const auto& [count, numbers] = counted;
    const int64_t first = numbers.count(0) > 0 ? 0 : 1;
    if (static_cast<int64_t>(numbers.size()) < count || *numbers.rbegin() != first + count - 1) {
      return Torn(absl::StrCat(name, ": ", numbers.size(), " of ", count, " are there"));
    }
  }
  return {};
}

LayoutVerdict JudgeIndex(const std::string& dir, const LayoutFile& index,
                         const std::set<std::string>& names) {
  const std::optional<Json> json = ReadJson(JoinPath(dir, index.path), index.size);
  if (!json.has_value()) return Torn(absl::StrCat(index.path, ": is no JSON"));
  if (!json->is_object()) return {};
  const auto map = json->find("weight_map");
  if (map == json->end() || !map->is_object()) return {};
  const std::string parent = std::string(ParentPath(index.path));
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) return Torn(absl::StrCat(index.path, ": its weight_map is none"));
    const std::string name = file.get<std::string>();
    if (names.count(parent.empty() ? name : JoinPath(parent, name)) == 0) {
      return Torn(absl::StrCat(name, ": is missing, ", index.path, " names it"));
    }
  }
  return Whole();
}

bool IsTrainerDirectory(const std::string& name) {
  const absl::string_view number = absl::StripPrefix(name, "checkpoint-");
  return number.size() < name.size() && !number.empty() &&
         number.find_first_not_of("0123456789") == number.npos;
}

bool IsZipKind(absl::string_view path) {
  for (const char* ending : {".pt", ".pth", ".ckpt", ".bin", ".npz"}) {
    if (absl::EndsWith(path, ending)) return true;
  }
  return false;
}

// Judges by which files are present.
LayoutVerdict JudgeNames(const std::string& dir, const std::vector<LayoutFile>& files,
                         const std::set<std::string>& names) {
  for (const LayoutFile& file : files) {
    const std::string name = BaseName(file.path);
    if (name[0] != '.' && IsTemporaryName(name)) {
      return Torn(absl::StrCat(file.path, ": is not finished"));
    }
    const std::string parent = std::string(ParentPath(file.path));
    const std::string metadata = parent.empty() ? ".metadata" : JoinPath(parent, ".metadata");
    if (absl::EndsWith(name, ".distcp") && names.count(metadata) == 0) {
      return Torn(absl::StrCat(metadata, ": is missing"));
    }
  }
  if (IsTrainerDirectory(BaseName(dir)) && names.count("training_args.bin") > 0 &&
      names.count("trainer_state.json") == 0) {
    return Torn("trainer_state.json: is missing");
  }
  return JudgeShards(files);
}

}  // namespace

bool IsTemporaryName(absl::string_view name) {
  if (absl::StartsWith(name, ".") || absl::EndsWith(name, "~")) return true;
  for (const char* ending : {".temp", ".part", ".partial", ".incomplete"}) {
    if (absl::EndsWith(name, ending)) return true;
  }
  const std::vector<absl::string_view> words = absl::StrSplit(name, absl::ByAnyChar(".-_"));
  return std::find(words.begin(), words.end(), "tmp") != words.end();
}

int64_t StepOfCheckpointName(absl::string_view name, bool is_file) {
  if (is_file && name.rfind('.') != name.npos && name.rfind('.') > 0) {
    name = name.substr(0, name.rfind('.'));
  }
  const size_t last = name.find_last_of("0123456789");
  if (last == name.npos) return -1;
  const size_t before = name.substr(0, last + 1).find_last_not_of("0123456789");
  const size_t first = before == name.npos ? 0 : before + 1;
  int64_t step = -1;
  return absl::SimpleAtoi(name.substr(first, last + 1 - first), &step) ? step : -1;
}

LayoutVerdict JudgeCheckpointFile(const std::string& path, int64_t size) {
  if (absl::EndsWith(path, ".safetensors")) return JudgeSafetensors(path, size);
  if (IsZipKind(path)) return JudgeZip(path, size);
  if (!absl::EndsWith(path, ".json")) return {};
  return ReadJson(path, size).has_value() ? Whole() : Torn("is no JSON");
}

LayoutVerdict JudgeCheckpointDirectory(const std::string& dir,
                                       const std::vector<LayoutFile>& files) {
  if (files.empty()) return Torn("there is no file in it");
  std::set<std::string> names;
  for (const LayoutFile& file : files) names.insert(file.path);
  if (LayoutVerdict verdict = JudgeNames(dir, files, names);
      verdict.wholeness == Wholeness::kTorn) {
    return verdict;
  }
  bool all_whole = true;
  // True when there is a file that writers add last.
  bool marked = false;
  for (const LayoutFile& file : files) {
    const LayoutVerdict verdict = absl::EndsWith(file.path, ".index.json")
                                      ? JudgeIndex(dir, file, names)
                                      : JudgeCheckpointFile(JoinPath(dir, file.path), file.size);
    if (verdict.wholeness == Wholeness::kTorn) {
      return Torn(absl::EndsWith(file.path, ".index.json")
                      ? verdict.why
                      : absl::StrCat(file.path, ": ", verdict.why));
    }
    all_whole = all_whole && verdict.wholeness == Wholeness::kWhole;
    marked = marked || (file.path == "trainer_state.json" && IsTrainerDirectory(BaseName(dir))) ||
             file.path == ".metadata";
  }
  return {all_whole || marked ? Wholeness::kWhole : Wholeness::kUnknown, ""};
}

}  // namespace gpuctl
