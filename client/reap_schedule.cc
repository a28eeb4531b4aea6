#include "client/reap_schedule.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/exit_codes.h"
#include "client/paths.h"
#include "client/program.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace gpuctl {
namespace {

constexpr char kAgent[] = "gpuctl.reap";
constexpr char kCronMark[] = "# gpuctl reap";

std::string XmlText(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// For sh, and in a crontab, where "%" ends the command.
std::string CronWord(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}, {"%", "\\%"}}), "'");
}

std::string SystemdWord(absl::string_view text) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"%", "%%"}, {"$", "$$"}}),
      "\"");
}

absl::StatusOr<std::string> Home() {
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return absl::FailedPreconditionError("$HOME is not set");
  return std::string(home);
}

absl::StatusOr<ReapJob> JobHere(absl::Duration every) {
  if (every < absl::Minutes(1)) {
    return UsageError("--every is less than a minute", "a list of instances has its rate limits");
  }
  ReapJob job;
  job.program = ExecutablePath();
  job.every = every;
  ASSIGN_OR_RETURN(const ClientPaths paths, ClientPaths::FromEnvironment());
  RETURN_IF_ERROR(MakeDirectories(paths.state_dir));
  job.log = JoinPath(paths.state_dir, "reap.log");
  for (const char* name : {"GPUCTL_STATE_DIR", "GPUCTL_CONFIG_DIR", "GPUCTL_CACHE_DIR"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') job.where[name] = value;
  }
  return job;
}

std::string Done(const std::string& how, absl::Duration every) {
  return absl::StrCat("gpuctl reap runs every ", absl::FormatDuration(every), " from now on (", how,
                      "); keys that are only in the environment are not seen there, those of "
                      "gpuctl login are. gpuctl reap --uninstall undoes it");
}

#ifdef __APPLE__
absl::StatusOr<std::string> PlistPath() {
  ASSIGN_OR_RETURN(const std::string home, Home());
  return absl::StrCat(home, "/Library/LaunchAgents/", kAgent, ".plist");
}
std::string LaunchdDomain() { return absl::StrCat("gui/", getuid()); }
#else
constexpr char kUnit[] = "gpuctl-reap";

absl::StatusOr<std::string> UnitDir() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config != '\0') return JoinPath(config, "systemd/user");
  ASSIGN_OR_RETURN(const std::string home, Home());
  return JoinPath(home, ".config/systemd/user");
}

// A user manager that answers; containers and other init systems have none.
bool HasUserManager(const std::string& systemctl) {
  return !systemctl.empty() &&
         OutputOf({systemctl, "--user", "show-environment"}, "", /*quiet=*/true).ok();
}

// The user's crontab with `line` as our only one; "" takes ours out.
absl::Status ChangeCrontab(const std::string& crontab, absl::string_view line) {
  // None yet is an error of crontab's.
  const std::string old = OutputOf({crontab, "-l"}, "", /*quiet=*/true).value_or("");
  const std::string changed = ReplaceCronLine(old, line);
  if (changed == old) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string dir, MakeTempDirectory("gpuctl-crontab-"));
  absl::Status status = WriteFileAtomic(JoinPath(dir, "crontab"), changed);
  if (status.ok()) status = OutputOf({crontab, JoinPath(dir, "crontab")}).status();
  RemoveTree(dir).IgnoreError();
  return status;
}
#endif

}  // namespace

std::string LaunchdPlist(const ReapJob& job) {
  std::string environment;
  for (const auto& [name, value] : job.where) {
    absl::StrAppend(&environment, "    <key>", name, "</key><string>", XmlText(value),
                    "</string>\n");
  }
  return absl::StrCat(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" "
      "\"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n"
      "<plist version=\"1.0\">\n<dict>\n  <key>Label</key><string>",
      kAgent, "</string>\n  <key>ProgramArguments</key>\n  <array>\n    <string>",
      XmlText(job.program),
      "</string>\n    <string>reap</string>\n    <string>-y</string>\n  </array>\n"
      "  <key>EnvironmentVariables</key>\n  <dict>\n",
      environment, "  </dict>\n  <key>StartInterval</key><integer>",
      absl::ToInt64Seconds(job.every), "</integer>\n  <key>RunAtLoad</key><true/>\n",
      "  <key>StandardErrorPath</key><string>", XmlText(job.log), "</string>\n</dict>\n</plist>\n");
}

std::string SystemdService(const ReapJob& job) {
  std::string environment;
  for (const auto& [name, value] : job.where) {
    // "$" stands for itself here.
    absl::StrAppend(&environment, "Environment=",
                    absl::StrReplaceAll(SystemdWord(absl::StrCat(name, "=", value)), {{"$$", "$"}}),
                    "\n");
  }
  return absl::StrCat(
      "[Unit]\nDescription=End rented GPU machines that nobody wants\n\n[Service]\n"
      "Type=oneshot\n",
      environment, "ExecStart=", SystemdWord(job.program), " reap -y\n");
}

std::string SystemdTimer(const ReapJob& job) {
  const int64_t seconds = absl::ToInt64Seconds(job.every);
  return absl::StrCat(
      "[Unit]\nDescription=End rented GPU machines that nobody wants\n\n[Timer]\n"
      "OnActiveSec=1min\nOnUnitActiveSec=",
      seconds, "s\n\n[Install]\nWantedBy=timers.target\n");
}

absl::StatusOr<std::string> CronLine(const ReapJob& job) {
  const int64_t seconds = absl::ToInt64Seconds(job.every);
  const int64_t minutes = seconds / 60;
  std::string when;
  if (seconds % 60 == 0 && minutes > 0 && minutes < 60 && 60 % minutes == 0) {
    when = absl::StrCat("*/", minutes, " * * * *");
  } else if (seconds % 3600 == 0 && minutes > 0 && minutes <= 1440 && 1440 % minutes == 0) {
    when = absl::StrCat("0 */", minutes / 60, " * * *");
  } else {
    return UsageError(absl::StrCat("cron cannot say every ", absl::FormatDuration(job.every)),
                      "--every 10m, or another part of an hour or a day");
  }
  std::string line = when;
  for (const auto& [name, value] : job.where) {
    absl::StrAppend(&line, " ", name, "=", CronWord(value));
  }
  absl::StrAppend(&line, " ", CronWord(job.program), " reap -y 2>>", CronWord(job.log), " ",
                  kCronMark);
  return line;
}

std::string ReplaceCronLine(absl::string_view crontab, absl::string_view line) {
  std::string changed;
  for (const absl::string_view old : absl::StrSplit(crontab, '\n')) {
    if (!absl::EndsWith(old, kCronMark)) absl::StrAppend(&changed, old, "\n");
  }
  // The split made one line more than there were newlines.
  changed.pop_back();
  if (line.empty()) return changed;
  if (!changed.empty() && changed.back() != '\n') changed += '\n';
  return absl::StrCat(changed, line, "\n");
}

#ifdef __APPLE__
absl::StatusOr<std::string> InstallReap(absl::Duration every) {
  ASSIGN_OR_RETURN(const ReapJob job, JobHere(every));
  ASSIGN_OR_RETURN(const std::string path, PlistPath());
  RETURN_IF_ERROR(MakeDirectories(DirName(path), 0755));
  RETURN_IF_ERROR(WriteFileAtomic(path, LaunchdPlist(job), 0644));
  // One of before would keep the new one out; none of before is an error of bootout's.
  OutputOf({"/bin/launchctl", "bootout", absl::StrCat(LaunchdDomain(), "/", kAgent)}, "", true)
      .status()
      .IgnoreError();
  RETURN_IF_ERROR(OutputOf({"/bin/launchctl", "bootstrap", LaunchdDomain(), path}).status());
  return Done(path, every);
}

absl::StatusOr<std::string> UninstallReap() {
  ASSIGN_OR_RETURN(const std::string path, PlistPath());
  OutputOf({"/bin/launchctl", "bootout", absl::StrCat(LaunchdDomain(), "/", kAgent)}, "", true)
      .status()
      .IgnoreError();
  RETURN_IF_ERROR(RemoveTree(path));
  return std::string("gpuctl reap runs only when it is called from now on");
}
#else
absl::StatusOr<std::string> InstallReap(absl::Duration every) {
  ASSIGN_OR_RETURN(const ReapJob job, JobHere(every));
  const std::string systemctl = FindInPath("systemctl"), crontab = FindInPath("crontab");
  if (HasUserManager(systemctl)) {
    ASSIGN_OR_RETURN(const std::string dir, UnitDir());
    RETURN_IF_ERROR(MakeDirectories(dir, 0755));
    const std::string timer = absl::StrCat(kUnit, ".timer");
    RETURN_IF_ERROR(
        WriteFileAtomic(JoinPath(dir, absl::StrCat(kUnit, ".service")), SystemdService(job), 0644));
    RETURN_IF_ERROR(WriteFileAtomic(JoinPath(dir, timer), SystemdTimer(job), 0644));
    RETURN_IF_ERROR(OutputOf({systemctl, "--user", "daemon-reload"}).status());
    RETURN_IF_ERROR(OutputOf({systemctl, "--user", "enable", timer}).status());
    RETURN_IF_ERROR(OutputOf({systemctl, "--user", "restart", timer}).status());
    return Done(JoinPath(dir, timer), every);
  }
  if (!crontab.empty()) {
    ASSIGN_OR_RETURN(const std::string line, CronLine(job));
    RETURN_IF_ERROR(ChangeCrontab(crontab, line));
    return Done("your crontab", every);
  }
  return WithHint(absl::FailedPreconditionError(
                      "install gpuctl reap: neither systemd's user manager nor crontab is here"),
                  "call gpuctl reap -y regularly by other means");
}

absl::StatusOr<std::string> UninstallReap() {
  const std::string systemctl = FindInPath("systemctl"), crontab = FindInPath("crontab");
  ASSIGN_OR_RETURN(const std::string dir, UnitDir());
  const std::string timer = absl::StrCat(kUnit, ".timer");
  if (PathExists(JoinPath(dir, timer))) {
    if (HasUserManager(systemctl)) {
      RETURN_IF_ERROR(OutputOf({systemctl, "--user", "disable", "--now", timer}).status());
    }
    RETURN_IF_ERROR(RemoveTree(JoinPath(dir, timer)));
    RETURN_IF_ERROR(RemoveTree(JoinPath(dir, absl::StrCat(kUnit, ".service"))));
  }
  if (!crontab.empty()) RETURN_IF_ERROR(ChangeCrontab(crontab, ""));
  return std::string("gpuctl reap runs only when it is called from now on");
}
#endif

}  // namespace gpuctl
