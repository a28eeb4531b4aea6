// What gpuctl keep --status tells.
#ifndef GPUCTL_CLIENT_KEEP_KEEP_STATUS_H_
#define GPUCTL_CLIENT_KEEP_KEEP_STATUS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace gpuctl {

// The file in the state directory that tells when keep was installed; absent: it is not.
inline constexpr char kKeepInstalledFile[] = "keep.installed";

// True when this computer calls gpuctl keep regularly, and keep looks after `state_dir`. False also
// when that cannot be found out.
bool IsKept(const std::string& state_dir);

struct KeepStatus {
  std::string installed_by;  // "launchd", "systemd", "cron"; empty: it is not installed
  std::string where;         // the schedule's file, in words for people
  absl::Duration every;      // its period
  int64_t begun_ms = 0;      // the last pass that ended; 0: none did
  int64_t ended_ms = 0;
  int exit_code = 0;               // of that pass
  bool running = false;            // a pass is at work now
  int64_t at_work_since_ms = 0;    // its begin; 0: not known
  int64_t installed_ms = 0;        // when the schedule was written; 0: not known
  std::vector<std::string> deeds;  // the last lines of keep.log
};

// Fills in what keep.json and keep.log in `state_dir` say.
void ReadLastPass(const std::string& state_dir, KeepStatus& status);

// True when it is installed and no pass has ended for three periods, or one is at work for so long
// that others have been left out for six hours.
bool IsLate(const KeepStatus& status, int64_t now_ms);

std::vector<std::string> StatusText(const KeepStatus& status, int64_t now_ms);
// Returns one object (docs/json.md).
nlohmann::ordered_json StatusJson(const KeepStatus& status, int64_t now_ms);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_KEEP_KEEP_STATUS_H_
