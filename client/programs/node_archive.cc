#include "client/programs/node_archive.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/programs/node_manifest.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr size_t kBlock = 512;
constexpr char kRoots[] = "roots.pem";

absl::Status BrokenArchive(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("read the archive of node programs: ", what));
}

// Returns the text of a field that ends at its first NUL or at its end.
absl::string_view FieldOf(absl::string_view header, size_t at, size_t size) {
  const absl::string_view field = header.substr(at, size);
  return field.substr(0, std::min(field.find('\0'), field.size()));
}

// Reads an octal number; nothing for anything else. Numbers in base 256 are for files of more than
// 8 GiB, which no archive of ours has.
std::optional<int64_t> NumberOf(absl::string_view field) {
  int64_t number = 0;
  bool digits = false;
  for (const char c : field) {
    if (c == ' ' && !digits) continue;
    if (c == ' ') break;
    if (c < '0' || c > '7' || number > (int64_t{1} << 40)) return std::nullopt;
    number = number * 8 + (c - '0');
    digits = true;
  }
  return number;
}

struct Header {
  std::string path;
  char type = '0';
  size_t size = 0;
  int64_t modified_s = 0;
};

absl::StatusOr<Header> ReadHeader(absl::string_view block) {
  constexpr size_t kSum = 148, kSumSize = 8;
  int64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool of_sum = i >= kSum && i < kSum + kSumSize;
    sum += of_sum ? ' ' : static_cast<unsigned char>(block[i]);
  }
  const std::optional<int64_t> said = NumberOf(FieldOf(block, kSum, kSumSize));
  const std::optional<int64_t> size = NumberOf(FieldOf(block, 124, 12));
  if (said != sum || !size.has_value())
    return BrokenArchive("it is no tar archive, or a damaged one");
  Header header;
  header.type = block[156] == '\0' ? '0' : block[156];
  header.size = static_cast<size_t>(*size);
  header.modified_s = NumberOf(FieldOf(block, 136, 12)).value_or(0);
  header.path = std::string(FieldOf(block, 0, 100));
  const absl::string_view prefix = FieldOf(block, 345, 155);
  if (absl::StartsWith(block.substr(257), "ustar") && !prefix.empty()) {
    header.path = absl::StrCat(prefix, "/", header.path);
  }
  return header;
}

// Returns the name of the program, or roots.pem, that a path of the archive stands for; "" for any
// other path.
std::string NameOf(absl::string_view path, NodePlatform platform) {
  static const auto& names = *new std::set<std::string>{kNodeProgramNames[0], kNodeProgramNames[1],
                                                        kNodeProgramNames[2], kRoots};
  std::vector<absl::string_view> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  if (parts.empty() || names.count(std::string(parts.back())) == 0) return "";
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const absl::string_view folder = parts[i];
    if (folder != "." && folder != "node" && folder != PlatformName(platform) &&
        !absl::StartsWith(folder, "gpuctl-node-")) {
      return "";
    }
  }
  return std::string(parts.back());
}

absl::Status CheckWhole(const std::map<std::string, ArchiveFile>& files, NodePlatform platform) {
  for (const char* name : kNodeProgramNames) {
    const auto file = files.find(name);
    if (file == files.end()) {
      if (absl::string_view(name) == "gpuctl-cuda-check") continue;
      return BrokenArchive(
          absl::StrCat("there is no ", name, " for ", PlatformName(platform), " in it"));
    }
    const absl::StatusOr<NodePlatform> made_for =
        PlatformOfProgram(absl::string_view(file->second.content).substr(0, kProgramHeaderBytes));
    if (!made_for.ok()) return BrokenArchive(absl::StrCat(name, ": ", made_for.status().message()));
    if (*made_for != platform) {
      return BrokenArchive(absl::StrCat(name, " in it is a program for ", PlatformName(*made_for),
                                        ", not for ", PlatformName(platform)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::map<std::string, ArchiveFile>> ReadNodeArchive(absl::string_view tar,
                                                                   NodePlatform platform) {
  std::map<std::string, ArchiveFile> files;
  size_t at = 0;
  bool ended = false;
  while (at + kBlock <= tar.size()) {
    const absl::string_view block = tar.substr(at, kBlock);
    at += kBlock;
    if (block.find_first_not_of('\0') == block.npos) {
      ended = true;
      break;
    }
    ASSIGN_OR_RETURN(const Header header, ReadHeader(block));
    if (header.size > tar.size() - at) return BrokenArchive("it is cut");
    const std::string name = NameOf(header.path, platform);
    if (!name.empty()) {
      if (header.type != '0') return BrokenArchive(absl::StrCat(name, " in it is no plain file"));
      ArchiveFile file{std::string(tar.substr(at, header.size)), header.modified_s};
      if (!files.emplace(name, std::move(file)).second) {
        return BrokenArchive(absl::StrCat(name, " is in it twice"));
      }
    }
    at += std::min((header.size + kBlock - 1) / kBlock * kBlock, tar.size() - at);
  }
  if (!ended) return BrokenArchive("it is no tar archive, or a cut one");
  RETURN_IF_ERROR(CheckWhole(files, platform));
  return files;
}

}  // namespace gpuctl
