#include "client/trainer/trainer_kit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/run_program.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/copy_file.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/sha256.h"
#include "common/job/job_layout.h"
#include "common/tree/hash_cache.h"
#include "common/tree/manifest.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

constexpr char kProgram[] = "gpuctl-trainer";
constexpr int64_t kMaxFileBytes = int64_t{16} << 30;
constexpr int64_t kMaxProgramBytes = int64_t{1} << 30;
// Libraries of the driver's user-space part, which fits only its own kernel module.
constexpr std::array<absl::string_view, 4> kDriverLibraries = {"libcuda.so", "libnvidia-",
                                                               "libnvcuvid.so", "libcudadebugger"};
// Families of libraries that open one another by name.
constexpr std::array<absl::string_view, 8> kOpenedLater = {"libcudnn",
                                                           "libnvrtc",
                                                           "libcublas",
                                                           "libcaffe2_nvrtc",
                                                           "libnvfuser",
                                                           "libnvToolsExt",
                                                           "libtorch_cuda_linalg",
                                                           "libnvJitLink"};

template <size_t N>
bool StartsWithAny(absl::string_view name, const std::array<absl::string_view, N>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [name](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
}

// Reads a number of an x86-64 or arm64 Linux ELF file, which is little-endian.
template <typename T>
bool ReadAt(absl::string_view bytes, uint64_t offset, T& value) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  memcpy(&value, bytes.data() + offset, sizeof(T));
  return true;
}

absl::Status Unusable(const std::string& cause) {
  return WithExitCode(
      WithHint(absl::FailedPreconditionError(
                   absl::StrCat("send the built-in trainer to another machine: ", cause)),
               "gpuctl debug trainer-kit DIR on a Linux machine that has the trainer makes one for "
               "share/gpuctl/trainer-kit beside bin; or use run: with a script"),
      kExitUsage);
}

absl::StatusOr<std::string> RealPath(const std::string& path) {
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved) == nullptr) {
    return Unusable(std::string(ErrnoStatus(errno, absl::StrCat("find ", path)).message()));
  }
  return std::string(resolved);
}

// Collects files by their path in the kit. The loader takes the first file of a name, so the first
// one stays.
class KitMaker {
 public:
  absl::Status Add(const std::string& path, const std::string& source) {
    ASSIGN_OR_RETURN(const std::string real, RealPath(source));
    files_.emplace(path, real);
    return absl::OkStatus();
  }
  bool Has(const std::string& path) const { return files_.count(path) > 0; }

  absl::StatusOr<TrainerKit> Finish(std::string shown, std::string loader) {
    TrainerKit kit;
    kit.shown = std::move(shown);
    kit.loader = std::move(loader);
    for (const auto& [path, source] : files_) {
      struct stat info {};
      if (stat(source.c_str(), &info) != 0 || !S_ISREG(info.st_mode) ||
          info.st_size > kMaxFileBytes || access(source.c_str(), R_OK) != 0) {
        return Unusable(absl::StrCat(source, " cannot be read"));
      }
      kit.bytes += info.st_size;
      const std::string name = BaseName(path);
      kit.has_cuda = kit.has_cuda || absl::StartsWith(name, "libtorch_cuda") ||
                     absl::StartsWith(name, "libc10_cuda");
      kit.files.push_back({path, source});
    }
    std::sort(kit.files.begin(), kit.files.end(),
              [](const KitFile& a, const KitFile& b) { return PathLess(a.path, b.path); });
    return kit;
  }

 private:
  std::map<std::string, std::string> files_;
};

absl::StatusOr<std::string> LoaderOf(const std::string& program) {
  const absl::StatusOr<std::string> bytes = ReadFileToString(program, kMaxProgramBytes);
  if (!bytes.ok()) return Unusable(std::string(bytes.status().message()));
  absl::StatusOr<std::string> loader = InterpreterOf(*bytes);
  if (!loader.ok()) return Unusable(absl::StrCat(program, ": ", loader.status().message()));
  return loader;
}

absl::StatusOr<std::vector<NeededLibrary>> AskLoader(const std::string& loader,
                                                     const std::string& file) {
  // The mask excludes libraries for this processor model, which would not run on another one.
  absl::StatusOr<std::string> list =
      OutputOf({loader, "--glibc-hwcaps-mask", "none", "--list", file}, "", /*quiet=*/true);
  if (!list.ok()) list = OutputOf({loader, "--list", file}, "", /*quiet=*/true);  // before 2.33
  if (!list.ok()) return Unusable(absl::StrCat(loader, " cannot list the libraries of ", file));
  absl::StatusOr<std::vector<NeededLibrary>> libraries = ParseLibraryList(*list);
  if (!libraries.ok()) return Unusable(absl::StrCat(file, " ", libraries.status().message()));
  return libraries;
}

// Adds parts of libc that the node's NVIDIA driver needs. Those of the node would not fit the kit's
// libc.
void AddPartsOfLibc(const std::string& directory, KitMaker& maker) {
  for (const char* name : {"libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"}) {
    const std::string path = JoinPath(directory, name);
    // An unusual libc may lack one.
    if (PathExists(path)) (void)maker.Add(absl::StrCat("lib/", name), path);
  }
}

absl::StatusOr<TrainerKit> KitOfProgram(const std::string& program) {
  ASSIGN_OR_RETURN(const std::string loader, LoaderOf(program));
  KitMaker maker;
  RETURN_IF_ERROR(maker.Add(kProgram, program));
  const std::string loader_path = absl::StrCat("lib/", BaseName(loader));
  RETURN_IF_ERROR(maker.Add(loader_path, loader));
  std::vector<std::string> unlisted = {program};
  std::set<std::string> directories;
  while (!unlisted.empty()) {
    const std::string file = unlisted.back();
    unlisted.pop_back();
    ASSIGN_OR_RETURN(const std::vector<NeededLibrary> libraries, AskLoader(loader, file));
    for (const NeededLibrary& library : libraries) {
      const std::string path = absl::StrCat("lib/", library.name);
      if (maker.Has(path)) continue;
      RETURN_IF_ERROR(maker.Add(path, library.path));
      const std::string directory = DirName(library.path);
      if (absl::StartsWith(library.name, "libc.so.")) AddPartsOfLibc(directory, maker);
      if (!IsOpenedLater(library.name, library.name) || !directories.insert(directory).second) {
        continue;
      }
      absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
      if (!names.ok()) continue;
      for (const std::string& name : *names) {
        const std::string neighbour = absl::StrCat("lib/", name);
        if (!IsOpenedLater(library.name, name) || maker.Has(neighbour)) continue;
        RETURN_IF_ERROR(maker.Add(neighbour, JoinPath(directory, name)));
        unlisted.push_back(JoinPath(directory, name));
      }
    }
  }
  return maker.Finish(program, loader_path);
}

absl::StatusOr<TrainerKit> KitOfDirectory(const std::string& directory) {
  const std::string program = JoinPath(directory, kProgram);
  ASSIGN_OR_RETURN(const std::string loader, LoaderOf(program));
  KitMaker maker;
  RETURN_IF_ERROR(maker.Add(kProgram, program));
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(JoinPath(directory, "lib"));
  if (!names.ok()) return Unusable(std::string(names.status().message()));
  for (const std::string& name : *names) {
    const std::string path = absl::StrCat("lib/", name);
    RETURN_IF_ERROR(maker.Add(path, JoinPath(directory, path)));
  }
  const std::string loader_path = absl::StrCat("lib/", BaseName(loader));
  if (!maker.Has(loader_path)) {
    return Unusable(absl::StrCat(directory, " lacks ", loader_path));
  }
  return maker.Finish(directory, loader_path);
}

}  // namespace

absl::StatusOr<std::string> InterpreterOf(absl::string_view bytes) {
  constexpr uint32_t kInterpreter = 3;  // PT_INTERP
  constexpr uint64_t kSizeOfEntry = 56;
  const absl::Status other = absl::InvalidArgumentError("no dynamically linked program for Linux");
  constexpr absl::string_view kMagic("\177ELF\002\001", 6);  // 64 bits, little-endian
  if (!absl::StartsWith(bytes, kMagic)) return other;
  uint64_t table = 0;
  uint16_t entry_size = 0;
  uint16_t entries = 0;
  if (!ReadAt(bytes, 32, table) || !ReadAt(bytes, 54, entry_size) || !ReadAt(bytes, 56, entries) ||
      entry_size < kSizeOfEntry || table > bytes.size()) {
    return other;
  }
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t entry = table + i * entry_size;
    uint32_t type = 0;
    uint64_t offset = 0;
    uint64_t size = 0;
    if (!ReadAt(bytes, entry, type) || !ReadAt(bytes, entry + 8, offset) ||
        !ReadAt(bytes, entry + 32, size)) {
      return other;
    }
    if (type != kInterpreter) continue;
    if (offset > bytes.size() || size > bytes.size() - offset) return other;
    const absl::string_view name = bytes.substr(offset, size);
    std::string path(name.substr(0, name.find('\0')));
    if (!absl::StartsWith(path, "/")) return other;
    return path;
  }
  return other;
}

absl::StatusOr<std::vector<NeededLibrary>> ParseLibraryList(absl::string_view text) {
  std::vector<NeededLibrary> libraries;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    const size_t address = line.rfind(" (0x");
    const size_t arrow = line.find(" => ");
    if (arrow == absl::string_view::npos) {
      const absl::string_view path = line.substr(0, address);
      const std::string name = BaseName(path);
      // The kernel's library has no file; the loader is known from the program.
      if (!absl::StrContains(path, '/') || absl::StartsWith(name, "ld-")) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("needs a library at just this place: ", path));
    }
    const std::string name(absl::StripAsciiWhitespace(line.substr(0, arrow)));
    if (absl::StartsWith(BaseName(name), "ld-") || StartsWithAny(name, kDriverLibraries)) continue;
    const absl::string_view path =
        line.substr(arrow + 4, address == absl::string_view::npos ? absl::string_view::npos
                                                                  : address - arrow - 4);
    if (!absl::StartsWith(path, "/")) {
      return absl::FailedPreconditionError(absl::StrCat("needs ", name, ", which is not here"));
    }
    if (absl::StrContains(name, '/')) {
      return absl::FailedPreconditionError(
          absl::StrCat("needs a library at just this place: ", name));
    }
    libraries.push_back({name, std::string(path)});
  }
  return libraries;
}

bool IsOpenedLater(absl::string_view library, absl::string_view neighbour) {
  const bool of_cuda = absl::StartsWith(library, "libtorch_cuda") ||
                       absl::StartsWith(library, "libc10_cuda") ||
                       StartsWithAny(library, kOpenedLater);
  if (library == neighbour) return of_cuda;
  return of_cuda && StartsWithAny(neighbour, kOpenedLater) && absl::StrContains(neighbour, ".so");
}

absl::StatusOr<TrainerKit> FindTrainerKit(const BundlePaths& paths) {
  if (!paths.trainer_kit.empty()) return KitOfDirectory(paths.trainer_kit);
  if (paths.trainer.empty()) return Unusable("no gpuctl-trainer beside gpuctl");
  return KitOfProgram(paths.trainer);
}

std::string DescribeTrainerKit(const TrainerKit& kit) {
  return absl::StrCat(FormatBytes(kit.bytes), ", ", kit.files.size(), " files, ",
                      kit.has_cuda ? "with CUDA" : "for the CPU only");
}

absl::StatusOr<DataTree> ScanTrainerKit(CommandContext& context, const TrainerKit& kit) {
  absl::StatusOr<DataTree> tree = ScanGatheredFiles(
      context, kit.files, kTrainerKitPath,
      absl::StrCat("kit-", Sha256HexOf(kit.shown).substr(0, 24)), FileModes::kExecutable);
  return tree.ok() ? std::move(tree) : Annotate(tree.status(), "read the trainer");
}

absl::Status WriteTrainerKit(const TrainerKit& kit, const std::string& directory) {
  if (PathExists(directory)) {
    return UsageError(absl::StrCat("make a trainer kit: ", directory, " exists"), "name a new one");
  }
  RETURN_IF_ERROR(MakeDirectories(JoinPath(directory, "lib"), 0755));
  for (const KitFile& file : kit.files) {
    const bool program = file.path == kProgram || file.path == kit.loader;
    const std::string path = JoinPath(directory, file.path);
    const UniqueFd from(file_ops::Open(file.source, O_RDONLY));
    if (!from.valid()) return ErrnoStatus(errno, absl::StrCat("open ", file.source));
    const UniqueFd to(file_ops::Open(path, O_WRONLY | O_CREAT | O_EXCL, program ? 0755 : 0644));
    if (!to.valid()) return ErrnoStatus(errno, absl::StrCat("create ", path));
    RETURN_IF_ERROR(CopyFileContent(from.get(), to.get(), path).status());
  }
  return absl::OkStatus();
}

std::string TrainerDevice(absl::string_view trainer_json) {
  const nlohmann::json json = nlohmann::json::parse(trainer_json, nullptr, false);
  if (!json.is_object() || !json.contains("train") || !json["train"].is_object()) return "auto";
  const auto device = json["train"].find("device");
  if (device == json["train"].end() || !device->is_string()) return "auto";
  return device->get<std::string>();
}

absl::Status CheckTrainerUsesGpus(const TrainerKit& kit, absl::string_view trainer_json,
                                  absl::string_view place) {
  if (kit.has_cuda || TrainerDevice(trainer_json) == "cpu") return absl::OkStatus();
  return WithExitCode(
      WithHint(absl::FailedPreconditionError(
                   absl::StrCat("train on ", place,
                                ": this gpuctl-trainer was built without CUDA and would leave its "
                                "GPUs idle")),
               "build the trainer with a LibTorch that has CUDA; or say that the CPU is meant: "
               "--trainer train.device=cpu"),
      kExitUsage);
}

}  // namespace gpuctl
