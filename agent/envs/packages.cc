#include "agent/envs/packages.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"

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

}  // namespace gpuctl
