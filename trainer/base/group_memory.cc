#include "trainer/base/group_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

namespace gpuctl::trainer {
namespace {

// The names of a version's files, and of the numbers in its memory.stat.
struct Version {
  const char* limit;
  const char* used;
  const char* active_file;
  const char* inactive_file;
  const char* mapped;
  const char* dirty;
  const char* writeback;
};
constexpr Version kSecond = {"memory.max",  "memory.current", "active_file",   "inactive_file",
                             "file_mapped", "file_dirty",     "file_writeback"};
constexpr Version kFirst = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file",
                            "total_inactive_file",   "total_mapped_file",     "total_dirty",
                            "total_writeback"};

// A group of the process, and the directory at which its hierarchy ends.
struct Place {
  const Version* version;
  std::string directory;
  std::string top;
};

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

bool Lists(const std::string& names, const std::string& name) {
  const std::vector<std::string> all = Split(names, ',');
  return std::find(all.begin(), all.end(), name) != all.end();
}

// Returns the path of the process's group in one hierarchy, or nothing.
std::optional<std::string> PathOfGroup(const std::string& process, const Version& version) {
  std::ifstream file(process + "/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_it = &version == &kSecond ? controllers.empty() : Lists(controllers, "memory");
    if (is_it) return line.substr(second + 1);
  }
  return std::nullopt;
}

// Returns the directory of the group `path` below a mount that shows the hierarchy from `root` on.
std::string DirectoryOf(const std::string& mount, const std::string& root,
                        const std::string& path) {
  const std::string above = root == "/" ? "" : root;
  const bool below = path.compare(0, above.size(), above) == 0 &&
                     (path.size() == above.size() || path[above.size()] == '/');
  // Of a group outside of what is mounted, the mount's own is the nearest.
  std::string directory = mount + (below ? path.substr(above.size()) : "");
  while (directory.size() > mount.size() && directory.back() == '/') directory.pop_back();
  return directory;
}

std::vector<Place> FindPlaces(const std::string& process) {
  std::vector<Place> places;
  std::ifstream file(process + "/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // 36 35 98:0 ROOT MOUNT options… - TYPE source super-options
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const std::vector<std::string> front = Split(line.substr(0, dash), ' ');
    const std::vector<std::string> back = Split(line.substr(dash + 3), ' ');
    if (front.size() < 5 || back.size() < 3) continue;
    const Version* const version = back[0] == "cgroup2"                              ? &kSecond
                                   : back[0] == "cgroup" && Lists(back[2], "memory") ? &kFirst
                                                                                     : nullptr;
    if (version == nullptr) continue;
    const std::optional<std::string> path = PathOfGroup(process, *version);
    if (path) places.push_back({version, DirectoryOf(front[4], front[3], *path), front[4]});
  }
  return places;
}

// Returns -1 for what is no number, such as "max".
int64_t ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t number = -1;
  file >> number;
  return file ? number : -1;
}

// Returns what the group has of files, is not mapped by a program and need not be written first.
int64_t Droppable(const std::string& directory, const Version& version) {
  std::ifstream file(directory + "/memory.stat");
  int64_t bytes = 0, number = 0;
  for (std::string key; file >> key >> number;) {
    if (key == version.active_file || key == version.inactive_file) bytes += number;
    if (key == version.mapped || key == version.dirty || key == version.writeback) bytes -= number;
  }
  return std::max<int64_t>(0, bytes);
}

std::optional<int64_t> LeftInGroup(const std::string& directory, const Version& version) {
  const int64_t limit = ReadNumber(directory + "/" + version.limit);
  const int64_t used = ReadNumber(directory + "/" + version.used);
  if (limit < 0 || used < 0) return std::nullopt;
  const int64_t kept = std::max<int64_t>(0, used - Droppable(directory, version));
  return std::max<int64_t>(0, limit - kept);
}

}  // namespace

std::optional<int64_t> AvailableInGroups(const std::string& process) {
  std::optional<int64_t> available;
  for (const Place& place : FindPlaces(process)) {
    std::string directory = place.directory;
    for (;;) {
      const std::optional<int64_t> left = LeftInGroup(directory, *place.version);
      if (left) available = available ? std::min(*available, *left) : left;
      if (directory.size() <= place.top.size()) break;
      directory.resize(std::max(directory.rfind('/'), place.top.size()));
    }
  }
  return available;
}

}  // namespace gpuctl::trainer
