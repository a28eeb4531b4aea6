// gpuctl keep: one pass of what is to be done while nobody watches.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/dispatch/dispatch_pass.h"
#include "client/due/findings.h"
#include "client/keep/keep_log.h"
#include "client/keep/keep_pass.h"
#include "client/keep/keep_schedule.h"
#include "client/keep/keep_status.h"
#include "client/market/holdings.h"
#include "client/notify/tell_end.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/keep_wish.h"
#include "client/verbs/money_verbs.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/signal_pipe.h"
#include "provisioning/rental/reconcile.h"

namespace gpuctl {
namespace {

absl::StatusOr<int> EndLeaks(CommandContext& context, Holdings& holdings, RunStore* store,
                             const ReapFlags& flags) {
  const absl::StatusOr<Ledger*> ledger = holdings.FindLedger();
  // Nothing was ever rented, so that no market need be asked.
  if (ledger.ok() && *ledger == nullptr) {
    if (context.json() && (flags.dry_run || !flags.reaped)) {
      PrintNothingReaped(context, flags.dry_run);
    }
    return kExitOk;
  }
  RETURN_IF_ERROR(holdings.OpenAllMarkets());
  return ReapLeaks(context, holdings, store, flags);
}

nlohmann::ordered_json LinesToJson(const std::vector<KeptDeeds::Line>& lines) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const KeptDeeds::Line& line : lines) {
    list.push_back({{"verb", line.verb}, {"subject", line.run}, {"result", line.text}});
  }
  return list;
}

// Returns what is still out of order after the runs' turn: a disk that this pass has ended is not.
absl::StatusOr<int> LookAgain(CommandContext& context, Holdings& holdings) {
  ASSIGN_OR_RETURN(const Reconciliation found,
                   Reconcile(holdings.ledger(), holdings.markets(), context.clock));
  return ExitCodeOfFindings(found, !found.Leaks().empty());
}

// The starts of one pass that rent, boot and check machines take minutes.
constexpr absl::Duration kStartWithin = absl::Minutes(30);

// Starts what waits in batches. It comes last: what bills or is in danger goes first.
void StartWaiting(CommandContext& context, KeepLog& log, const SignalPipe& signals,
                  KeptDeeds& done) {
  const auto note = [&context](const absl::Status& written) {
    if (!written.ok()) context.Warn(absl::StrCat("keep.log: ", written.message()));
  };
  const auto list = [](const nlohmann::json& json, const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_array() ? json[key]
                                                                          : nlohmann::json::array();
  };
  const auto text = [](const nlohmann::json& json, const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_string()
               ? json[key].get<std::string>()
               : std::string();
  };
  const absl::StatusOr<nlohmann::json> pass = MakePass(kStartWithin, signals.fd());
  if (!pass.ok()) {
    context.Warn(absl::StrCat("queue: ", pass.status().message()));
    note(log.Failure(context.NowMs(), "queue", "all batches", pass.status().message()));
    done.failures.push_back({"queue", "all batches", std::string(pass.status().message())});
    return;
  }
  for (const nlohmann::json& one : list(*pass, "started")) {
    const bool rented = one.contains("usd_per_hour") && one["usd_per_hour"].is_number();
    const std::string entry = text(one, "entry"),
                      result = absl::StrCat(
                          "on ", text(one, "node"),
                          rented ? absl::StrCat(", ", FormatUsd(one["usd_per_hour"]), "/h") : "");
    context.Say(absl::StrCat("start ", entry, ": ", result));
    note(log.Deed(context.NowMs(), "start", entry, result));
    done.deeds.push_back({"start", entry, result});
  }
  for (const nlohmann::json& one : list(*pass, "failed")) {
    const std::string entry = text(one, "entry"), why = text(one, "why");
    context.Warn(absl::StrCat("start ", entry, ": ", why));
    note(log.Failure(context.NowMs(), "start", entry, why));
    done.failures.push_back({"start", entry, why});
  }
}

// Tells the ends of runs that nobody has told, and logs it. Returns false when that failed for one.
bool TellEnds(CommandContext& context, Holdings& holdings, RunStore& store, KeepLog& log,
              const std::function<bool()>& cancelled, KeptDeeds& done) {
  bool good = true;
  for (const ToldEnd& told : TellAllEnds(context, holdings, store, cancelled)) {
    absl::Status logged;
    if (!told.by.empty()) {
      context.Say(absl::StrCat("notify ", told.name, ": ", told.by));
      logged = log.Deed(context.NowMs(), "notify", told.name, told.by);
      done.deeds.push_back({"notify", told.name, told.by});
    }
    if (!told.status.ok()) {
      const std::string why(told.status.message());
      context.Warn(absl::StrCat("notify ", told.name, ": ", why));
      logged.Update(log.Failure(context.NowMs(), "notify", told.name, why));
      done.failures.push_back({"notify", told.name, why});
      good = false;
    }
    if (!logged.ok()) context.Warn(absl::StrCat("keep.log: ", logged.message()));
  }
  return good;
}

// Ends leaks first, because they bill. Adds what it did to `done`. Returns the exit code of that;
// that of the runs when it went well.
absl::StatusOr<int> KeepPass(CommandContext& context, const ReapFlags& flags, KeepLog& log,
                             SignalPipe& signals, KeptDeeds& done) {
  Holdings holdings(context);
  holdings.OnlyEnds();
  // End what bills even when the list of runs cannot be read.
  const absl::StatusOr<RunStore*> store = context.StoreOrCopy();
  absl::StatusOr<int> reaped = EndLeaks(context, holdings, store.value_or(nullptr), flags);
  RETURN_IF_ERROR(store.status());
  bool told_to_end = false;
  const auto cancelled = [&] { return told_to_end = told_to_end || !signals.Take().empty(); };
  ASSIGN_OR_RETURN(const KeptDeeds kept,
                   KeepRuns(context, holdings, **store, log, RunsThisProgram(signals.fd()),
                            flags.dry_run, cancelled));
  done.deeds.insert(done.deeds.end(), kept.deeds.begin(), kept.deeds.end());
  done.failures.insert(done.failures.end(), kept.failures.begin(), kept.failures.end());
  const bool told = flags.dry_run || TellEnds(context, holdings, **store, log, cancelled, done);
  if (cancelled()) return kExitInterrupted;
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  ASSIGN_OR_RETURN(const std::vector<Batch> open, batches->List(/*open_only=*/true));
  if (!open.empty() && flags.dry_run) {
    ASSIGN_OR_RETURN(const std::vector<BatchView> views,
                     ReadBatches(**store, *batches, {}, /*open_only=*/true));
    int waiting = 0;
    for (const BatchView& view : views) waiting += CountOf(view, EntryPhase::kWaiting);
    if (waiting > 0) {
      context.Say(absl::StrCat("would start what may start of ", waiting,
                               waiting == 1 ? " run" : " runs", " that wait",
                               waiting == 1 ? "s" : "", " in batches: gpuctl queue"));
    }
  }
  const size_t failed_before = done.failures.size();
  if (!open.empty() && !flags.dry_run) StartWaiting(context, log, signals, done);
  if (cancelled()) return kExitInterrupted;
  const bool all_well = kept.failures.empty() && done.failures.size() == failed_before;
  if (reaped.ok() && *reaped == kExitLeak && !kept.deeds.empty()) {
    reaped = LookAgain(context, holdings);
  }
  if (!reaped.ok() || *reaped != kExitOk) return reaped;
  return all_well && told ? kExitOk : kExitFailed;
}

// A state directory that cannot be written has no lock and no log. What bills is ended all the
// same.
absl::StatusOr<int> EndLeaksOnly(CommandContext& context, const ReapFlags& flags,
                                 const absl::Status& why) {
  context.Warn(absl::StrCat("only leaks are ended, and nothing is written down: ", why.message()));
  Holdings holdings(context);
  holdings.OnlyEnds();
  const absl::StatusOr<RunStore*> store = context.StoreOrCopy();
  const absl::StatusOr<int> code = EndLeaks(context, holdings, store.value_or(nullptr), flags);
  return code.ok() && *code == kExitOk ? kExitFailed : code;
}

// Made by keep --install; its time is the installation's.

// Returns when a file was last written, in Unix milliseconds; 0 when there is none.
int64_t TimeOfFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? int64_t{info.st_mtime} * 1000 : 0;
}

absl::StatusOr<int> TellStatus(CommandContext& context, const ClientPaths& paths,
                               const std::string& lock_path) {
  KeepStatus status;
  const absl::StatusOr<std::optional<KeepSchedule>> schedule = FindKeepSchedule();
  if (!schedule.ok()) {
    context.Warn(
        absl::StrCat("it is not known whether it is installed: ", schedule.status().message()));
  } else if (schedule->has_value()) {
    status.installed_by = (*schedule)->by;
    status.where = (*schedule)->where;
    status.every = (*schedule)->every;
    status.installed_ms = TimeOfFile(JoinPath(paths.state_dir, kKeepInstalledFile));
  }
  ReadLastPass(paths.state_dir, status);
  status.running = PathExists(lock_path) && absl::IsUnavailable(TryLock(lock_path).status());
  const int64_t now_ms = context.NowMs();
  if (context.json()) {
    context.PrintJson(StatusJson(status, now_ms));
  } else {
    context.PrintLines(StatusText(status, now_ms));
  }
  return IsLate(status, now_ms) ? kExitFailed : kExitOk;
}

// A scheduler appends to it for ever. What counts is in keep.log.
void ShortenStderrFile(const ClientPaths& paths) {
  const std::string path = JoinPath(paths.state_dir, kKeepStderrFile);
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && info.st_size > kMaxKeepLogBytes) {
    // When that fails, the next pass tries again.
    if (truncate(path.c_str(), 0) != 0) return;
  }
}

}  // namespace

absl::StatusOr<int> ScheduleKeep(CommandContext& context, bool install, const std::string& every) {
  ASSIGN_OR_RETURN(const absl::Duration period, ParseDuration(every));
  const absl::StatusOr<std::string> done = install ? InstallKeep(period) : UninstallKeep();
  RETURN_IF_ERROR(done.status());
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::string mark = JoinPath(paths.state_dir, kKeepInstalledFile);
  if (install) {
    RETURN_IF_ERROR(MakeDirectories(paths.state_dir));
    RETURN_IF_ERROR(WriteFileAtomic(mark, ""));
  } else {
    (void)unlink(mark.c_str());
  }
  if (context.json()) {
    context.PrintJson({{"installed", install}, {"done", *done}});
  } else {
    context.Say(*done);
  }
  return kExitOk;
}

namespace {

// Says what ScheduleKeep would do.
absl::StatusOr<int> TellSchedule(CommandContext& context, bool install, const std::string& every) {
  ASSIGN_OR_RETURN(const absl::Duration period, ParseDuration(every));
  ASSIGN_OR_RETURN(const std::optional<KeepSchedule> now, FindKeepSchedule());
  std::vector<std::string> lines;
  if (install) {
    ASSIGN_OR_RETURN(lines, DescribeInstallation(period));
    if (now.has_value()) {
      lines.push_back(absl::StrCat("in place of what is installed now: every ",
                                   HumanDuration(now->every), ", ", now->where));
    }
  } else {
    lines.push_back(now.has_value() ? absl::StrCat("would remove what calls gpuctl keep every ",
                                                   HumanDuration(now->every), ": ", now->where)
                                    : "nothing is installed, and nothing would be removed");
  }
  if (context.json()) {
    context.PrintJson({{"dry_run", true}, {"installed", now.has_value()}, {"lines", lines}});
  } else {
    context.PrintLines(lines);
  }
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> CmdKeep(CommandContext& context, std::vector<std::string> args) {
  // A pass of every few minutes would keep all connections for ever.
  context.keeps_links = false;
  ReapFlags flags;
  bool install = false, uninstall = false, tell_status = false;
  std::string every = "5m", forget, wish_id;
  VerbParser parser(
      context, "keep [FLAGS]",
      "Makes one pass of what is to be done while nobody watches: ends instances\n"
      "that nobody wants, as reap -y does; brings the results of runs launched with\n"
      "-d --pull home; does what launch --down and --pull asked for where no living\n"
      "gpuctl shows the run; resumes preempted runs, if their retry says so; answers price\n"
      "rises by their on_price_rise; tells the ends of runs by their notify; starts\n"
      "what waits in batches.",
      "  gpuctl keep --install                every 5 minutes from now on\n"
      "  gpuctl keep --status\n"
      "  gpuctl keep --dry-run\n\n"
      "Writes what it did to keep.log in the state directory. One pass at a time: a\n"
      "second one says so, and exits with 0.");
  parser.Switch("--dry-run", flags.dry_run, "Only say what it would do; also with --install");
  parser.Switch("--install", install, "Let this computer do it by itself, regularly");
  parser.Switch("--uninstall", uninstall, "Undo --install");
  parser.Switch("--status", tell_status, "Say what it did; exits with 1 when it is late");
  parser.Option("--every", every, "With --install: how often");
  parser.Option("--forget", forget, "Call off what launch --down and --pull asked for this RUN");
  parser.Option("--wish", wish_id, "Do this one").Hidden();
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (!wish_id.empty()) return DoWish(context, wish_id);
  if (!forget.empty()) {
    RETURN_IF_ERROR(ForgetWishes(context, forget));
    return kExitOk;
  }
  if (install + uninstall + tell_status > 1 || (tell_status && flags.dry_run)) {
    return UsageError(
        "keep takes one of --install, --uninstall and --status, and --dry-run "
        "beside the first two",
        "gpuctl keep --help");
  }
  if ((install || uninstall) && flags.dry_run) return TellSchedule(context, install, every);
  if (install || uninstall) return ScheduleKeep(context, install, every);
  flags.yes = true;
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::string lock_path = JoinPath(paths.state_dir, "locks/keep");
  if (tell_status) return TellStatus(context, paths, lock_path);
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  KeptDeeds done;
  if (flags.dry_run) {
    KeepLog unused(paths.state_dir);
    return KeepPass(context, flags, unused, signals, done);
  }
  const absl::Status made = MakeDirectories(DirName(lock_path));
  absl::StatusOr<UniqueFd> lock = made.ok() ? TryLock(lock_path) : made;
  if (absl::IsUnavailable(lock.status())) {
    context.Say(absl::StrCat("another gpuctl keep is at work, it holds ", lock_path));
    if (context.json()) context.PrintJson({{"busy", true}});
    return kExitOk;
  }
  if (!lock.ok()) return EndLeaksOnly(context, flags, lock.status());
  ShortenStderrFile(paths);
  KeepLog log(paths.state_dir);
  const int64_t begun_ms = context.NowMs();
  absl::Status logged = log.Begin(begun_ms);
  flags.reaped = [&](const std::string& what, const absl::Status& status,
                     const std::string& result) {
    logged.Update(status.ok() ? log.Deed(context.NowMs(), "reap", what, result)
                              : log.Failure(context.NowMs(), "reap", what, status.message()));
    (status.ok() ? done.deeds : done.failures)
        .push_back({"reap", what, status.ok() ? result : std::string(status.message())});
  };
  const absl::StatusOr<int> code = KeepPass(context, flags, log, signals, done);
  if (!code.ok()) {
    logged.Update(log.Failure(context.NowMs(), "keep", "pass", code.status().message()));
  }
  logged.Update(log.Finish(begun_ms, context.NowMs(),
                           code.ok() ? *code : static_cast<int>(ExitCodeOf(code.status()))));
  if (!logged.ok()) context.Warn(absl::StrCat("keep.log: ", logged.message()));
  if (context.json() && code.ok()) {
    context.PrintJson(
        {{"deeds", LinesToJson(done.deeds)}, {"failures", LinesToJson(done.failures)}});
  }
  return code;
}

}  // namespace gpuctl
