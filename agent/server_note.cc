#include "agent/server_note.h"

#include <limits.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "agent/base/processes.h"
#include "agent/bundle/bundle.h"
#include "common/base/api_level.h"
#include "common/base/bounded_json.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr int64_t kMostNoteBytes = 8 << 10;

// Two seconds in the unit of ProcessId. An emulator calculates a process's own start time, so that
// it differs a little from what others see.
int64_t StartTimeSlack() {
#if defined(__linux__)
  return 2 * sysconf(_SC_CLK_TCK);
#else
  return 2'000'000;
#endif
}

struct Note {
  ProcessId process;
  int32_t level = 0;
};

std::optional<Note> ReadNote(const RootPaths& paths) {
  const absl::StatusOr<std::string> text = ReadFileToString(paths.server_note, kMostNoteBytes);
  if (!text.ok()) return std::nullopt;
  const nlohmann::json json = ParseBoundedJson(*text);
  if (!json.is_object()) return std::nullopt;
  for (const char* field : {"pid", "start_time", "api_level"}) {
    if (!json.contains(field) || !json[field].is_number_integer()) return std::nullopt;
  }
  Note note;
  note.process.pid = json["pid"].get<pid_t>();
  note.process.start_time_ticks = json["start_time"].get<int64_t>();
  note.level = json["api_level"].get<int32_t>();
  return note;
}

bool IsAbout(const Note& note, pid_t pid) {
  // The server is in another process namespace, or the system does not tell who listens.
  if (pid == 0) return true;
  if (note.process.pid != pid) return false;
  const int64_t started = IdentityOf(pid).start_time_ticks;
  return std::abs(started - note.process.start_time_ticks) <= StartTimeSlack();
}

// Returns the level that the directory of a running program says. Where programs are emulated, the
// program is the emulator and its directory says nothing.
int32_t LevelOfProgram(pid_t pid) {
  char program[PATH_MAX];
  const ssize_t length =
      readlink(absl::StrCat("/proc/", pid, "/exe").c_str(), program, sizeof(program));
  if (length <= 0) return 1;
  return BundleApiLevel(DirName(absl::string_view(program, static_cast<size_t>(length))));
}

}  // namespace

absl::Status WriteServerNote(const RootPaths& paths, const std::string& bundle_dir) {
  const nlohmann::ordered_json json = {{"pid", getpid()},
                                       {"start_time", IdentityOf(getpid()).start_time_ticks},
                                       {"api_level", kApiLevel},
                                       {"bundle", bundle_dir}};
  return WriteFileAtomic(paths.server_note, absl::StrCat(json.dump(), "\n"));
}

ProcessId ServerOfNote(const RootPaths& paths) {
  const std::optional<Note> note = ReadNote(paths);
  return note.has_value() ? note->process : ProcessId{};
}

int32_t LevelOfServer(const RootPaths& paths, pid_t pid) {
  const std::optional<Note> note = ReadNote(paths);
  if (note.has_value() && IsAbout(*note, pid)) return note->level;
  return LevelOfProgram(pid);
}

}  // namespace gpuctl
