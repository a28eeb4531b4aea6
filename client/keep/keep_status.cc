#include "client/keep/keep_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/quantity.h"
#include "client/keep/keep_log.h"
#include "client/keep/keep_schedule.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kShownDeeds = 10;
constexpr int kLatePeriods = 3;
// A resume has an hour, a pull half of one, and there may be several.
constexpr absl::Duration kLongestPass = absl::Hours(6);

int64_t TimeAt(const nlohmann::json& json, const char* name) {
  absl::Time time;
  std::string problem;
  const auto found = json.find(name);
  const bool good = found != json.end() && found->is_string() &&
                    absl::ParseTime(absl::RFC3339_full, found->get<std::string>(), &time, &problem);
  return good ? absl::ToUnixMillis(time) : 0;
}

nlohmann::ordered_json TimeOr(int64_t ms) {
  return ms > 0 ? nlohmann::ordered_json(FormatRfc3339(ms)) : nlohmann::ordered_json();
}

std::string Ago(int64_t ms, int64_t now_ms) {
  return absl::StrCat(HumanDuration(absl::Milliseconds(std::max<int64_t>(0, now_ms - ms))), " ago");
}

}  // namespace

bool IsKept(const std::string& state_dir) {
  // A schedule may look after another state directory.
  if (!PathExists(JoinPath(state_dir, kKeepInstalledFile))) return false;
  const absl::StatusOr<std::optional<KeepSchedule>> schedule = FindKeepSchedule();
  return schedule.ok() && schedule->has_value();
}

void ReadLastPass(const std::string& state_dir, KeepStatus& status) {
  const absl::StatusOr<std::string> text =
      ReadFileToString(JoinPath(state_dir, "keep.json"), kMaxKeepLogBytes);
  const nlohmann::json pass =
      nlohmann::json::parse(text.ok() ? *text : "", nullptr, /*allow_exceptions=*/false);
  if (pass.is_object()) {
    status.begun_ms = TimeAt(pass, "begun");
    status.ended_ms = TimeAt(pass, "ended");
    status.at_work_since_ms = TimeAt(pass, "at_work_since");
    const auto code = pass.find("exit_code");
    if (code != pass.end() && code->is_number_integer()) status.exit_code = code->get<int>();
  }
  const absl::StatusOr<std::string> log =
      ReadFileToString(JoinPath(state_dir, "keep.log"), 2 * kMaxKeepLogBytes);
  if (!log.ok()) return;
  std::vector<std::string> lines = absl::StrSplit(*log, '\n', absl::SkipEmpty());
  const size_t from = lines.size() - std::min(lines.size(), kShownDeeds);
  status.deeds.assign(lines.begin() + static_cast<std::ptrdiff_t>(from), lines.end());
}

bool IsLate(const KeepStatus& status, int64_t now_ms) {
  if (status.installed_by.empty() || status.every <= absl::ZeroDuration()) return false;
  const absl::Duration allowed = kLatePeriods * status.every;
  const auto is_past = [now_ms](int64_t since_ms, absl::Duration patience) {
    return since_ms > 0 && absl::Milliseconds(now_ms - since_ms) > patience;
  };
  if (status.running) return is_past(status.at_work_since_ms, std::max(allowed, kLongestPass));
  return is_past(std::max(status.ended_ms, status.installed_ms), allowed);
}

std::vector<std::string> StatusText(const KeepStatus& status, int64_t now_ms) {
  std::vector<std::string> lines;
  if (status.installed_by.empty()) {
    lines.push_back("not installed: it runs only when you call it; gpuctl keep --install");
  } else {
    lines.push_back(absl::StrCat("installed: ", status.installed_by, " calls it every ",
                                 HumanDuration(status.every), " (", status.where, ")"));
  }
  lines.push_back(status.ended_ms == 0
                      ? "last pass: none has ended yet"
                      : absl::StrCat("last pass: ended ", Ago(status.ended_ms, now_ms), ", after ",
                                     HumanDuration(absl::Milliseconds(
                                         std::max<int64_t>(0, status.ended_ms - status.begun_ms))),
                                     ", with exit code ", status.exit_code));
  if (status.running) {
    lines.push_back(status.at_work_since_ms > 0 ? absl::StrCat("a pass is at work, it began ",
                                                               Ago(status.at_work_since_ms, now_ms))
                                                : "a pass is at work now");
  }
  if (IsLate(status, now_ms)) {
    lines.push_back(absl::StrCat(
        "LATE: ",
        status.running ? "this pass keeps the others waiting"
        : status.ended_ms > 0
            ? absl::StrCat("it last ran ", Ago(status.ended_ms, now_ms))
            : absl::StrCat("it was installed ", Ago(status.installed_ms, now_ms), " and never ran"),
        "; it is expected every ", HumanDuration(status.every)));
  }
  if (!status.deeds.empty()) lines.push_back("last deeds:");
  for (const std::string& deed : status.deeds) lines.push_back(absl::StrCat("  ", deed));
  return lines;
}

nlohmann::ordered_json StatusJson(const KeepStatus& status, int64_t now_ms) {
  using Json = nlohmann::ordered_json;
  const bool installed = !status.installed_by.empty();
  return {{"installed", installed ? Json(status.installed_by) : Json()},
          {"every_s", installed ? Json(absl::ToInt64Seconds(status.every)) : Json()},
          {"last_begin", TimeOr(status.begun_ms)},
          {"last_end", TimeOr(status.ended_ms)},
          {"last_exit_code", status.ended_ms > 0 ? Json(status.exit_code) : Json()},
          {"running", status.running},
          {"at_work_since", TimeOr(status.running ? status.at_work_since_ms : 0)},
          {"late", IsLate(status, now_ms)},
          {"deeds", status.deeds}};
}

}  // namespace gpuctl
