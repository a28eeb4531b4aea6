#include "client/self_test/self_test.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/self_test/part_process.h"
#include "client/self_test/parts.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

// All parts end within this time; what is left of a minute is for tidying up.
constexpr absl::Duration kAll = absl::Seconds(46);
constexpr absl::Duration kCleanWithin = absl::Seconds(4);

struct Part {
  const char* name;
  absl::Duration limit;
  const char* clean;  // the part that removes what it leaves elsewhere; nullptr: nothing
  const char* fix;    // when it takes too long
};

constexpr char kTooSlow[] = "try again when this computer has less to do";
const Part kParts[] = {
    {"key-store", absl::Seconds(8), "clean-key-store",
     "unlock the keychain: something asks for a password, maybe in a window; or export "
     "GPUCTL_KEY_STORE=file"},
    {"scheduler", absl::Seconds(15), "clean-scheduler", kTooSlow},
    {"sshd", absl::Seconds(12), nullptr,
     "`sshd -T` must work; or try again when this computer has less to do"},
    {"files", absl::Seconds(12), nullptr,
     "put the state directory on a local disk: export GPUCTL_STATE_DIR=/a/local/directory"},
    {"clocks", absl::Seconds(5), nullptr, kTooSlow},
    {"jobs", kAll, nullptr, kTooSlow},
};

// The directories that are not there yet and that parts may make: removed at the end if they are
// empty.
class NewDirectories {
 public:
  void Note(std::string path) {
    for (; path.size() > 1 && !PathExists(path); path = DirName(path)) missing_.push_back(path);
  }
  void RemoveEmpty() {
    // The deepest of each path comes first.
    for (const std::string& path : missing_) rmdir(path.c_str());
  }

 private:
  std::vector<std::string> missing_;
};

class SelfTest {
 public:
  SelfTest(TestPlace place, SignalPipe& signals, Clock& clock,
           const std::function<void(const TestCheck&)>& on_check)
      : place_(std::move(place)), signals_(signals), clock_(clock), on_check_(on_check) {
    if (const absl::StatusOr<ClientPaths> paths = ClientPaths::FromEnvironment(); paths.ok()) {
      state_dir_ = paths->state_dir;
      made_.Note(state_dir_);
    }
    // The schedulers' directories.
    if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
      made_.Note(JoinPath(home, "Library/LaunchAgents"));
      made_.Note(JoinPath(home, ".config/systemd/user/timers.target.wants"));
    }
    if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config == '/') {
      made_.Note(JoinPath(config, "systemd/user/timers.target.wants"));
    }
  }

  absl::Status Run(const Console& console) {
    const absl::Duration end = clock_.SinceBoot() + kAll;
    Reporter terminal(clock_, on_check_);
    TestTerminal(console, terminal);
    for (const Part& part : kParts) {
      interrupted_ = interrupted_ || !signals_.Take().empty();
      if (interrupted_) break;
      RunOne(part, std::min(part.limit, end - clock_.SinceBoot()));
    }
    const absl::Duration begin = clock_.SinceBoot();
    const absl::Status cleaned = CleanUp();
    if (interrupted_) {
      return WithExitCode(
          absl::CancelledError(cleaned.ok() ? "the self-test was interrupted; nothing is left of it"
                                            : absl::StrCat("the self-test was interrupted, and ",
                                                           cleaned.message())),
          kExitInterrupted);
    }
    on_check_({"nothing is left", cleaned.ok(),
               cleaned.ok() ? "no process, file, secret or scheduled job of the self-test"
                            : std::string(cleaned.message()),
               cleaned.ok() ? ""
                            : absl::StrCat("remove it by hand: what has self-test-", place_.token(),
                                           " in its name"),
               clock_.SinceBoot() - begin});
    return absl::OkStatus();
  }

 private:
  void RunOne(const Part& part, absl::Duration limit) {
    const absl::Duration begin = clock_.SinceBoot();
    std::vector<TestCheck> checks;
    bool any = false;
    // A failed check waits for the end of the part, which may have said more on stderr.
    const PartEnd end =
        RunPart(part.name, place_, limit, signals_.fd(), [&](absl::string_view line) {
          const std::optional<TestCheck> check = CheckFromJson(line);
          if (!check.has_value()) return;
          any = true;
          if (check->ok && checks.empty()) return on_check_(*check);
          checks.push_back(*check);
        });
    interrupted_ = absl::IsCancelled(end.status);
    if (interrupted_) return;
    for (TestCheck& check : checks) {
      if (!check.ok && !end.last_words.empty()) {
        absl::StrAppend(&check.found, " (", end.last_words, ")");
      }
      on_check_(check);
    }
    if (end.status.ok() && any) return;
    if (part.clean != nullptr) unclean_.push_back(part.clean);
    on_check_({part.name, false,
               absl::StrCat(end.status.message(), end.status.ok() ? "it said nothing" : "",
                            end.last_words.empty() ? "" : ": ", end.last_words),
               part.fix, clock_.SinceBoot() - begin});
  }

  absl::Status CleanUp() {
    absl::Status status;
    if (interrupted_) {
      for (const Part& part : kParts) {
        if (part.clean != nullptr) unclean_.push_back(part.clean);
      }
    }
    // A part that has ended has cleaned up after itself.
    for (const char* clean : unclean_) {
      status.Update(Annotate(
          RunPart(clean, place_, kCleanWithin, -1, [](absl::string_view) {}).status, clean));
    }
    status.Update(KillProcesses(absl::StrCat("self-test-", place_.token()), kCleanWithin, clock_));
    status.Update(RemoveTree(place_.dir));
    const std::string there = place_.InStateDir(state_dir_);
    if (PathExists(there)) status.Update(RemoveTree(there));
    made_.RemoveEmpty();
    return status;
  }

  const TestPlace place_;
  SignalPipe& signals_;
  Clock& clock_;
  const std::function<void(const TestCheck&)>& on_check_;
  std::string state_dir_;
  NewDirectories made_;
  std::vector<const char*> unclean_;
  bool interrupted_ = false;
};

int CodeOf(const absl::Status& status) { return status.ok() ? kExitOk : kExitFailed; }

}  // namespace

absl::Status RunSelfTest(CommandContext& context,
                         const std::function<void(const TestCheck&)>& on_check) {
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  absl::StatusOr<std::string> dir = MakeTempDirectory("gpuctl-self-test-");
  if (!dir.ok()) return WithHint(dir.status(), "make it writable, or set TMPDIR");
  SelfTest test({*std::move(dir)}, signals, Clock::Real(), on_check);
  return test.Run(context);
}

absl::StatusOr<int> RunSelfTestPart(CommandContext& context, const std::string& part,
                                    const std::string& dir) {
  const TestPlace place{dir};
  // A part that is killed leaves its temporary files there.
  setenv("TMPDIR", dir.c_str(), 1);
  Reporter report(context.clock,
                  [&](const TestCheck& check) { context.PrintJson(CheckToJson(check)); });
  const std::map<std::string, std::function<int()>> parts = {
      {"key-store", [&] { return TestKeyStore(place, report), 0; }},
      {"clean-key-store", [&] { return CodeOf(CleanKeyStore(place)); }},
      {"scheduler", [&] { return TestScheduler(place, report), 0; }},
      {"clean-scheduler", [&] { return CodeOf(CleanScheduler(place)); }},
      {"sshd", [&] { return TestSshd(place, report), 0; }},
      {"files", [&] { return TestFiles(place, report), 0; }},
      {"hold-lock", [&] { return HoldLock(place); }},
      {"clocks", [&] { return TestClocks(report), 0; }},
      {"jobs", [&] { return TestJobs(place, report), 0; }},
      {"job", [&] { return RunTestJob(place, context.clock); }},
      {"orphans", [&] { return MakeOrphans(place); }},
      {"orphan", [&] { return RunOrphan(place, context.clock); }},
  };
  const auto found = parts.find(part);
  if (found == parts.end() || dir.empty()) {
    return UsageError("no such part of the self-test", "gpuctl doctor --self-test does all");
  }
  return found->second();
}

}  // namespace gpuctl
