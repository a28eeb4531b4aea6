#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/base/run_program.h"
#include "client/programs/node_programs.h"
#include "client/self_test/job_files.h"
#include "client/self_test/parts.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/process/pipe.h"
#include "common/process/process.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr char kTryByHand[] =
    "try it by hand: gpuctl launch --no-workdir -- sleep 60; node/agent.log in ~/.gpuctl may say "
    "why";

// Returns a field of a run in the JSON of a verb; "" when there is none.
std::string FieldOf(const Json& run, const char* field) {
  if (!run.is_object() || !run.contains(field)) return "";
  return run[field].is_string() ? run[field].get<std::string>() : run[field].dump();
}

// Takes the error out of the JSON that a verb printed instead of its result.
absl::Status ErrorIn(absl::string_view verb, int code, const std::string& output) {
  const Json json = Json::parse(output, nullptr, /*allow_exceptions=*/false);
  const Json error = json.is_object() && json.contains("error") ? json["error"] : Json();
  std::string message = FieldOf(error, "message");
  if (message.empty()) message = absl::StrCat("exit code ", code);
  return WithHint(absl::FailedPreconditionError(absl::StrCat("gpuctl ", verb, ": ", message)),
                  FieldOf(error, "hint"));
}

// Runs gpuctl with directories of its own.
class TestLaptop {
 public:
  TestLaptop(const TestPlace& place, Clock& clock) : dir_(place.dir), clock_(clock) {}

  // Changes the environment of this process and of those that it starts.
  absl::Status Prepare(const PlatformPrograms& programs) {
    for (const auto& [name, below] :
         {std::pair("GPUCTL_STATE_DIR", "state"), std::pair("GPUCTL_CONFIG_DIR", "config"),
          std::pair("GPUCTL_CACHE_DIR", "cache"), std::pair("GPUCTL_NODE_ROOT", "node")}) {
      setenv(name, JoinPath(dir_, below).c_str(), 1);
    }
    // What node fetch brought is in the user's own cache.
    if (programs.fetched) setenv("GPUCTL_NODE_DIR", DirName(programs.dir).c_str(), 1);
    setenv("GPUCTL_KEY_STORE", "file", 1);
    for (const std::string& market : MarketNames()) {
      const std::string own = absl::StrCat("GPUCTL_", absl::AsciiStrToUpper(market), "_API_KEY");
      unsetenv(own.c_str());
      unsetenv(own.substr(absl::string_view("GPUCTL_").size()).c_str());
    }
    sent_.clear();
    for (int i = 0; i < 512; ++i) sent_ += RandomHex(1024);
    RETURN_IF_ERROR(MakeDirectories(JoinPath(dir_, "work")));
    return WriteFileAtomic(JoinPath(dir_, absl::StrCat("work/", kSentFile)), sent_);
  }

  // Runs a verb and returns the JSON that it printed.
  absl::StatusOr<Json> Run(std::vector<std::string> args, int wanted = kExitOk) {
    ASSIGN_OR_RETURN(FdPair ends, MakePipe("make a pipe"));
    const std::string verb = args[0];
    const auto dashes = std::find(args.begin(), args.end(), "--");
    args.insert(dashes, "--json");
    ASSIGN_OR_RETURN(const pid_t pid, Start(args, ends.second.get()));
    ends.second.reset();
    std::string output;
    char buffer[4096];
    for (ssize_t got; (got = read(ends.first.get(), buffer, sizeof(buffer))) != 0;) {
      if (got < 0 && errno != EINTR) break;
      if (got > 0) output.append(buffer, static_cast<size_t>(got));
    }
    const int code = Wait(pid);
    if (code != wanted) return ErrorIn(verb, code, output);
    return Json::parse(output, nullptr, /*allow_exceptions=*/false);
  }

  // Returns the run's object in `ps`, which asks the node.
  absl::StatusOr<Json> Look(const std::string& name) {
    ASSIGN_OR_RETURN(const Json json, Run({"ps", "-a", "-u"}));
    if (json.is_object() && json.contains("runs")) {
      for (const Json& run : json["runs"]) {
        if (FieldOf(run, "name") == name) return run;
      }
    }
    return absl::NotFoundError(absl::StrCat("gpuctl ps does not list ", name));
  }

  absl::Status Launch(const std::string& name, bool with_workdir) {
    const std::string dir = JobDir(name);
    RETURN_IF_ERROR(MakeDirectories(dir));
    RETURN_IF_ERROR(WriteFileAtomic(JobFiles(dir).alive, ""));
    std::vector<std::string> args = {"launch", "-d",     "--provider", "local",   "--name",
                                     name,     "--time", "2m",         "--grace", "1s"};
    if (with_workdir) {
      args.insert(args.end(), {"--workdir", JoinPath(dir_, "work")});
    } else {
      args.push_back("--no-workdir");
    }
    args.insert(args.end(), {"--", ExecutablePath(), "doctor", "--self-test-part", "job",
                             "--self-test-dir", dir});
    RETURN_IF_ERROR(Run(std::move(args)).status());
    return Await(absl::StrCat("the job ", name, " did not begin"),
                 [&] { return PathExists(JobFiles(dir).pid); });
  }

  absl::StatusOr<pid_t> Start(std::vector<std::string> args, int stdout_fd) {
    args.insert(args.begin(), ExecutablePath());
    SpawnOptions options;
    options.argv = std::move(args);
    options.stdout_fd = stdout_fd;
    return Spawn(options);
  }

  static int Wait(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  template <typename Condition>
  absl::Status Await(const std::string& otherwise, const Condition& condition) {
    const absl::Duration end = clock_.SinceBoot() + kPatience;
    while (!condition()) {
      if (clock_.SinceBoot() > end) return absl::DeadlineExceededError(otherwise);
      clock_.SleepFor(absl::Milliseconds(20));
    }
    return absl::OkStatus();
  }

  // Waits for the end of whoever holds the lock.
  absl::Status AwaitEnd(const std::string& lock, const std::string& who) {
    return Await(absl::StrCat(who, " lives on"), [&] { return !IsLocked(lock).value_or(true); });
  }

  std::string JobDir(const std::string& name) const {
    return JoinPath(dir_, absl::StrCat("jobs/", name));
  }
  std::string In(const std::string& below) const { return JoinPath(dir_, below); }
  const std::string& sent() const { return sent_; }

 private:
  const std::string dir_;
  Clock& clock_;
  std::string sent_;
};

// Returns the number in a file; 0 when there is none.
int PidIn(const std::string& path) {
  int pid = 0;
  const bool is = absl::SimpleAtoi(ReadFileToString(path, 64).value_or(std::string()), &pid);
  return is ? pid : 0;
}

int ServerPid(const TestLaptop& laptop) {
  const absl::StatusOr<std::string> note = ReadFileToString(laptop.In("node/node/server.json"));
  if (!note.ok()) return 0;
  const Json json = Json::parse(*note, nullptr, /*allow_exceptions=*/false);
  int pid = 0;
  return absl::SimpleAtoi(FieldOf(json, "pid"), &pid) ? pid : 0;
}

absl::Status Want(const Json& run, const char* field, absl::string_view wanted) {
  const std::string is = FieldOf(run, field);
  if (is == wanted) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("gpuctl says that ", FieldOf(run, "name"), "'s ", field,
                                          " is ", is, ", and it is ", wanted));
}

// Shows the run until it is ready, and leaves it.
absl::Status LeaveAndComeBack(TestLaptop& laptop) {
  for (int times = 0; times < 2; ++times) {
    ASSIGN_OR_RETURN(FdPair ends, MakePipe("make a pipe"));
    ASSIGN_OR_RETURN(const pid_t pid, laptop.Start({"attach", "stopped-1"}, ends.second.get()));
    ends.second.reset();
    std::string shown;
    char buffer[512];
    while (!absl::StrContains(shown, kJobReady)) {
      const ssize_t got = read(ends.first.get(), buffer, sizeof(buffer));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      shown.append(buffer, static_cast<size_t>(got));
    }
    kill(pid, SIGTERM);
    const int code = TestLaptop::Wait(pid);
    if (!absl::StrContains(shown, kJobReady)) {
      return absl::DataLossError("attach ended without the output of the job");
    }
    if (code != 128 + SIGTERM) {
      return absl::DataLossError(absl::StrCat("attach was told to leave, and exited with ", code));
    }
    ASSIGN_OR_RETURN(const Json run, laptop.Look("stopped-1"));
    RETURN_IF_ERROR(Want(run, "status", "running"));
  }
  return absl::OkStatus();
}

absl::Status BringHome(TestLaptop& laptop) {
  RETURN_IF_ERROR(laptop.Run({"pull", "stopped-1", "--to", laptop.In("home")}).status());
  ASSIGN_OR_RETURN(const std::string home,
                   ReadFileToString(laptop.In(absl::StrCat("home/step-1/", kSentFile))));
  if (Sha256HexOf(home) == Sha256HexOf(laptop.sent())) return absl::OkStatus();
  return absl::DataLossError("a file that was sent and came back as a checkpoint has changed");
}

absl::Status Stop(TestLaptop& laptop) {
  RETURN_IF_ERROR(laptop.Run({"stop", "stopped-1"}).status());
  ASSIGN_OR_RETURN(const Json run, laptop.Look("stopped-1"));
  RETURN_IF_ERROR(Want(run, "status", "stopped"));
  const JobFiles files(laptop.JobDir("stopped-1"));
  RETURN_IF_ERROR(laptop.AwaitEnd(files.lock, "the stopped job"));
  RETURN_IF_ERROR(laptop.AwaitEnd(files.orphan_lock, "its child in a session of its own"));
  return laptop.AwaitEnd(files.system_lock,
                         "its child in a session of its own, a program of this system,");
}

absl::Status Kill(int pid, absl::string_view who) {
  if (pid <= 1) return absl::NotFoundError(absl::StrCat("the pid of ", who, " is not known"));
  if (kill(pid, SIGKILL) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("kill ", who));
}

absl::Status KillServer(TestLaptop& laptop) {
  const int before = ServerPid(laptop);
  RETURN_IF_ERROR(Kill(before, "the agent's server"));
  RETURN_IF_ERROR(laptop.Await("no other server was started", [&] {
    const int now = ServerPid(laptop);
    return now > 0 && now != before;
  }));
  ASSIGN_OR_RETURN(const Json run, laptop.Look("killed-1"));
  return Want(run, "status", "running");
}

absl::Status KillJob(TestLaptop& laptop) {
  const JobFiles files(laptop.JobDir("killed-1"));
  RETURN_IF_ERROR(Kill(PidIn(files.pid), "a job"));
  RETURN_IF_ERROR(laptop.Run({"wait", "killed-1"}, 128 + SIGKILL).status());
  ASSIGN_OR_RETURN(const Json run, laptop.Look("killed-1"));
  RETURN_IF_ERROR(Want(run, "status", "failed"));
  RETURN_IF_ERROR(Want(run, "exit_code", "137"));
  return laptop.AwaitEnd(files.orphan_lock, "a child of the killed job");
}

absl::Status KillShim(TestLaptop& laptop) {
  RETURN_IF_ERROR(laptop.Launch("lost-1", /*with_workdir=*/false));
  const JobFiles files(laptop.JobDir("lost-1"));
  RETURN_IF_ERROR(Kill(PidIn(files.shim_pid), "a shim"));
  RETURN_IF_ERROR(laptop.Run({"wait", "lost-1"}, kExitLost).status());
  ASSIGN_OR_RETURN(const Json run, laptop.Look("lost-1"));
  RETURN_IF_ERROR(Want(run, "status", "lost"));
  RETURN_IF_ERROR(laptop.AwaitEnd(files.lock, "the job of a killed shim"));
  return laptop.AwaitEnd(files.orphan_lock, "a child of the job of a killed shim");
}

// Passes on what the agent says of this system: lines of "ok" or "FAIL", name, finding and fix,
// with tabs between them.
bool AskAgent(const PlatformPrograms& programs, Reporter& report) {
  std::vector<std::string> command = {programs.agent, "self-check"};
  if (const char* root = std::getenv("GPUCTL_NODE_ROOT"); root != nullptr && *root != '\0') {
    command.insert(command.end(), {"--root", root});
  }
  const absl::StatusOr<std::string> said = OutputOf(command);
  bool any = false;
  for (const absl::string_view line :
       absl::StrSplit(said.value_or(std::string()), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, '\t');
    if (words.size() != 4) continue;
    report.Add(words[1], {words[0] == "ok", words[2], words[3]});
    any = true;
  }
  if (said.ok() && any) return true;
  report.Fail("agent", absl::StrCat(programs.agent, " does not run here"),
              "install this gpuctl again; on a Mac, look also for a quarantine: xattr -l FILE, and "
              "xattr -d com.apple.quarantine FILE");
  return false;
}

}  // namespace

void TestJobs(const TestPlace& place, Reporter& report) {
  const NodePrograms all = NodePrograms::Find();
  const PlatformPrograms* const programs = all.For(OwnPlatform());
  if (programs == nullptr) {
    const absl::Status missing = all.Missing(OwnPlatform());
    return report.Fail("agent", missing.message(), HintOf(missing));
  }
  if (!AskAgent(*programs, report)) return;
  TestLaptop laptop(place, report.clock());
  bool go_on = true;
  const auto step = [&](const char* name, absl::Status status, const char* found) {
    if (!go_on) return;
    const std::string hint = HintOf(status);
    go_on = status.ok();
    if (status.ok()) return report.Ok(name, found);
    report.Fail(name, status.message(), hint.empty() ? kTryByHand : hint);
  };
  absl::Status begun = laptop.Prepare(*programs);
  if (begun.ok()) begun = laptop.Launch("stopped-1", /*with_workdir=*/true);
  step("job", begun, "the programs and a work directory were sent, and a job began");
  if (!go_on) return;
  step("detach and attach", LeaveAndComeBack(laptop), "twice; the job ran on");
  if (!go_on) return;
  step("results", BringHome(laptop), "a checkpoint came home, with the SHA-256 of what was sent");
  if (!go_on) return;
  if (const absl::Status stopped = Stop(laptop); stopped.ok()) {
    report.Ok("stop", "the job ended, and its children in sessions of their own");
  } else {
    const std::string hint = HintOf(stopped);
    report.Fail("stop", stopped.message(),
                hint.empty()
                    ? "end such children in the job's own handler of SIGTERM; ps shows them"
                    : hint);
  }
  begun = laptop.Launch("killed-1", /*with_workdir=*/false);
  if (begun.ok()) begun = KillServer(laptop);
  step("kill -9 of the agent", begun, "another took over, and the job ran on");
  if (!go_on) return;
  step("kill -9 of a job", KillJob(laptop), "its run failed with 137, and its children are gone");
  if (!go_on) return;
  step("kill -9 of a shim", KillShim(laptop), "its run is lost, and no process of its job lives");
}

}  // namespace gpuctl
