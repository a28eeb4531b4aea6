#include "agent/envs/packages.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/base/platform.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"

namespace gpuctl {
namespace {

constexpr size_t kMostPackages = 5000;
constexpr size_t kLongestPackage = 200;

constexpr size_t kHeadBytes = 8 << 10;

// Returns the beginning of a regular file; "" when it cannot be read.
std::string ReadHead(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string head(kHeadBytes, '\0');
  const ssize_t got = fd.valid() ? read(fd.get(), head.data(), head.size()) : -1;
  head.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return head;
}

// Returns the value behind `key` at the beginning of a line.
std::string ValueOf(absl::string_view text, absl::string_view key) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, key)) {
      return std::string(absl::StripAsciiWhitespace(line.substr(key.size())));
    }
  }
  return "";
}

// Returns "NAME==VERSION"; "" for what is no distribution.
std::string Describe(const std::string& site, const std::string& entry) {
  absl::string_view text = entry;
  const bool wheel = absl::ConsumeSuffix(&text, ".dist-info");
  if (!wheel && !absl::ConsumeSuffix(&text, ".egg-info")) return "";
  // "numpy-1.26.4"; an egg's has "-py3.11" behind it. The name in it has no "-".
  const size_t dash = text.find('-');
  absl::string_view version = dash == text.npos ? "" : text.substr(dash + 1);
  version = version.substr(0, version.find("-py"));
  const std::string head =
      ReadHead(JoinPath(JoinPath(site, entry), wheel ? "METADATA" : "PKG-INFO"));
  std::string name = ValueOf(head, "Name:");
  if (name.empty()) name = std::string(text.substr(0, dash));
  std::string told = ValueOf(head, "Version:");
  if (told.empty()) told = std::string(version);
  const std::string line = absl::StrCat(name, "==", told);
  const bool plain = absl::c_all_of(
      line, [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
  return plain && !name.empty() && !told.empty() && line.size() <= kLongestPackage ? line : "";
}

// Returns those of the directories that a Python of version `minor` ("3.11") looks in; all of them
// when there are none, or without a version.
std::vector<std::string> OfVersion(std::vector<std::string> sites, const std::string& minor) {
  std::vector<std::string> chosen;
  for (const std::string& site : sites) {
    const std::string python = BaseName(DirName(site));
    if (python == absl::StrCat("python", minor) || python == "python3") chosen.push_back(site);
  }
  return minor.empty() || chosen.empty() ? sites : chosen;
}

// Returns where an installed Python looks, one of version `minor` below `prefix`.
std::vector<std::string> SitesOfInstalled(const std::string& prefix, const std::string& minor) {
  std::vector<std::string> found;
  // Debian's /usr/bin/python3 looks below /usr/local, too.
  for (const std::string& place : {JoinPath(prefix, "local"), prefix}) {
    for (std::string& site : OfVersion(SitePackagesOf(place), minor)) {
      found.push_back(std::move(site));
    }
  }
  return found;
}

// Returns the virtual environment from which a process was started as `called`, with the directory
// `cwd` and PATH `path`; "" for none.
std::string VenvOf(const std::string& called, const std::string& cwd, absl::string_view path) {
  std::vector<std::string> places;
  if (absl::StrContains(called, '/')) {
    places = {absl::StartsWith(called, "/") ? called : JoinPath(cwd, called)};
  } else {
    for (const absl::string_view dir : absl::StrSplit(path, ':', absl::SkipEmpty())) {
      places.push_back(JoinPath(dir, called));
    }
  }
  for (const std::string& program : places) {
    if (called.empty() || access(program.c_str(), X_OK) != 0) continue;
    const std::string prefix = DirName(DirName(program));
    return PathExists(JoinPath(prefix, "pyvenv.cfg")) ? prefix : "";
  }
  return "";
}

}  // namespace

std::string PythonVersionOf(const std::string& prefix) {
  const std::string config = ReadHead(JoinPath(prefix, "pyvenv.cfg"));
  for (const char* key : {"version =", "version_info ="}) {  // of venv; of uv and virtualenv
    std::string version = ValueOf(config, key);
    // "3.11.7.final.0"
    if (!version.empty()) return version.substr(0, version.find(".final"));
  }
  for (const std::string& site : SitePackagesOf(prefix)) {
    return std::string(absl::StripPrefix(BaseName(DirName(site)), "python"));
  }
  return "";
}

std::vector<std::string> SitePackagesOf(const std::string& prefix) {
  std::vector<std::string> found;
  for (const char* lib : {"lib", "lib64"}) {
    const std::string dir = JoinPath(prefix, lib);
    struct stat info {};
    if (lstat(dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) continue;  // lib64 may be a link
    const absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      if (!absl::StartsWith(name, "python")) continue;
      for (const char* site : {"site-packages", "dist-packages"}) {
        const std::string path = JoinPath(JoinPath(dir, name), site);
        if (IsDirectory(path)) found.push_back(path);
      }
    }
  }
  return found;
}

std::vector<std::string> SitePackagesSeenFrom(const std::string& prefix) {
  std::string minor = PythonVersionOf(prefix);  // "3.11.7" or "3.11"
  const size_t dot = minor.find('.');
  minor = minor.substr(0, dot == minor.npos ? dot : minor.find('.', dot + 1));
  std::vector<std::string> seen = OfVersion(SitePackagesOf(prefix), minor);
  const std::string config = ReadHead(JoinPath(prefix, "pyvenv.cfg"));
  if (absl::AsciiStrToLower(ValueOf(config, "include-system-site-packages =")) != "true") {
    return seen;
  }
  for (std::string& site : SitesOfInstalled(DirName(ValueOf(config, "home =")), minor)) {
    seen.push_back(std::move(site));
  }
  return seen;
}

std::vector<std::string> PackagesIn(const std::vector<std::string>& site_packages) {
  std::map<std::string, std::string> found;  // by the name in lower case
  for (const std::string& site : site_packages) {
    const absl::StatusOr<std::vector<std::string>> names = ListDirectory(site);
    std::map<std::string, std::string> here;
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      std::string line = Describe(site, name);
      if (line.empty()) continue;
      std::string key = absl::AsciiStrToLower(line.substr(0, line.find("==")));
      here.emplace(std::move(key), std::move(line));
    }
    found.merge(here);
  }
  std::vector<std::string> packages;
  for (auto& [name, line] : found) {
    if (packages.size() == kMostPackages) break;
    packages.push_back(std::move(line));
  }
  return packages;
}

std::vector<std::string> PackagesOfProcesses(const std::vector<pid_t>& pids) {
  constexpr size_t kMostProcesses = 200;
  constexpr int64_t kMostMapBytes = 16 << 20;
  std::vector<std::string> searched, sites;
  std::string python;
  const auto add = [](std::vector<std::string>& list, const std::string& one) {
    if (!one.empty() && !absl::c_linear_search(list, one)) list.push_back(one);
  };
  for (size_t i = 0; i < std::min(pids.size(), kMostProcesses); ++i) {
    const std::string process = absl::StrCat("/proc/", pids[i]);
    char exe[PATH_MAX];
    const ssize_t length = readlink(JoinPath(process, "exe").c_str(), exe, sizeof(exe));
    const std::string program(exe, length > 0 ? static_cast<size_t>(length) : 0);
    if (!absl::StartsWith(BaseName(program), "python")) continue;
    // The name by which it was called leads to a virtual environment.
    const auto words = ReadFileToString(JoinPath(process, "cmdline"), 1 << 20);
    const auto environment = ReadFileToString(JoinPath(process, "environ"), kMostMapBytes);
    char cwd[PATH_MAX];
    const ssize_t cwd_length = readlink(JoinPath(process, "cwd").c_str(), cwd, sizeof(cwd));
    absl::string_view path;
    for (absl::string_view entry : absl::StrSplit(environment.ok() ? *environment : "", '\0')) {
      if (absl::ConsumePrefix(&entry, "PATH=")) path = entry;
    }
    const std::string venv =
        VenvOf(words.ok() ? words->substr(0, words->find('\0')) : "",
               std::string(cwd, cwd_length > 0 ? static_cast<size_t>(cwd_length) : 0), path);
    const std::string prefix = venv.empty() ? DirName(DirName(program)) : venv;
    const std::string named(absl::StripPrefix(BaseName(program), "python"));
    if (python.empty()) {
      const bool exact = venv.empty() && absl::StrContains(named, '.');
      python = exact ? named : PythonVersionOf(prefix);
    }
    for (const std::string& site :
         venv.empty() ? SitesOfInstalled(prefix, named) : SitePackagesSeenFrom(venv)) {
      add(searched, site);
    }
    const auto maps = ReadFileToString(JoinPath(process, "maps"), kMostMapBytes);
    for (const absl::string_view line : absl::StrSplit(maps.ok() ? *maps : "", '\n')) {
      for (const absl::string_view name : {"/site-packages/", "/dist-packages/"}) {
        const size_t at = line.find(name), begin = line.find('/');
        if (at != line.npos)
          add(sites, std::string(line.substr(begin, at + name.size() - 1 - begin)));
      }
    }
  }
  for (const std::string& site : sites) add(searched, site);
  std::vector<std::string> packages = PackagesIn(searched);
  if (!python.empty()) packages.insert(packages.begin(), absl::StrCat("python==", python));
  return packages;
}

UniqueFd ListPackagesApart(const std::vector<pid_t>& pids, int attempt) {
  constexpr unsigned kWithinS = 20;
  int fds[2];
  if (pipe(fds) != 0) return UniqueFd();
  UniqueFd read_end(fds[0]), write_end(fds[1]);
  if (fcntl(fds[0], F_SETFD, FD_CLOEXEC) != 0 || fcntl(fds[0], F_SETFL, O_NONBLOCK) != 0) {
    return UniqueFd();
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid < 0 ? UniqueFd() : std::move(read_end);
  dup2(write_end.get(), STDIN_FILENO);
  CloseFrom(STDERR_FILENO + 1);
  signal(SIGALRM, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  alarm(kWithinS);
  if (!DieWithParent(parent)) _exit(1);
  for (const LifecycleEvent& event : PackageEvents(attempt, PackagesOfProcesses(pids))) {
    (void)WriteAll(STDIN_FILENO, FormatLifecycleEvent(event), "news");
  }
  _exit(0);
}

}  // namespace gpuctl
