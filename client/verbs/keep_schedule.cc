#include "client/verbs/keep_schedule.h"

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

constexpr char kAgent[] = "gpuctl.keep";
constexpr char kCronMark[] = "# gpuctl keep";
constexpr char kCronCall[] = " keep 2>>";
// What versions before gpuctl keep installed.
#ifdef __APPLE__
constexpr char kOldAgent[] = "gpuctl.reap";
#else
constexpr char kOldUnit[] = "gpuctl-reap";
#endif
constexpr char kOldCronMark[] = "# gpuctl reap";
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
  RETURN_IF_ERROR(MakeDirectories(paths.state_dir));
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

// Checks that the job finds the keys. A scheduled job has none of the shell's variables, and under
// cron no session. Without a key it cannot ask the market what bills.
absl::Status CheckKeysAreStored(const std::string& who, bool session) {
  ASSIGN_OR_RETURN(const ClientPaths paths, ClientPaths::FromEnvironment());
  const KeyStore keys(paths.config_dir);
  std::vector<std::string> unseen, names;
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
    unseen.push_back(absl::StrCat(market, "'s in ", here->source));
  }
  // A computer that never rented anything watches over machines of the user's own.
  if (!any && !PathExists(JoinPath(paths.state_dir, kLedgerFile))) return absl::OkStatus();
  if (!any) {
    return WithExitCode(WithHint(absl::UnauthenticatedError(
                                     "install gpuctl keep: there is no key for any provider"),
                                 "gpuctl login PROVIDER keeps one"),
                        kExitCredentials);
  }
  if (unseen.empty()) return absl::OkStatus();
  return WithExitCode(
      WithHint(absl::UnauthenticatedError(absl::StrCat("install gpuctl keep: ", who,
                                                       " does not see every key that is "
                                                       "found here: ",
                                                       absl::StrJoin(unseen, ", "))),
               absl::StrCat(session ? "" : "GPUCTL_KEY_STORE=file ", "gpuctl login ",
                            absl::StrJoin(names, session ? "; gpuctl login "
                                                         : "; GPUCTL_KEY_STORE=file gpuctl login "),
                            " keeps it where ", who, " finds it")),
      kExitCredentials);
}

std::string Done(const std::string& how, absl::Duration every) {
  return absl::StrCat("gpuctl keep runs every ", HumanDuration(every), " from now on (", how,
                      "), with the keys of gpuctl login. gpuctl keep --uninstall undoes it");
}

#ifdef __APPLE__
absl::StatusOr<std::string> PlistPath(const char* agent) {
  ASSIGN_OR_RETURN(const std::string home, Home());
  return absl::StrCat(home, "/Library/LaunchAgents/", agent, ".plist");
}
std::string LaunchdDomain() { return absl::StrCat("gui/", getuid()); }

// Ends the agent when it is there. bootout fails when it is not; ignore that.
void BootOut(const char* agent) {
  OutputOf({"/bin/launchctl", "bootout", absl::StrCat(LaunchdDomain(), "/", agent)}, "", true)
      .status()
      .IgnoreError();
}

absl::Status RemoveOldSchedule() {
  ASSIGN_OR_RETURN(const std::string old, PlistPath(kOldAgent));
  if (!PathExists(old)) return absl::OkStatus();
  BootOut(kOldAgent);
  return RemoveTree(old);
}
#else
constexpr char kUnit[] = "gpuctl-keep";

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
absl::Status RemoveUnits(const std::string& systemctl, const std::string& dir, const char* unit) {
  const std::string timer = absl::StrCat(unit, ".timer");
  if (!PathExists(JoinPath(dir, timer))) return absl::OkStatus();
  if (HasUserManager(systemctl)) {
    RETURN_IF_ERROR(OutputOf({systemctl, "--user", "disable", "--now", timer}).status());
  }
  RETURN_IF_ERROR(RemoveTree(JoinPath(dir, timer)));
  return RemoveTree(JoinPath(dir, absl::StrCat(unit, ".service")));
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
                             absl::string_view line) {
  ASSIGN_OR_RETURN(const std::string old, ReadCrontab(dir, crontab));
  const std::string changed = ReplaceCronLine(old, line);
  if (changed == old) return absl::OkStatus();
  const std::string path = JoinPath(dir, "crontab");
  RETURN_IF_ERROR(WriteFileAtomic(path, changed));
  return OutputOf({crontab, path}).status();
}

// Makes `line` our only line in the user's crontab; "" removes our line.
absl::Status ChangeCrontab(const std::string& crontab, absl::string_view line) {
  ASSIGN_OR_RETURN(const std::string dir, MakeTempDirectory("gpuctl-crontab-"));
  const absl::Status status = ChangeCrontabIn(dir, crontab, line);
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

// True for our own active line. Other lines that end like it stay: a comment of the user's, or our
// line when the user has switched it off.
bool IsOurCronLine(absl::string_view line) {
  const bool now = absl::EndsWith(line, kCronMark) && absl::StrContains(line, kCronCall);
  const bool before = absl::EndsWith(line, kOldCronMark) && absl::StrContains(line, kOldCronCall);
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
      kAgent, "</string>\n  <key>ProgramArguments</key>\n  <array>\n    <string>",
      XmlText(job.program),
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
  const int64_t seconds = absl::ToInt64Seconds(job.every);
  return absl::StrCat(
      "[Unit]\nDescription=Watch over rented GPU machines and runs\n\n[Timer]\n"
      "OnActiveSec=1min\nOnUnitActiveSec=",
      seconds, "s\n\n[Install]\nWantedBy=timers.target\n");
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
  absl::StrAppend(&command, CronWord(job.program), kCronCall, CronWord(job.log), " ", kCronMark);
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
    if (!IsOurCronLine(line) || !absl::EndsWith(line, kCronMark)) continue;
    if (absl::StartsWith(line, "0 */")) return absl::Hours(NumberAfter(line, "0 */"));
    return absl::Minutes(NumberAfter(line, "*/"));
  }
  return absl::ZeroDuration();
}

std::string ReplaceCronLine(absl::string_view crontab, absl::string_view line) {
  std::string changed;
  for (const absl::string_view old : absl::StrSplit(crontab, '\n')) {
    if (!IsOurCronLine(old)) absl::StrAppend(&changed, old, "\n");
  }
  // The split returns one line more than there are newlines.
  changed.pop_back();
  if (line.empty()) return changed;
  if (!changed.empty() && changed.back() != '\n') changed += '\n';
  return absl::StrCat(changed, line, "\n");
}

#ifdef __APPLE__
absl::StatusOr<std::string> InstallKeep(absl::Duration every) {
  ASSIGN_OR_RETURN(const KeepJob job, JobHere(every));
  RETURN_IF_ERROR(CheckKeysAreStored("launchd", /*session=*/true));
  ASSIGN_OR_RETURN(const std::string path, PlistPath(kAgent));
  RETURN_IF_ERROR(MakeDirectories(DirName(path), 0755));
  RETURN_IF_ERROR(WriteFileAtomic(path, LaunchdPlist(job), 0644));
  // An old job would keep the new one out.
  RETURN_IF_ERROR(RemoveOldSchedule());
  BootOut(kAgent);
  RETURN_IF_ERROR(OutputOf({"/bin/launchctl", "bootstrap", LaunchdDomain(), path}).status());
  return Done(path, every);
}

absl::StatusOr<std::string> UninstallKeep() {
  ASSIGN_OR_RETURN(const std::string path, PlistPath(kAgent));
  RETURN_IF_ERROR(RemoveOldSchedule());
  BootOut(kAgent);
  RETURN_IF_ERROR(RemoveTree(path));
  return std::string("from now on gpuctl keep runs only when you call it");
}

absl::StatusOr<std::optional<KeepSchedule>> FindKeepSchedule() {
  ASSIGN_OR_RETURN(const std::string path, PlistPath(kAgent));
  const absl::StatusOr<std::string> plist = ReadFileToString(path, kMaxScheduleBytes);
  if (!plist.ok()) return std::nullopt;
  return KeepSchedule{"launchd", path, PeriodOfPlist(*plist)};
}
#else
absl::StatusOr<std::string> InstallKeep(absl::Duration every) {
  ASSIGN_OR_RETURN(const KeepJob job, JobHere(every));
  const std::string systemctl = FindInPath("systemctl"), crontab = FindInPath("crontab");
  if (HasUserManager(systemctl)) {
    RETURN_IF_ERROR(CheckKeysAreStored("systemd", /*session=*/true));
    ASSIGN_OR_RETURN(const std::string dir, UnitDir());
    RETURN_IF_ERROR(MakeDirectories(dir, 0755));
    RETURN_IF_ERROR(RemoveUnits(systemctl, dir, kOldUnit));
    if (!crontab.empty()) RETURN_IF_ERROR(ChangeCrontab(crontab, ""));
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
    RETURN_IF_ERROR(CheckKeysAreStored("cron", /*session=*/false));
    ASSIGN_OR_RETURN(const std::string line, CronLine(job));
    RETURN_IF_ERROR(ChangeCrontab(crontab, line));
    return Done(YourCrontab(), every);
  }
  return WithHint(absl::FailedPreconditionError(
                      "install gpuctl keep: neither systemd's user manager nor crontab is here"),
                  "call gpuctl keep regularly by other means");
}

absl::StatusOr<std::string> UninstallKeep() {
  const std::string systemctl = FindInPath("systemctl"), crontab = FindInPath("crontab");
  ASSIGN_OR_RETURN(const std::string dir, UnitDir());
  RETURN_IF_ERROR(RemoveUnits(systemctl, dir, kUnit));
  RETURN_IF_ERROR(RemoveUnits(systemctl, dir, kOldUnit));
  if (!crontab.empty()) RETURN_IF_ERROR(ChangeCrontab(crontab, ""));
  return std::string("from now on gpuctl keep runs only when you call it");
}

absl::StatusOr<std::optional<KeepSchedule>> FindKeepSchedule() {
  ASSIGN_OR_RETURN(const std::string dir, UnitDir());
  const std::string timer = JoinPath(dir, absl::StrCat(kUnit, ".timer"));
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
