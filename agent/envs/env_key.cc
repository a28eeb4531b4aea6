#include "agent/envs/env_key.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/envs/setup_words.h"
#include "common/base/path_pattern.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/sha256.h"

namespace gpuctl {
namespace {

constexpr size_t kMostEntries = 10'000;
constexpr int64_t kMostFileBytes = int64_t{1} << 30;
constexpr int64_t kEndBytes = 1 << 20;
constexpr int64_t kMostTextBytes = 1 << 20;

// Files of the work directory that package managers read without being told.
constexpr const char* kFoundByThemselves[] = {
    "uv.lock",          "pyproject.toml", "requirements*.txt", "requirements/*.txt",
    "constraints*.txt", "setup.py",       "setup.cfg",         "poetry.lock",
    "pdm.lock",         "Pipfile",        "Pipfile.lock",      "environment.yml",
    "environment.yaml", "conda-lock.yml", ".python-version",   "uv.toml",
    "pixi.toml",        "pixi.lock",      "pylock*.toml"};
// Variables that change what package managers do.
constexpr const char* kPrefixes[] = {"UV_", "PIP_", "CONDA_", "MAMBA_", "POETRY_", "PIXI_"};
// These say where gpuctl or the user keeps things, and change no package.
constexpr const char* kPlaces[] = {"UV_CACHE_DIR", "PIP_CACHE_DIR", "CONDA_PKGS_DIRS",
                                   "UV_PROJECT_ENVIRONMENT"};

std::string RealPath(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? "" : resolved;
}

bool IsBelow(const std::string& path, const std::string& directory) {
  return path == directory || absl::StartsWith(path, absl::StrCat(directory, "/"));
}

absl::Status ReadRange(int fd, int64_t from, int64_t size, Sha256& hash) {
  std::string buffer(size_t{1} << 20, '\0');
  while (size > 0) {
    const size_t most = static_cast<size_t>(std::min<int64_t>(size, 1 << 20));
    const ssize_t got = pread(fd, buffer.data(), most, from);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read");
    if (got == 0) return absl::OkStatus();
    hash.Update({buffer.data(), static_cast<size_t>(got)});
    from += got;
    size -= got;
  }
  return absl::OkStatus();
}

// Collects what counts, by name; a name counts once.
class Inputs {
 public:
  explicit Inputs(const std::string& work) : work_(RealPath(work)) {}

  void Put(const std::string& name, std::string value) { parts_[name] = std::move(value); }

  // Adds the file or directory at `path`, relative to the work directory, if there is one.
  void AddPath(const std::string& path) {
    if (work_.empty() || !IsSafeRelativePath(path) || !seen_.insert(path).second) return;
    struct stat info {};
    const std::string full = JoinPath(work_, path);
    if (lstat(full.c_str(), &info) != 0) {
      if (errno != ENOENT && errno != ENOTDIR) PutPath(path, absl::StrCat("unreadable:", errno));
      return;
    }
    const std::string real = RealPath(full);
    if (!IsBelow(real, work_) || real == work_) {
      char target[PATH_MAX];
      const ssize_t length = readlink(full.c_str(), target, sizeof(target));
      PutPath(path, length < 0
                        ? std::string("outside")
                        : absl::StrCat("link:", std::string(target, static_cast<size_t>(length))));
      return;
    }
    if (stat(real.c_str(), &info) != 0) return PutPath(path, absl::StrCat("unreadable:", errno));
    if (S_ISDIR(info.st_mode)) return AddDirectory(path, real);
    if (!S_ISREG(info.st_mode)) return PutPath(path, "no file");
    PutPath(path, HashFile(real));
    if (absl::EndsWith(path, ".txt") || absl::EndsWith(path, ".in")) AddRequirements(path, real);
  }

  // Adds all paths that match; a pattern whose first component is one reads the whole directory.
  void AddPattern(const std::string& pattern) {
    const std::string fixed = FixedDirectory(pattern);
    std::vector<std::string> found;
    size_t entries = 0;
    List(fixed, pattern, 0, entries, found);
    for (const std::string& path : found) AddPath(path);
  }

  // Adds the header of a script: its lines from "# /// script" to "# ///".
  void AddScriptHeader(const std::string& path) {
    if (work_.empty() || !IsSafeRelativePath(path)) return;
    const std::string real = RealPath(JoinPath(work_, path));
    if (!IsBelow(real, work_)) return;
    const std::string header = ScriptHeader(ReadText(real));
    if (!header.empty()) PutPath(absl::StrCat(path, " (header)"), Sha256HexOf(header));
    AddPath(absl::StrCat(path, ".lock"));  // of `uv lock --script`
  }

  std::string Digest() const {
    Sha256 hash;
    for (const auto& [name, value] : parts_) {
      hash.Update(absl::StrCat(name.size(), ":", name, value.size(), ":", value));
    }
    std::string digest;
    for (const char c : hash.Finish()) {
      absl::StrAppend(&digest, absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
    return digest;
  }
  std::vector<std::string> TakePaths() { return {paths_.begin(), paths_.end()}; }

 private:
  void PutPath(const std::string& path, std::string value) {
    paths_.insert(path);
    Put(absl::StrCat("path ", path), std::move(value));
  }

  static std::string HashFile(const std::string& real) {
    // O_NONBLOCK: the file may have become a FIFO.
    const UniqueFd fd(open(real.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!fd.valid() || fstat(fd.get(), &info) != 0) return absl::StrCat("unreadable:", errno);
    if (!S_ISREG(info.st_mode)) return "no file";
    Sha256 hash;
    absl::Status read;
    if (info.st_size <= kMostFileBytes) {
      read = ReadRange(fd.get(), 0, info.st_size, hash);
    } else {
      read = ReadRange(fd.get(), 0, kEndBytes, hash);
      read.Update(ReadRange(fd.get(), info.st_size - kEndBytes, kEndBytes, hash));
    }
    if (!read.ok()) return "unreadable";
    return absl::StrCat(info.st_size, ":", hash.Finish());
  }

  static std::string ReadText(const std::string& real) {
    struct stat info {};
    if (stat(real.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
    return ReadFileToString(real, kMostTextBytes).value_or("");
  }

  void AddDirectory(const std::string& path, const std::string& real) {
    Sha256 hash;
    size_t entries = 0;
    HashDirectory(real, "", 0, entries, hash);
    PutPath(path, absl::StrCat("directory:", hash.Finish()));
  }

  // Symlinks in a directory count by their text, and are not followed.
  void HashDirectory(const std::string& real, const std::string& prefix, int depth, size_t& entries,
                     Sha256& hash) {
    constexpr int kDeepest = 40;
    const absl::StatusOr<std::vector<std::string>> names = ListDirectory(real);
    if (!names.ok() || depth > kDeepest) return hash.Update("unreadable");
    for (const std::string& name : *names) {
      if (name == ".git" || name == "__pycache__") continue;
      if (++entries > kMostEntries) return;
      const std::string full = JoinPath(real, name);
      const std::string shown = absl::StrCat(prefix, "/", name);
      hash.Update(absl::StrCat(shown.size(), ":", shown));
      struct stat info {};
      if (lstat(full.c_str(), &info) != 0) continue;
      if (S_ISDIR(info.st_mode)) {
        HashDirectory(full, shown, depth + 1, entries, hash);
      } else if (S_ISREG(info.st_mode)) {
        hash.Update(HashFile(full));
      } else if (char target[PATH_MAX]; S_ISLNK(info.st_mode)) {
        const ssize_t length = readlink(full.c_str(), target, sizeof(target));
        if (length > 0) hash.Update({target, static_cast<size_t>(length)});
      }
    }
  }

  void List(const std::string& dir, const std::string& pattern, int depth, size_t& entries,
            std::vector<std::string>& found) {
    constexpr int kDeepest = 8;
    const absl::StatusOr<std::vector<std::string>> names = ListDirectory(JoinPath(work_, dir));
    if (!names.ok() || depth > kDeepest) return;
    for (const std::string& name : *names) {
      if (++entries > kMostEntries) return;
      const std::string path = dir.empty() ? name : JoinPath(dir, name);
      if (MatchesPattern(pattern, path)) found.push_back(path);
      struct stat info {};
      if (MayMatchBelow(pattern, path) && lstat(JoinPath(work_, path).c_str(), &info) == 0 &&
          S_ISDIR(info.st_mode)) {
        List(path, pattern, depth + 1, entries, found);
      }
    }
  }

  // Adds the files that a requirements file names, relative to itself.
  void AddRequirements(const std::string& path, const std::string& real) {
    for (const std::string& named : FilesOfRequirements(ReadText(real))) {
      const absl::string_view parent = ParentPath(path);
      AddPath(parent.empty() ? named : JoinPath(parent, named));
    }
  }

  const std::string work_;
  std::map<std::string, std::string> parts_;
  std::set<std::string> paths_;
  std::set<std::string> seen_;
};

// Returns the program that `name` means in PATH, without symlinks; "" when there is none.
std::string FindProgram(const Environment& environment, const std::string& name) {
  const auto path = environment.find("PATH");
  if (path == environment.end()) return "";
  for (const absl::string_view dir : absl::StrSplit(path->second, ':', absl::SkipEmpty())) {
    const std::string full = JoinPath(dir, name);
    if (access(full.c_str(), X_OK) == 0 && !IsDirectory(full)) return RealPath(full);
  }
  return "";
}

void AddSystem(const Environment& environment, Inputs& inputs) {
  utsname name{};
  if (uname(&name) == 0) inputs.Put("system", absl::StrCat(name.sysname, " ", name.machine));
  const absl::StatusOr<std::string> release = ReadFileToString("/etc/os-release", 64 << 10);
  for (const absl::string_view line :
       absl::StrSplit(release.ok() ? *release : "", '\n', absl::SkipEmpty())) {
    for (const char* key : {"ID=", "VERSION_ID="}) {
      if (absl::StartsWith(line, key)) inputs.Put(absl::StrCat("os ", key), std::string(line));
    }
  }
  for (const char* python : {"python3", "python"}) {
    inputs.Put(absl::StrCat("program ", python), FindProgram(environment, python));
  }
}

void AddVariables(const gpuctl::v1::JobSpec& spec, const Environment& environment, Inputs& inputs) {
  const std::set<std::string> named = VariablesOf(spec.setup());
  for (const auto& [name, value] : environment) {
    if (absl::StartsWith(name, "GPUCTL_") ||
        std::find(std::begin(kPlaces), std::end(kPlaces), name) != std::end(kPlaces)) {
      continue;
    }
    const bool of_manager = std::any_of(
        std::begin(kPrefixes), std::end(kPrefixes),
        [&variable = name](const char* prefix) { return absl::StartsWith(variable, prefix); });
    // PATH differs from shell to shell; what it finds counts.
    const bool own = name == "PATH" || name == "HOME" || name == "PWD";
    if (of_manager || (named.contains(name) && !own)) {
      inputs.Put(absl::StrCat("variable ", name), value);
    }
  }
  for (const std::string& secret : spec.secret_names()) {
    if (named.contains(secret)) inputs.Put(absl::StrCat("secret ", secret), "");
  }
}

void AddScripts(const gpuctl::v1::JobSpec& spec, Inputs& inputs) {
  for (const std::string& argument : spec.argv()) {
    for (const SetupWord& word : WordsOf(argument)) {
      if (absl::EndsWith(word.text, ".py")) inputs.AddScriptHeader(word.text);
    }
  }
}

}  // namespace

absl::StatusOr<EnvKey> ComputeEnvKey(const gpuctl::v1::JobSpec& spec, const std::string& work,
                                     const Environment& environment) {
  if (!IsDirectory(work)) {
    return absl::NotFoundError(absl::StrCat("read ", work, ": no such directory"));
  }
  Inputs inputs(work);
  inputs.Put("format", "1");
  inputs.Put("setup", std::string(absl::StripAsciiWhitespace(spec.setup())));
  AddSystem(environment, inputs);
  for (const char* found : kFoundByThemselves) inputs.AddPattern(found);
  for (const SetupWord& word : WordsOf(spec.setup())) {
    if (word.text == ".") {
      inputs.Put("sent tree", spec.manifest_digest());
    } else if (word.after_script_flag) {
      inputs.AddScriptHeader(word.text);
    } else if (word.text.find_first_of("*?") != std::string::npos) {
      inputs.AddPattern(word.text);
    } else {
      inputs.AddPath(word.text);
    }
  }
  AddScripts(spec, inputs);
  AddVariables(spec, environment, inputs);
  return EnvKey{inputs.Digest(), inputs.TakePaths()};
}

}  // namespace gpuctl
