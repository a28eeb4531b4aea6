// Runs the script by sh and by bash, with one tool at a time, against a server on loopback.
#include "provisioning/rental/start_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "common/release/release_route.h"
#include "tests/support/matchers.h"
#include "tests/support/reply_server.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kKey[] = "k-canary_1";

std::string FindTool(const std::string& name) {
  for (const char* dir : {"/bin/", "/usr/bin/", "/usr/local/bin/"}) {
    if (access((dir + name).c_str(), X_OK) == 0) return dir + name;
  }
  return "";
}

std::vector<std::string> VastKey() {
  return {"CONTAINER_ID=17", absl::StrCat("CONTAINER_API_KEY=", kKey)};
}

class StartScriptTest : public ::testing::Test {
 protected:
  // Processes that the script leaves become children of this process, which ends them.
  static void SetUpTestSuite() { ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); }

  StartScriptTest() {
    EXPECT_OK(MakeDirectories(dir_.Sub("path"), 0755));
    for (const char* name :
         {"sh", "date", "sleep", "mkdir", "mv", "rm", "tr", "sed", "grep", "cat"}) {
      AddTool(name);
    }
  }
  ~StartScriptTest() override { EndAll(); }

  void AddTool(const std::string& name) {
    const std::string program = FindTool(name);
    ASSERT_NE(program, "") << name << " is not here";
    ASSERT_EQ(symlink(program.c_str(), dir_.Sub("path/" + name).c_str()), 0);
  }

  // Returns options for a script of `provider` with this API and deadline.
  static StartScriptOptions Options(const std::string& provider, const std::string& base,
                                    absl::Duration until) {
    StartScriptOptions options;
    options.provider = provider;
    options.api_base_url = base;
    options.deadline = Clock::Real().Now() + until;
    return options;
  }
  static std::string Base(const ReplyServer& server) {
    return absl::StrCat("http://127.0.0.1:", server.port());
  }

  // Runs the script in the environment of a container until it returns.
  void Run(const std::string& script, const std::string& shell = "/bin/sh",
           const std::vector<std::string>& key = VastKey()) {
    SpawnOptions spawn;
    spawn.argv = {"/usr/bin/env",
                  "-i",
                  absl::StrCat("PATH=", dir_.Sub("path")),
                  absl::StrCat("GPUCTL_NODE_ROOT=", root()),
                  absl::StrCat("GPUCTL_PID1_ENVIRON=", dir_.Sub("pid1")),
                  absl::StrCat("SSL_CERT_FILE=", dir_.Sub("roots.pem"))};
    spawn.argv.insert(spawn.argv.end(), key.begin(), key.end());
    spawn.argv.insert(spawn.argv.end(), {shell, "-c", script});
    spawn.new_session = true;
    const auto pid = Spawn(spawn);
    ASSERT_OK(pid);
    sessions_.push_back(*pid);
    int status = 0;
    ASSERT_EQ(waitpid(*pid, &status, 0), *pid);
    EXPECT_EQ(status, 0);
  }

  nlohmann::json BootNote() {
    Eventually([&] { return PathExists(JoinPath(root(), "boot.json")); });
    return nlohmann::json::parse(ReadFileToString(JoinPath(root(), "boot.json")).value_or(""),
                                 nullptr, false);
  }

  template <typename Condition>
  void Eventually(Condition condition) {
    const absl::Duration end = Clock::Real().SinceBoot() + absl::Minutes(1);
    bool holds = condition();
    while (!holds && Clock::Real().SinceBoot() < end) {
      Clock::Real().SleepFor(absl::Milliseconds(5));
      holds = condition();
    }
    EXPECT_TRUE(holds);
  }

  // Returns every process of the sessions in which scripts were started.
  std::vector<pid_t> Left() {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    std::vector<pid_t> left;
    const std::vector<std::string> names =
        ListDirectory("/proc").value_or(std::vector<std::string>());
    for (const std::string& name : names) {
      const pid_t pid = atoi(name.c_str());
      if (pid > 0 && std::count(sessions_.begin(), sessions_.end(), getsid(pid)) > 0) {
        left.push_back(pid);
      }
    }
    return left;
  }
  std::string CommandLines() {
    std::string lines;
    for (const pid_t pid : Left()) {
      absl::StrAppend(&lines,
                      ReadFileToString(absl::StrCat("/proc/", pid, "/cmdline")).value_or(""), "\n");
    }
    std::replace(lines.begin(), lines.end(), '\0', ' ');
    return lines;
  }
  void EndAll() {
    Eventually([&] {
      for (const pid_t pid : Left()) kill(pid, SIGKILL);
      return Left().empty();
    });
  }

  std::string root() const { return dir_.Sub("node"); }

  TempDir dir_;
  std::vector<pid_t> sessions_;
};

TEST_F(StartScriptTest, EachToolReleasesAnUnclaimedMachine) {
  for (const std::string tool : {"curl", "python3", "wget"}) {
    AddTool(tool);
    for (const bool vast : {true, false}) {
      ReplyServer server(ReplyServer::Options{});
      const std::vector<std::string> runpod_key = {"RUNPOD_POD_ID=p1",
                                                   absl::StrCat("RUNPOD_API_KEY=", kKey)};
      Run(MakeStartScript(Options(vast ? "vast" : "runpod", Base(server), -absl::Minutes(1)))
              .value(),
          vast ? "/bin/sh" : "/bin/bash", vast ? VastKey() : runpod_key);
      ASSERT_TRUE(server.WaitForRequests(1)) << tool;
      const std::string request = server.requests()[0];
      EXPECT_THAT(request, HasSubstr(absl::StrCat("Authorization: Bearer ", kKey, "\r\n"))) << tool;
      EXPECT_THAT(absl::AsciiStrToLower(request), HasSubstr("user-agent: gpuctl\r\n")) << tool;
      if (vast) {
        EXPECT_THAT(request, StartsWith("DELETE /api/v0/instances/17/ HTTP/1.1\r\n")) << tool;
      } else {
        EXPECT_THAT(request, StartsWith("POST /v2/pods/p1/action HTTP/1.1\r\n")) << tool;
        EXPECT_THAT(absl::AsciiStrToLower(request),
                    HasSubstr("content-type: application/json\r\n"));
        EXPECT_TRUE(absl::EndsWith(request, "\r\n\r\n{\"action\":\"terminate\"}")) << request;
      }
      const nlohmann::json note = BootNote();
      EXPECT_EQ(note["tool"], tool);
      EXPECT_EQ(note["key"], true);
      EndAll();
      EXPECT_OK(RemoveTree(root()));
    }
    ASSERT_EQ(unlink(dir_.Sub("path/" + tool).c_str()), 0);
  }
}

TEST_F(StartScriptTest, OpensslAloneDoesTooAndLooksWhoAnswers) {
  AddTool("openssl");
  TestCa ca;
  dir_.Write("roots.pem", ca.pem());
  for (const bool rightful : {true, false}) {
    ReplyServer::Options serving;
    serving.certificate = ca.Issue(rightful ? "DNS:localhost" : "DNS:other.test");
    ReplyServer server(serving);
    Run(MakeStartScript(
            Options("vast", absl::StrCat("https://localhost:", server.port()), -absl::Minutes(1)))
            .value());
    if (rightful) {
      ASSERT_TRUE(server.WaitForRequests(1));
      EXPECT_THAT(server.requests()[0], StartsWith("DELETE /api/v0/instances/17/ HTTP/1.1\r\n"));
      EXPECT_THAT(server.requests()[0], HasSubstr(absl::StrCat("Bearer ", kKey, "\r\n")));
    } else {
      // The tool has given up when the script waits for the next trial.
      Eventually([&] { return absl::StrContains(CommandLines(), "sleep 20 \n"); });
      EXPECT_THAT(server.requests(), IsEmpty());
    }
    EndAll();
  }
}

TEST_F(StartScriptTest, AClaimedMachineIsLeftAlone) {
  AddTool("curl");
  ReplyServer server(ReplyServer::Options{});
  dir_.Write("node/claimed", "");
  Run(MakeStartScript(Options("vast", Base(server), -absl::Minutes(1))).value());
  BootNote();
  // Only the loop over the guard is left: one shell and its sleep.
  Eventually([&] { return Left().size() <= 2; });
  EXPECT_THAT(server.requests(), IsEmpty());
}

TEST_F(StartScriptTest, WaitsForItsDeadlineAndAsksAtOnceAfterARestart) {
  AddTool("curl");
  ReplyServer server(ReplyServer::Options{});
  const absl::Time begin = Clock::Real().Now();
  const std::string script =
      MakeStartScript(Options("vast", Base(server), absl::Seconds(2))).value();
  Run(script);
  ASSERT_TRUE(server.WaitForRequests(1));
  EXPECT_GE(Clock::Real().Now() - begin, absl::Seconds(1)) << "before its deadline";
  EndAll();
  Run(script);
  ASSERT_TRUE(server.WaitForRequests(2)) << "restarted after the deadline";
}

// A clock that is years behind does not keep the machine alive.
TEST_F(StartScriptTest, UptimeCountsWhereTheClockIsWrong) {
  AddTool("curl");
  ReplyServer server(ReplyServer::Options{});
  auto options = Options("vast", Base(server), absl::Hours(24 * 365));
  options.allowance = absl::Seconds(1);
  Run(MakeStartScript(options).value());
  ASSERT_TRUE(server.WaitForRequests(1));
}

TEST_F(StartScriptTest, TheKeyIsFoundInPid1sEnvironmentAndInNoArgument) {
  AddTool("curl");
  AddTool("wget");
  dir_.Write("pid1", absl::StrCat("A=1", std::string(1, '\0'), "CONTAINER_API_KEY=", kKey,
                                  std::string(1, '\0'), "CONTAINER_ID=17", std::string(1, '\0')));
  ReplyServer::Options silent;
  silent.pieces.clear();
  ReplyServer server(silent);
  Run(MakeStartScript(Options("vast", Base(server), -absl::Minutes(1))).value(), "/bin/sh", {});
  ASSERT_TRUE(server.WaitForRequests(1));
  EXPECT_THAT(server.requests()[0], HasSubstr(kKey));
  const std::string lines = CommandLines();
  EXPECT_THAT(lines, HasSubstr("-A gpuctl -X DELETE "));
  EXPECT_THAT(lines, Not(HasSubstr(kKey)));
  EXPECT_EQ(BootNote()["tool"], "curl wget");
  const std::vector<std::string> names = ListDirectory(root()).value();
  for (const std::string& name : names) {
    EXPECT_THAT(ReadFileToString(JoinPath(root(), name)).value_or(""), Not(HasSubstr(kKey)));
  }
}

TEST_F(StartScriptTest, WithoutToolOrKeyTheNoteSaysSo) {
  Run(MakeStartScript(Options("vast", "https://api.test", -absl::Minutes(1))).value(), "/bin/sh",
      {});
  const nlohmann::json note = BootNote();
  EXPECT_EQ(note["tool"], "none");
  EXPECT_EQ(note["key"], false);
  EXPECT_TRUE(note["deadline_s"].is_number_integer());
}

TEST_F(StartScriptTest, TheGuardIsStartedAgainAndAgain) {
  dir_.Write("node/bin/current/gpuctl-agent",
             absl::StrCat("#!/bin/sh\necho \"$@\" >> ", dir_.Sub("guards"), "\n"), 0755);
  Run(MakeStartScript(Options("vast", "https://api.test", absl::Hours(1))).value());
  const std::string line = absl::StrCat("guard --root ", root(), "\n");
  Eventually([&] { return ReadFileToString(dir_.Sub("guards")).value_or("") == line + line; });
}

// Run returns when the script ends, and with it the container.
TEST_F(StartScriptTest, ACommandThatEndsTheBillEndsWhenNobodyClaims) {
  dir_.Write("node/released", "");  // of an earlier start
  const absl::Time begin = Clock::Real().Now();
  Run(MakeStartScript(Options("test-exit", "", absl::Seconds(2))).value(), "/bin/sh", {});
  EXPECT_GE(Clock::Real().Now() - begin, absl::Seconds(1)) << "before its deadline";
  EXPECT_EQ(BootNote()["tool"], "exit");
  EXPECT_FALSE(PathExists(JoinPath(root(), "released")));
  auto wrong_clock = Options("test-exit", "", absl::Hours(24 * 365));
  wrong_clock.allowance = absl::Seconds(1);
  Run(MakeStartScript(wrong_clock).value(), "/bin/bash", {});
}

TEST_F(StartScriptTest, AClaimedCommandEndsWhenItIsReleased) {
  dir_.Write("node/claimed", "");
  // The agent that the guard's loop starts releases the machine at the second start.
  dir_.Write("node/bin/current/gpuctl-agent",
             absl::StrCat("#!/bin/sh\n[ \"$1\" = guard ] || exit 1\n[ ! -e ", dir_.Sub("twice"),
                          " ] || : >", root(), "/released\n: >", dir_.Sub("twice"), "\n"),
             0755);
  Run(MakeStartScript(Options("test-exit", "", -absl::Minutes(1))).value(), "/bin/sh", {});
  EXPECT_TRUE(PathExists(JoinPath(root(), "released")));
}

// The batch script of an allocation, with a /tmp of its own.
class HeldScriptTest : public StartScriptTest {
 protected:
  HeldScriptTest() {
    for (const char* name : {"id", "df", "ls", "mkfifo", "chmod"}) AddTool(name);
    EXPECT_OK(MakeDirectories(dir_.Sub("system/tmp"), 0755));
    EXPECT_OK(MakeDirectories(dir_.Sub("disk"), 0755));
  }
  StartScriptOptions Held(absl::Duration allowance) {
    StartScriptOptions options = Options("slurm", "", -absl::Hours(1));
    options.allowance = allowance;
    return options;
  }
  std::vector<std::string> Job(const std::vector<std::string>& more = {}) {
    std::vector<std::string> variables = {"SLURM_JOB_ID=17",
                                          absl::StrCat("GPUCTL_SYSTEM_ROOT=", dir_.Sub("system"))};
    variables.insert(variables.end(), more.begin(), more.end());
    return variables;
  }
  std::string Own() const { return absl::StrCat("gpuctl-", getuid()); }
  // The holder is a script with these lines, in a bundle that a client brings: the test's child.
  std::string Holder(const std::string& lines, const std::string& system = "system") {
    const std::string holder = absl::StrCat("holder-", system);
    dir_.Write(holder, absl::StrCat("#!/bin/sh\n", lines), 0755);
    return absl::StrCat("( f=", dir_.Sub(system), "/tmp/", Own(), "/17-0.root\n",
                        "until [ -e \"$f\" ]; do sleep 0.1; done\nread -r r <\"$f\"\n",
                        "cat \"$r/held\" \"$r/boot.json\" >", dir_.Sub("marker"), "\n",
                        "mkdir -p \"$r/bin/new\"\ncat ", dir_.Sub(holder),
                        " >\"$r/bin/new/gpuctl-agent\"\nchmod 700 \"$r/bin/new/gpuctl-agent\"\n",
                        "mv \"$r/bin/new\" \"$r/bin/current\" ) &\n");
  }
  bool IsTidy() {
    return ListDirectory(dir_.Sub("system/tmp/" + Own()))
        .value_or(std::vector<std::string>{"?"})
        .empty();
  }
};

TEST_F(HeldScriptTest, EndsWhenNobodyComes) {
  const absl::Duration begin = Clock::Real().SinceBoot();
  // The deadline is over, but an allocation may begin days after it was asked for.
  Run(MakeStartScript(Held(absl::Seconds(3))).value(), "/bin/sh", Job());
  EXPECT_GE(Clock::Real().SinceBoot() - begin, absl::Seconds(2)) << "before its allowance";
  EXPECT_TRUE(IsTidy());
}

TEST_F(HeldScriptTest, TheHolderIsStartedAgainUntilItHasEndedWell) {
  for (const char* shell : {"/bin/sh", "/bin/bash"}) {
    const std::string come = Holder(
        absl::StrCat("echo \"$1 $2 $3 $4 $GPUCTL_HOLD_GRACE_S\" >>", dir_.Sub("held"), "\n[ -e ",
                     dir_.Sub("twice"), " ] || { : >", dir_.Sub("twice"), "; exit 1; }\n"));
    StartScriptOptions options = Held(absl::Hours(1));
    options.root = dir_.Sub("disk");
    options.grace = absl::Seconds(7);
    Run(absl::StrCat(come, MakeStartScript(options).value()), shell, Job());
    const std::string line =
        absl::StrCat("hold --root ", dir_.Sub("disk/"), Own(), "/17-0 --claim-until 7\n");
    EXPECT_EQ(ReadFileToString(dir_.Sub("held")).value_or(""), line + line);
    EXPECT_THAT(ReadFileToString(dir_.Sub("marker")).value_or(""),
                StartsWith("{\"job\":\"17\",\"restart\":0}\n{\"tool\":\"exit\""));
    EXPECT_TRUE(IsTidy());
    EXPECT_FALSE(PathExists(dir_.Sub("disk/" + Own() + "/17-0")));
    for (const char* file : {"held", "twice"}) ASSERT_EQ(unlink(dir_.Sub(file).c_str()), 0);
  }
}

TEST_F(HeldScriptTest, ASignalReachesTheHolderAndTheScriptWaitsForIt) {
  for (const char* shell : {"/bin/sh", "/bin/bash"}) {
    const std::string come =
        Holder(absl::StrCat("end() { sleep 1; : >", dir_.Sub("ended"), "; exit 0; }\n",
                            "trap end TERM\nkill -TERM $PPID\nwhile :; do sleep 0.1; done\n"));
    Run(absl::StrCat(come, MakeStartScript(Held(absl::Hours(1))).value()), shell, Job());
    EXPECT_EQ(unlink(dir_.Sub("ended").c_str()), 0) << shell;
    EXPECT_TRUE(IsTidy());
  }
}

// With a srun that runs its command here, as the second node, whose /tmp is another one.
TEST_F(HeldScriptTest, TheOtherNodesBeginAndEndWithTheFirst) {
  ASSERT_OK(MakeDirectories(dir_.Sub("second/tmp"), 0755));
  dir_.Write(
      "path/srun",
      absl::StrCat("#!/bin/sh\necho \"$*\" | head -n 1 >", dir_.Sub("asked"),
                   "\nwhile [ \"$1\" != sh ]; do shift; done\n",
                   "SLURM_PROCID=0 GPUCTL_SYSTEM_ROOT=", dir_.Sub("second"), " exec \"$@\"\n"),
      0755);
  AddTool("head");
  const std::string first =
      Holder(absl::StrCat("until [ -e ", dir_.Sub("begun"), " ]; do sleep 0.1; done\n"));
  const std::string second = Holder(
      absl::StrCat("end() { echo $GPUCTL_RESULTS >", dir_.Sub("ended"), "; exit 0; }\n",
                   "trap end TERM\n: >", dir_.Sub("begun"), "\nwhile :; do sleep 0.1; done\n"),
      "second");
  for (const char* shell : {"/bin/sh", "/bin/bash"}) {
    dir_.Write("batch", MakeStartScript(Held(absl::Hours(1))).value());
    Run(absl::StrCat(first, second, shell, " ", dir_.Sub("batch")), shell,
        Job({"SLURM_JOB_NUM_NODES=2", "GPUCTL_ALLOCATION_NODES=2", "GPUCTL_RESULTS=/kept"}));
    EXPECT_EQ(ReadFileToString(dir_.Sub("ended")).value_or(""), "/kept/node-1\n") << shell;
    EXPECT_THAT(ReadFileToString(dir_.Sub("asked")).value_or(""), HasSubstr("--relative=1"));
    EXPECT_TRUE(IsTidy());
    EXPECT_THAT(ListDirectory(dir_.Sub("second/tmp/" + Own())).value(), IsEmpty());
    for (const char* file : {"ended", "begun"}) ASSERT_EQ(unlink(dir_.Sub(file).c_str()), 0);
  }
}

// Two nodes with one /tmp would take each other's files: the second one makes none.
TEST_F(HeldScriptTest, ASharedTmpIsNoneForTheSecondNode) {
  dir_.Write("batch", MakeStartScript(Held(absl::Hours(1))).value());
  const std::string own = dir_.Sub("system/tmp/" + Own());
  ASSERT_OK(MakeDirectories(JoinPath(own, "17-0"), 0700));
  ASSERT_OK(WriteFileAtomic(JoinPath(own, "17-0/kept"), "of the first"));
  Run(absl::StrCat("/bin/sh ", dir_.Sub("batch"), " step 2>/dev/null; [ $? = 1 ]"), "/bin/sh",
      Job({"SLURM_PROCID=0"}));
  EXPECT_TRUE(PathExists(JoinPath(own, "17-0/kept")));
  ASSERT_OK(RemoveTree(own));
}

// What runs without a holder must be ended, too: one more is started for that.
TEST_F(HeldScriptTest, ASignalBetweenTwoHoldersStartsOneThatEnds) {
  const std::string come =
      Holder(absl::StrCat("echo \"$6\" >>", dir_.Sub("held"), "\nkill -TERM $PPID\nkill -9 $$\n"));
  Run(absl::StrCat(come, MakeStartScript(Held(absl::Hours(1))).value()), "/bin/sh", Job());
  EXPECT_EQ(ReadFileToString(dir_.Sub("held")).value_or(""), "\n--end\n");
}

TEST_F(HeldScriptTest, TheFirstUsableDirectoryIsTaken) {
  // An odd name, one that does not exist, and one whose place somebody else has.
  ASSERT_OK(MakeDirectories(dir_.Sub("odd name"), 0755));
  ASSERT_OK(MakeDirectories(dir_.Sub("taken/" + Own()), 0755));
  StartScriptOptions options = Held(absl::Hours(1));
  options.root = dir_.Sub("taken");
  const std::string come = Holder(absl::StrCat("echo \"$3\" >", dir_.Sub("held"), "\n"));
  Run(absl::StrCat(come, MakeStartScript(options).value()), "/bin/sh",
      Job({absl::StrCat("SLURM_TMPDIR=", dir_.Sub("odd name")),
           absl::StrCat("TMPDIR=", dir_.Sub("nowhere"))}));
  EXPECT_EQ(ReadFileToString(dir_.Sub("held")).value_or(""),
            absl::StrCat(dir_.Sub("system/tmp/"), Own(), "/17-0\n"));
  Run(absl::StrCat(come, MakeStartScript(options).value()), "/bin/sh",
      Job({absl::StrCat("TMPDIR=", dir_.Sub("disk"))}));
  EXPECT_EQ(ReadFileToString(dir_.Sub("held")).value_or(""),
            absl::StrCat(dir_.Sub("disk/"), Own(), "/17-0\n"));
}

// The second start of an allocation, with the agent that its first start has kept.
class AgainScriptTest : public HeldScriptTest {
 protected:
  // Runs the script; the kept agent has these lines. A start that hangs is ended after `stalled`
  // seconds. Returns the script's exit code.
  std::string Start(const std::string& shell, const std::string& agent,
                    const std::string& stalled = "1") {
    EXPECT_OK(RemoveTree(dir_.Sub("shared")));
    EXPECT_OK(MakeDirectories(dir_.Sub("shared"), 0755));
    if (!agent.empty()) {
      dir_.Write("shared/again/bin/current/gpuctl-agent", absl::StrCat("#!/bin/sh\n", agent), 0755);
    }
    std::string script = MakeStartScript(Held(absl::Hours(1))).value();
    EXPECT_EQ(absl::StrReplaceAll({{"-lt 300", absl::StrCat("-lt ", stalled)}}, &script), 1);
    Run(absl::StrCat("( ", script, ") 2>", dir_.Sub("said"), "\necho $? >", dir_.Sub("code")),
        shell, Job({"SLURM_RESTART_COUNT=1", absl::StrCat("GPUCTL_RESULTS=", dir_.Sub("shared"))}));
    EXPECT_TRUE(IsTidy());
    EXPECT_FALSE(PathExists(dir_.Sub("system/tmp/" + Own() + "/17-1")));
    return ReadFileToString(dir_.Sub("code")).value_or("");
  }
  std::string Said() { return ReadFileToString(dir_.Sub("said")).value_or(""); }
  // What the login node finds of the start.
  std::string Noted() {
    return ReadFileToString(dir_.Sub("shared/again/failed/17-1")).value_or("");
  }
};

TEST_F(AgainScriptTest, AStartThatHangsEndsAndSaysWhy) {
  ASSERT_EQ(mkfifo(dir_.Sub("hangs").c_str(), 0600), 0);
  for (const char* shell : {"/bin/sh", "/bin/bash"}) {
    // Opening it waits for a writer, as reading from a dead server does.
    EXPECT_EQ(Start(shell, absl::StrCat("read -r x <", dir_.Sub("hangs"), "\n")), "76\n");
    EXPECT_THAT(Noted(), HasSubstr("the file system hung for 300 seconds")) << shell;
    EXPECT_THAT(Said(), HasSubstr("start 1 of job 17: what was kept of it could not be read"));
  }
}

TEST_F(AgainScriptTest, AStartThatWorksLongIsNotEnded) {
  // It works longer than the limit, and its processor time shows that.
  const std::string works = absl::StrCat(
      "up() { read -r x y </proc/uptime; echo ${x%%.*}; }\ne=$(($(up) + 7))\n",
      "while [ $(up) -lt $e ]; do i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); done; done\n",
      "mkdir -p $3/bin/current\nprintf \"#!/bin/sh\\necho \\$1 >", dir_.Sub("held"),
      "\\n\" >$3/bin/current/gpuctl-agent\nchmod 700 $3/bin/current/gpuctl-agent\n");
  EXPECT_EQ(Start("/bin/sh", works, /*stalled=*/"5"), "0\n") << Said();
  EXPECT_EQ(ReadFileToString(dir_.Sub("held")).value_or(""), "hold\n");
  EXPECT_EQ(Noted(), "");
}

TEST_F(AgainScriptTest, AStartThatCannotBeginSaysWhy) {
  for (const char* shell : {"/bin/sh", "/bin/bash"}) {
    EXPECT_EQ(Start(shell, ""), "76\n");
    EXPECT_THAT(Noted(), StartsWith("the programs of the agent are not in "));
    EXPECT_EQ(Start(shell, "kill -9 $$\n"), "76\n");
    EXPECT_EQ(Noted(), "gpuctl-agent start-again ended with 137\n");
    // It has noted the reason, if there is one.
    EXPECT_EQ(Start(shell, "exit 1\n"), "1\n");
    EXPECT_EQ(Noted(), "");
    EXPECT_THAT(Said(), HasSubstr("there is nothing to go on with"));
  }
}

TEST_F(HeldScriptTest, APlaceOfSomebodyElseIsRefused) {
  const std::string place = dir_.Sub("system/tmp/" + Own());
  const std::string script =
      absl::StrCat("( ", MakeStartScript(Held(absl::Hours(1))).value(), ") 2>", dir_.Sub("said"),
                   "\necho $? >", dir_.Sub("code"));
  const auto refused = [&](const std::string& words) {
    Run(script, "/bin/sh", Job());
    EXPECT_EQ(ReadFileToString(dir_.Sub("code")).value_or(""), "1\n");
    EXPECT_THAT(ReadFileToString(dir_.Sub("said")).value_or(""), HasSubstr(words));
  };
  const std::string why = "is not a directory of this user alone (0700): somebody else made it\n";
  ASSERT_OK(MakeDirectories(place, 0755));
  refused(why);
  if (geteuid() == 0) {
    ASSERT_EQ(chmod(place.c_str(), 0700), 0);
    ASSERT_EQ(chown(place.c_str(), 65534, 65534), 0);
    refused(why);
  }
  ASSERT_EQ(rmdir(place.c_str()), 0);
  ASSERT_EQ(symlink(dir_.Sub("disk").c_str(), place.c_str()), 0);
  ASSERT_EQ(chmod(dir_.Sub("disk").c_str(), 0700), 0);
  refused(why);
  ASSERT_EQ(unlink(place.c_str()), 0);
  Run(script, "/bin/sh", {absl::StrCat("GPUCTL_SYSTEM_ROOT=", dir_.Sub("system"))});
  EXPECT_EQ(ReadFileToString(dir_.Sub("said")).value_or(""),
            "gpuctl: no job of Slurm: SLURM_JOB_ID is none\n");
}

// Slurm starts an allocation again after a failed node. What goes on there is a program in the
// results' directory, so that nobody else may have written it.
TEST_F(HeldScriptTest, AnotherStartGoesOnFromADirectoryThatOnlyWeWriteTo) {
  const std::string kept = dir_.Sub("disk/kept");
  ASSERT_OK(MakeDirectories(kept + "/again/bin/current", 0700));
  dir_.Write("disk/kept/again/bin/current/gpuctl-agent",
             absl::StrCat("#!/bin/sh\necho \"$@\" >>", dir_.Sub("again"), "\n"), 0755);
  const std::string script = absl::StrCat("( ", MakeStartScript(Held(absl::Seconds(2))).value(),
                                          ") 2>", dir_.Sub("said"), " || :");
  const auto start = [&](const std::string& count) {
    unlink(dir_.Sub("again").c_str());
    Run(script, "/bin/sh",
        Job({absl::StrCat("SLURM_RESTART_COUNT=", count),
             absl::StrCat(kResultsVariable, "=", kept)}));
    return ReadFileToString(dir_.Sub("again")).value_or("");
  };
  ASSERT_EQ(chmod(kept.c_str(), 0755), 0);
  EXPECT_EQ(start("0"), "") << "the first start has nothing to go on with";
  dir_.Write("disk/kept/18-staged/node_id", "");
  EXPECT_EQ(start("0"), "") << "that is another allocation's";
  dir_.Write("disk/kept/17-staged/node_id", "");
  EXPECT_EQ(start("0"), absl::StrCat("start-again --root ", dir_.Sub("system/tmp/"), Own(),
                                     "/17-0 --from ", kept, "\n"));
  ASSERT_EQ(chmod(kept.c_str(), 0757), 0);
  EXPECT_EQ(start("0"), "") << "others may write there";
  ASSERT_EQ(chmod(kept.c_str(), 0755), 0);
  EXPECT_EQ(start("3"), absl::StrCat("start-again --root ", dir_.Sub("system/tmp/"), Own(),
                                     "/17-3 --from ", kept, "\n"));
  for (const mode_t others : {0775, 0757}) {
    ASSERT_EQ(chmod(kept.c_str(), others), 0);
    EXPECT_EQ(start("3"), "") << others;
    EXPECT_THAT(ReadFileToString(dir_.Sub("said")).value_or(""),
                HasSubstr("kept is not there, or others may write to it\n"));
    EXPECT_TRUE(IsTidy());
  }
  ASSERT_EQ(chmod(kept.c_str(), 0755), 0);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(kept.c_str(), 65534, 65534), 0);
    EXPECT_EQ(start("3"), "") << "somebody else's";
  }
}

TEST_F(StartScriptTest, AnUnclaimedMachineShutsDown) {
  for (const char* name : {"chmod"}) AddTool(name);
  ASSERT_OK(MakeDirectories(dir_.Sub("system/etc/systemd/system"), 0755));
  ASSERT_OK(MakeDirectories(dir_.Sub("system/usr/local/sbin"), 0755));
  const std::string program = dir_.Sub("system/usr/local/sbin/gpuctl-deadline");
  dir_.Write("path/systemctl",
             absl::StrCat("#!/bin/sh\necho \"$@\" >>", dir_.Sub("units"), "\n[ \"$3\" != ",
                          "gpuctl-deadline.service ] || ", program, " >/dev/null 2>&1 &\n"),
             0755);
  dir_.Write("path/gpuctl-test-shutdown",
             absl::StrCat("#!/bin/sh\necho now >>", dir_.Sub("down"), "\n"), 0755);
  auto options = Options("test-shutdown", "", -absl::Minutes(1));
  options.root = root();
  ASSERT_OK(MakeDirectories(root()));
  const std::vector<std::string> system = {absl::StrCat("GPUCTL_SYSTEM_ROOT=", dir_.Sub("system"))};
  dir_.Write("node/claimed", "");
  Run(MakeStartScript(options).value(), "/bin/sh", system);
  Eventually([&] { return Left().empty(); });
  EXPECT_FALSE(PathExists(dir_.Sub("down"))) << "claimed";
  ASSERT_EQ(unlink(JoinPath(root(), "claimed").c_str()), 0);
  Run(MakeStartScript(options).value(), "/bin/bash", system);
  Eventually([&] { return PathExists(dir_.Sub("down")); });
  EXPECT_THAT(ReadFileToString(dir_.Sub("units")).value_or(""),
              HasSubstr("daemon-reload\nenable --now gpuctl-guard.service\n"
                        "enable --now gpuctl-deadline.service\n"));
  EXPECT_THAT(
      ReadFileToString(dir_.Sub("system/etc/systemd/system/gpuctl-guard.service")).value_or(""),
      HasSubstr("User=root\n"));
}

TEST(MakeStartScriptTest, StandsInQuotesAndIsShort) {
  for (const char* provider : {"runpod", "vast", "lambda", "digitalocean", "shadeform", "slurm",
                               "test-exit", "test-shutdown"}) {
    StartScriptOptions options;
    options.provider = provider;
    options.api_base_url = "https://a-rather-long-name.of-a-provider.test:65535/";
    options.deadline = absl::FromUnixSeconds(1'800'000'000);
    const auto script = MakeStartScript(options);
    ASSERT_OK(script);
    printf("%s: %zu characters\n", provider, script->size());
    // That of an allocation comes to sbatch on its stdin.
    if (options.provider != "slurm") {
      EXPECT_LT(script->size(), kStartScriptMaxBytes);
    }
    EXPECT_THAT(*script, StartsWith("#!/bin/sh\n"));
    EXPECT_THAT(*script, Not(HasSubstr("'")));
    EXPECT_THAT(*script, Not(HasSubstr("@")));
    EXPECT_TRUE(std::all_of(script->begin(), script->end(),
                            [](char c) { return c == '\n' || (c >= ' ' && c < 0x7f); }));
    const nlohmann::json json = *script;
    EXPECT_EQ(nlohmann::json::parse(json.dump()).get<std::string>(), *script);
    // The script is tested as it is, and in single quotes for another shell.
    for (const std::string& command : {*script, absl::StrCat("exec bash -n -c '", *script, "'")}) {
      for (const char* shell : {"/bin/sh", "/bin/bash"}) {
        SpawnOptions spawn;
        spawn.argv = {shell, "-c", command};
        if (command == *script) spawn.argv.insert(spawn.argv.begin() + 1, "-n");
        spawn.stderr_fd = 2;
        const pid_t pid = Spawn(spawn).value();
        int status = 0;
        waitpid(pid, &status, 0);
        EXPECT_EQ(status, 0) << provider << " " << shell;
      }
    }
  }
}

TEST(MakeStartScriptTest, RefusesWhatAShellWouldRead) {
  StartScriptOptions options;
  options.provider = "vast";
  for (const char* bad :
       {"", "api.test", "https://a b", "https://$(x)", "https://a;b", "https://a'"}) {
    options.api_base_url = bad;
    EXPECT_THAT(MakeStartScript(options), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
  options.api_base_url = "https://api.test";
  for (const char* bad : {"relative", "/a b", "/a;b", "/a$b"}) {
    options.root = bad;
    EXPECT_THAT(MakeStartScript(options), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
  options.root = "";
  options.provider = "other";
  EXPECT_THAT(MakeStartScript(options), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace gpuctl
