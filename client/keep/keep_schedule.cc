#include "client/keep/keep_schedule.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/base/quantity.h"
#include "client/base/run_program.h"
#include "client/keep/keep_log.h"
#include "client/keys/key_store.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "provisioning/ledger/ledger_rows.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

constexpr char kKeep[] = "keep";  // KeepJob::name of the job that --install installs
constexpr char kCronCall[] = " keep 2>>";
// What versions before gpuctl keep installed.
constexpr char kOldName[] = "reap";
constexpr char kOldCronCall[] = " reap -y 2>>";
// The longest command for cron, in characters. Debian's cron reads up to 1000, and does not run a
// longer command at all.
constexpr size_t kMaxCronCommand = 990;
constexpr int64_t kMaxScheduleBytes = 1 << 20;

std::string XmlText(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// Quotes a word for sh in a crontab, where "%" ends the command.
std::string CronWord(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}, {"%", "\\%"}}), "'");
}

// Quotes a word for a systemd unit. "$" stands for itself in assignments and in the path of a
// program.
std::string SystemdWord(absl::string_view text) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"%", "%%"}}), "\"");
}

absl::StatusOr<std::string> Home() {
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return absl::FailedPreconditionError("$HOME is not set");
  return std::string(home);
}

// Returns the absolute path, for a program that is started in another directory.
std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

bool IsSet(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr && *value != '\0';
}

// Refuses a text that could begin another line of a unit or a crontab.
absl::Status CheckOneLine(const std::string& what, const std::string& text) {
  if (std::none_of(text.begin(), text.end(),
                   [](unsigned char c) { return absl::ascii_iscntrl(c); })) {
    return absl::OkStatus();
  }
  return UsageError(absl::StrCat("install gpuctl keep: ", what, " has a control character in it"),
                    "a scheduler's file has one line for it; use another path");
}

absl::StatusOr<KeepJob> JobHere(absl::Duration every) {
  if (every < absl::Minutes(1)) {
    return UsageError("--every is less than a minute", "a list of instances has its rate limits");
  }
  KeepJob job;
  job.program = ExecutablePath();
  job.every = every;
  ASSIGN_OR_RETURN(const ClientPaths paths, ClientPaths::FromEnvironment());
  job.log = JoinPath(Absolute(paths.state_dir), kKeepStderrFile);
  // Paths that follow from HOME are the same for the job, so only set variables are passed on.
  const struct {
    const char *name, *xdg;
    const std::string& dir;
  } directories[] = {{"GPUCTL_STATE_DIR", "XDG_STATE_HOME", paths.state_dir},
                     {"GPUCTL_CONFIG_DIR", "XDG_CONFIG_HOME", paths.config_dir},
                     {"GPUCTL_CACHE_DIR", "XDG_CACHE_HOME", paths.cache_dir}};
  for (const auto& directory : directories) {
    if (IsSet(directory.name) || IsSet(directory.xdg)) {
      job.where[directory.name] = Absolute(directory.dir);
    }
  }
  if (IsSet("GPUCTL_NODE_DIR")) {
    job.where["GPUCTL_NODE_DIR"] = Absolute(std::getenv("GPUCTL_NODE_DIR"));
  }
  std::vector<std::string> settings = {"GPUCTL_KEY_STORE"};
  for (const std::string& market : MarketNames()) settings.push_back(MarketVariable(market, "URL"));
  for (const std::string& name : settings) {
    if (IsSet(name)) job.where[name] = std::getenv(name.c_str());
  }
  RETURN_IF_ERROR(CheckOneLine("the path of this program", job.program));
  RETURN_IF_ERROR(CheckOneLine("the path of its log", job.log));
  for (const auto& [name, value] : job.where) RETURN_IF_ERROR(CheckOneLine(name, value));
  return job;
}

// Makes the directory of the job's log, which the scheduler does not make.
absl::Status MakeLogDirectory(const KeepJob& job) { return MakeDirectories(DirName(job.log)); }

// Adds a file as it would be written.
void AddFile(const std::string& path, const std::string& text, std::vector<std::string>& lines) {
  lines.push_back(absl::StrCat("would write ", path, ":"));
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    lines.push_back(absl::StrCat("  ", line));
  }
}

// Checks that the job finds the keys. A scheduled job has none of the shell's variables, and under
// cron no session. Without a key it cannot ask the market what bills.
absl::Status CheckKeysAreStored(const std::string& who, bool session) {
  ASSIGN_OR_RETURN(const ClientPaths paths, ClientPaths::FromEnvironment());
  const KeyStore keys(paths.config_dir);
  std::vector<std::string> names;
  std::string source;
  bool any = false;
  for (const std::string& market : MarketNames()) {
    const absl::StatusOr<MarketKey> here = keys.Find(market);
    if (absl::IsNotFound(here.status())) continue;
    RETURN_IF_ERROR(here.status());
    any = true;
    const absl::StatusOr<MarketKey> there = keys.FindStored(market, session);
    if (there.ok()) continue;
    if (!absl::IsNotFound(there.status())) return there.status();
    names.push_back(market);
    source = here->source;
  }
  // A computer that never rented anything watches over machines of the user's own.
  if (!any && !PathExists(JoinPath(paths.state_dir, kLedgerFile))) return absl::OkStatus();
  if (!any) {
    return WithExitCode(WithHint(absl::UnauthenticatedError(
                                     "install gpuctl keep: there is no key for any provider"),
                                 "gpuctl login PROVIDER keeps one"),
                        kExitCredentials);
  }
  if (names.empty()) return absl::OkStatus();
  const bool one = names.size() == 1;
  return WithExitCode(
      WithHint(absl::UnauthenticatedError(absl::StrCat(
                   "install gpuctl keep: ", who, " does not see the ", one ? "key of " : "keys of ",
                   absl::StrJoin(names, ", "), one ? absl::StrCat(", which is in ", source) : "")),
               absl::StrCat(session ? "" : "GPUCTL_KEY_STORE=file ", "gpuctl login ",
                            one ? names[0] : "PROVIDER", one ? "" : ", for each of them,",
                            " keeps it where ", who, " looks")),
      kExitCredentials);
}

std::string Done(const std::string& how, absl::Duration every) {
  return absl::StrCat("gpuctl keep runs every ", HumanDuration(every), " from now on (", how,
                      "), with the keys of gpuctl login. gpuctl keep --uninstall undoes it");
}

#ifdef __APPLE__
constexpr char kLaunchctl[] = "/bin/launchctl";

std::string LaunchdLabel(const std::string& name) { return absl::StrCat("gpuctl.", name); }
absl::StatusOr<std::string> PlistPath(const std::string& name) {
  ASSIGN_OR_RETURN(const std::string home, Home());
  return absl::StrCat(home, "/Library/LaunchAgents/", LaunchdLabel(name), ".plist");
}
std::string LaunchdDomain() { return absl::StrCat("gui/", getuid()); }
std::string LaunchdTarget(const std::string& name) {
  return absl::StrCat(LaunchdDomain(), "/", LaunchdLabel(name));
}

// Ends the agent when it is there. bootout fails when it is not; ignore that.
void BootOut(const std::string& name) {
  OutputOf({kLaunchctl, "bootout", LaunchdTarget(name)}, "", true).status().IgnoreError();
}
#else
absl::Status NoScheduler() {
  return WithHint(absl::FailedPreconditionError(
                      "install gpuctl keep: neither systemd's user manager nor crontab is here"),
                  "call gpuctl keep regularly by other means");
}

std::string UnitOf(const std::string& name) { return absl::StrCat("gpuctl-", name); }

absl::StatusOr<std::string> UnitDir() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config != '\0') return JoinPath(config, "systemd/user");
  ASSIGN_OR_RETURN(const std::string home, Home());
  return JoinPath(home, ".config/systemd/user");
}

// True when systemd's user manager answers; containers and other init systems have none.
bool HasUserManager(const std::string& systemctl) {
  return !systemctl.empty() &&
         OutputOf({systemctl, "--user", "show-environment"}, "", /*quiet=*/true).ok();
}

// Removes the units of this name; nothing when there are none.
absl::Status RemoveUnits(const std::string& systemctl, const std::string& dir,
                         const std::string& name) {
  const std::string unit = UnitOf(name), timer = absl::StrCat(unit, ".timer");
  if (!PathExists(JoinPath(dir, timer))) return absl::OkStatus();
  const bool asked = HasUserManager(systemctl);
  if (asked) {
    RETURN_IF_ERROR(OutputOf({systemctl, "--user", "disable", "--now", timer}).status());
  }
  RETURN_IF_ERROR(RemoveTree(JoinPath(dir, timer)));
  RETURN_IF_ERROR(RemoveTree(JoinPath(dir, absl::StrCat(unit, ".service"))));
  // Else the manager would list them until it next reads its units.
  if (asked) OutputOf({systemctl, "--user", "daemon-reload"}, "", true).status().IgnoreError();
  return absl::OkStatus();
}

// Returns the user's crontab; "" when there is none.
absl::StatusOr<std::string> ReadCrontab(const std::string& dir, const std::string& crontab) {
  const std::string said = JoinPath(dir, "said");
  const absl::StatusOr<std::string> table =
      OutputOf({"/bin/sh", "-c", "LC_ALL=C exec \"$0\" -l 2>\"$1\"", crontab, said});
  if (table.ok()) return table;
  const std::string why(
      absl::StripAsciiWhitespace(ReadFileToString(said, 4096).value_or(std::string())));
  // Do not take a crontab that cannot be read for none: ours would replace it.
  if (absl::StrContains(why, "no crontab") || absl::StrContains(why, "No such file")) return "";
  return absl::FailedPreconditionError(absl::StrCat("read your crontab: ", why));
}

absl::Status ChangeCrontabIn(const std::string& dir, const std::string& crontab,
                             absl::string_view line, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string old, ReadCrontab(dir, crontab));
  const std::string changed = ReplaceCronLine(old, line, name);
  if (changed == old) return absl::OkStatus();
  // Without this an empty crontab would be left where there was none.
  if (changed.empty()) return OutputOf({crontab, "-r"}).status();
  const std::string path = JoinPath(dir, "crontab");
  RETURN_IF_ERROR(WriteFileAtomic(path, changed));
  return OutputOf({crontab, path}).status();
}

// Makes `line` the only line of the job `name` in the user's crontab; "" removes its line.
absl::Status ChangeCrontab(const std::string& crontab, absl::string_view line,
                           const std::string& name) {
  ASSIGN_OR_RETURN(const std::string dir, MakeTempDirectory("gpuctl-crontab-"));
  const absl::Status status = ChangeCrontabIn(dir, crontab, line, name);
  RemoveTree(dir).IgnoreError();
  return status;
}

absl::StatusOr<std::string> TableOf(const std::string& crontab) {
  ASSIGN_OR_RETURN(const std::string dir, MakeTempDirectory("gpuctl-crontab-"));
  absl::StatusOr<std::string> table = ReadCrontab(dir, crontab);
  RemoveTree(dir).IgnoreError();
  return table;
}

// Returns words for the user's crontab, with a warning when no cron daemon can be seen.
std::string YourCrontab() {
  for (const char* sign : {"/run/crond.pid", "/var/run/crond.pid", "/run/cron.pid"}) {
    if (PathExists(sign)) return "your crontab";
  }
  return "your crontab; it needs a cron daemon, but none seems to run here";
}
#endif

// Returns the number behind the first `mark`; 0 when there is none.
int64_t NumberAfter(absl::string_view text, absl::string_view mark) {
  const size_t at = text.find(mark);
  if (at == absl::string_view::npos) return 0;
  int64_t number = 0;
  for (const char c : text.substr(at + mark.size())) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c)) || number > 1'000'000'000) break;
    number = number * 10 + (c - '0');
  }
  return number;
}

std::string CronMark(const std::string& name) { return absl::StrCat("# gpuctl ", name); }

// True for the active line of the job `name`. Other lines that end like it stay: a comment of the
// user's, or our line when the user has switched it off.
bool IsCronLineOf(absl::string_view line, const std::string& name) {
  const bool now = absl::EndsWith(line, CronMark(name)) && absl::StrContains(line, kCronCall);
  const bool before = name == kKeep && absl::EndsWith(line, CronMark(kOldName)) &&
                      absl::StrContains(line, kOldCronCall);
  return (now || before) && !absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "#");
}

}  // namespace

std::string LaunchdPlist(const KeepJob& job) {
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
      "gpuctl.", XmlText(job.name),
      "</string>\n  <key>ProgramArguments</key>\n  <array>\n    <string>", XmlText(job.program),
      "</string>\n    <string>keep</string>\n  </array>\n"
      "  <key>EnvironmentVariables</key>\n  <dict>\n",
      environment, "  </dict>\n  <key>StartInterval</key><integer>",
      absl::ToInt64Seconds(job.every), "</integer>\n  <key>RunAtLoad</key><true/>\n",
      "  <key>StandardErrorPath</key><string>", XmlText(job.log), "</string>\n</dict>\n</plist>\n");
}

std::string SystemdService(const KeepJob& job) {
  std::string environment;
  for (const auto& [name, value] : job.where) {
    absl::StrAppend(&environment, "Environment=", SystemdWord(absl::StrCat(name, "=", value)),
                    "\n");
  }
  return absl::StrCat(
      "[Unit]\nDescription=Watch over rented GPU machines and runs\n\n[Service]\n"
      "Type=oneshot\n",
      environment, "ExecStart=", SystemdWord(job.program), " keep\n");
}

std::string SystemdTimer(const KeepJob& job) {
  // systemd may be a minute late unless it is told otherwise.
  const std::string first =
      job.at_once ? "OnActiveSec=100ms\nAccuracySec=100ms\n" : "OnActiveSec=1min\n";
  return absl::StrCat("[Unit]\nDescription=Watch over rented GPU machines and runs\n\n[Timer]\n",
                      first, "OnUnitActiveSec=", absl::ToInt64Seconds(job.every),
                      "s\n\n[Install]\nWantedBy=timers.target\n");
}

absl::StatusOr<std::string> CronLine(const KeepJob& job) {
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
  std::string command;
  for (const auto& [name, value] : job.where) {
    absl::StrAppend(&command, name, "=", CronWord(value), " ");
  }
  absl::StrAppend(&command, CronWord(job.program), kCronCall, CronWord(job.log), " ",
                  CronMark(job.name));
  if (command.size() > kMaxCronCommand) {
    return UsageError(absl::StrCat("cron takes no command of ", command.size(), " characters"),
                      "shorter paths in GPUCTL_STATE_DIR and the like");
  }
  return absl::StrCat(when, " ", command);
}

absl::Duration PeriodOfPlist(absl::string_view plist) {
  return absl::Seconds(NumberAfter(plist, "<key>StartInterval</key><integer>"));
}

absl::Duration PeriodOfTimer(absl::string_view timer) {
  return absl::Seconds(NumberAfter(timer, "OnUnitActiveSec="));
}

absl::Duration PeriodOfCrontab(absl::string_view crontab) {
  for (const absl::string_view line : absl::StrSplit(crontab, '\n')) {
    if (!IsCronLineOf(line, kKeep) || !absl::EndsWith(line, CronMark(kKeep))) continue;
    if (absl::StartsWith(line, "0 */")) return absl::Hours(NumberAfter(line, "0 */"));
    return absl::Minutes(NumberAfter(line, "*/"));
  }
  return absl::ZeroDuration();
}

std::string ReplaceCronLine(absl::string_view crontab, absl::string_view line,
                            const std::string& name) {
  std::string changed;
  for (const absl::string_view old : absl::StrSplit(crontab, '\n')) {
    if (!IsCronLineOf(old, name)) absl::StrAppend(&changed, old, "\n");
  }
  // The split returns one line more than there are newlines.
  changed.pop_back();
  if (line.empty()) return changed;
  if (!changed.empty() && changed.back() != '\n') changed += '\n';
  return absl::StrCat(changed, line, "\n");
}

#ifdef __APPLE__
Scheduler FindScheduler() { return Scheduler::kLaunchd; }

absl::StatusOr<std::string> PutJob(Scheduler, const KeepJob& job) {
  ASSIGN_OR_RETURN(const std::string path, PlistPath(job.name));
  RETURN_IF_ERROR(MakeDirectories(DirName(path), 0755));
  RETURN_IF_ERROR(WriteFileAtomic(path, LaunchdPlist(job), 0644));
  BootOut(job.name);
  RETURN_IF_ERROR(OutputOf({kLaunchctl, "bootstrap", LaunchdDomain(), path}).status());
  return path;
}

absl::StatusOr<bool> HasJob(Scheduler, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string path, PlistPath(name));
  return PathExists(path) || OutputOf({kLaunchctl, "print", LaunchdTarget(name)}, "", true).ok();
}

absl::Status RemoveJob(const std::string& name) {
  ASSIGN_OR_RETURN(const std::string path, PlistPath(name));
  BootOut(name);
  return RemoveTree(path);
}

absl::StatusOr<std::string> InstallKeep(absl::Duration every) {
  ASSIGN_OR_RETURN(const KeepJob job, JobHere(every));
  RETURN_IF_ERROR(CheckKeysAreStored("launchd", /*session=*/true));
  // An old job would keep the new one out.
  ASSIGN_OR_RETURN(const std::string old, PlistPath(kOldName));
  if (PathExists(old)) RETURN_IF_ERROR(RemoveJob(kOldName));
  RETURN_IF_ERROR(MakeLogDirectory(job));
  ASSIGN_OR_RETURN(const std::string path, PutJob(Scheduler::kLaunchd, job));
  return Done(path, every);
}

absl::StatusOr<std::vector<std::string>> DescribeInstallation(absl::Duration every) {
  ASSIGN_OR_RETURN(const KeepJob job, JobHere(every));
  RETURN_IF_ERROR(CheckKeysAreStored("launchd", /*session=*/true));
  ASSIGN_OR_RETURN(const std::string path, PlistPath(job.name));
  std::vector<std::string> lines;
  AddFile(path, LaunchdPlist(job), lines);
  lines.push_back(absl::StrCat("would run: launchctl bootstrap ", LaunchdDomain(), " ", path));
  return lines;
}

absl::StatusOr<std::string> UninstallKeep() {
  RETURN_IF_ERROR(RemoveJob(kOldName));
  RETURN_IF_ERROR(RemoveJob(kKeep));
  return std::string("from now on gpuctl keep runs only when you call it");
}

absl::StatusOr<std::optional<KeepSchedule>> FindKeepSchedule() {
  ASSIGN_OR_RETURN(const std::string path, PlistPath(kKeep));
  const absl::StatusOr<std::string> plist = ReadFileToString(path, kMaxScheduleBytes);
  if (!plist.ok()) return std::nullopt;
  return KeepSchedule{"launchd", path, PeriodOfPlist(*plist)};
}
#else
Scheduler FindScheduler() {
  if (HasUserManager(FindInPath("systemctl"))) return Scheduler::kSystemd;
  return FindInPath("crontab").empty() ? Scheduler::kNone : Scheduler::kCron;
}

absl::StatusOr<std::string> PutJob(Scheduler scheduler, const KeepJob& job) {
  if (scheduler == Scheduler::kCron) {
    ASSIGN_OR_RETURN(const std::string line, CronLine(job));
    RETURN_IF_ERROR(ChangeCrontab(FindInPath("crontab"), line, job.name));
    return YourCrontab();
  }
  if (scheduler == Scheduler::kNone) return NoScheduler();
  const std::string systemctl = FindInPath("systemctl"), unit = UnitOf(job.name);
  const std::string timer = absl::StrCat(unit, ".timer");
  ASSIGN_OR_RETURN(const std::string dir, UnitDir());
  RETURN_IF_ERROR(MakeDirectories(dir, 0755));
  RETURN_IF_ERROR(
      WriteFileAtomic(JoinPath(dir, absl::StrCat(unit, ".service")), SystemdService(job), 0644));
  RETURN_IF_ERROR(WriteFileAtomic(JoinPath(dir, timer), SystemdTimer(job), 0644));
  RETURN_IF_ERROR(OutputOf({systemctl, "--user", "daemon-reload"}).status());
  RETURN_IF_ERROR(OutputOf({systemctl, "--user", "enable", timer}).status());
  RETURN_IF_ERROR(OutputOf({systemctl, "--user", "restart", timer}).status());
  return JoinPath(dir, timer);
}

absl::StatusOr<bool> HasJob(Scheduler scheduler, const std::string& name) {
  if (scheduler == Scheduler::kCron) {
    ASSIGN_OR_RETURN(const std::string table, TableOf(FindInPath("crontab")));
    return ReplaceCronLine(table, "", name) != table;
  }
  ASSIGN_OR_RETURN(const std::string dir, UnitDir());
  const std::string timer = absl::StrCat(UnitOf(name), ".timer");
  if (PathExists(JoinPath(dir, timer))) return true;
  return scheduler == Scheduler::kSystemd &&
         OutputOf({FindInPath("systemctl"), "--user", "is-active", timer}, "", true).ok();
}

absl::Status RemoveJob(const std::string& name) {
  const std::string systemctl = FindInPath("systemctl"), crontab = FindInPath("crontab");
  ASSIGN_OR_RETURN(const std::string dir, UnitDir());
  RETURN_IF_ERROR(RemoveUnits(systemctl, dir, name));
  return crontab.empty() ? absl::OkStatus() : ChangeCrontab(crontab, "", name);
}

absl::StatusOr<std::string> InstallKeep(absl::Duration every) {
  ASSIGN_OR_RETURN(const KeepJob job, JobHere(every));
  const Scheduler scheduler = FindScheduler();
  if (scheduler == Scheduler::kSystemd) {
    RETURN_IF_ERROR(CheckKeysAreStored("systemd", /*session=*/true));
    ASSIGN_OR_RETURN(const std::string dir, UnitDir());
    RETURN_IF_ERROR(RemoveUnits(FindInPath("systemctl"), dir, kOldName));
    if (const std::string crontab = FindInPath("crontab"); !crontab.empty()) {
      RETURN_IF_ERROR(ChangeCrontab(crontab, "", kKeep));
    }
  } else if (scheduler == Scheduler::kCron) {
    RETURN_IF_ERROR(CheckKeysAreStored("cron", /*session=*/false));
  }
  RETURN_IF_ERROR(MakeLogDirectory(job));
  ASSIGN_OR_RETURN(const std::string where, PutJob(scheduler, job));
  return Done(where, every);
}

absl::StatusOr<std::vector<std::string>> DescribeInstallation(absl::Duration every) {
  ASSIGN_OR_RETURN(const KeepJob job, JobHere(every));
  const Scheduler scheduler = FindScheduler();
  std::vector<std::string> lines;
  if (scheduler == Scheduler::kNone) return NoScheduler();
  if (scheduler == Scheduler::kCron) {
    RETURN_IF_ERROR(CheckKeysAreStored("cron", /*session=*/false));
    ASSIGN_OR_RETURN(const std::string line, CronLine(job));
    lines = {absl::StrCat("would put this line into ", YourCrontab(), ":"),
             absl::StrCat("  ", line)};
    return lines;
  }
  RETURN_IF_ERROR(CheckKeysAreStored("systemd", /*session=*/true));
  ASSIGN_OR_RETURN(const std::string dir, UnitDir());
  const std::string unit = UnitOf(job.name);
  AddFile(JoinPath(dir, absl::StrCat(unit, ".service")), SystemdService(job), lines);
  AddFile(JoinPath(dir, absl::StrCat(unit, ".timer")), SystemdTimer(job), lines);
  lines.push_back(absl::StrCat("would run: systemctl --user enable and restart ", unit, ".timer"));
  return lines;
}

absl::StatusOr<std::string> UninstallKeep() {
  ASSIGN_OR_RETURN(const std::string dir, UnitDir());
  RETURN_IF_ERROR(RemoveUnits(FindInPath("systemctl"), dir, kOldName));
  RETURN_IF_ERROR(RemoveJob(kKeep));
  return std::string("from now on gpuctl keep runs only when you call it");
}

absl::StatusOr<std::optional<KeepSchedule>> FindKeepSchedule() {
  ASSIGN_OR_RETURN(const std::string dir, UnitDir());
  const std::string timer = JoinPath(dir, absl::StrCat(UnitOf(kKeep), ".timer"));
  const absl::StatusOr<std::string> text = ReadFileToString(timer, kMaxScheduleBytes);
  if (text.ok()) return KeepSchedule{"systemd", timer, PeriodOfTimer(*text)};
  const std::string crontab = FindInPath("crontab");
  if (crontab.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string table, TableOf(crontab));
  const absl::Duration every = PeriodOfCrontab(table);
  if (every == absl::ZeroDuration()) return std::nullopt;
  return KeepSchedule{"cron", YourCrontab(), every};
}
#endif

}  // namespace gpuctl
