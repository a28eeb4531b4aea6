// Tests what a node guarantees, with the real parts: one start per job, correct attempts, limits,
// privacy.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/bundle/bundle.h"
#include "agent/jobs/job_table.h"
#include "client/base/known_hosts.h"
#include "client/link/agent_calls.h"
#include "client/streams/follower.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/link_fault.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "common/transfer/error_detail.h"
#include "tests/support/loopback_node.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Type = LifecycleEvent::Type;

class NodeTest : public ::testing::Test {
 protected:
  absl::Status Follow(const gpuctl::v1::StartJobRequest& request) {
    const auto links = node_.Links();
    return Follower(node_.Following(request), *links, observer_, Clock::Real()).Follow();
  }
  JobPaths Job(const gpuctl::v1::StartJobRequest& request) const {
    return node_.root().Job(request.spec().job_id());
  }
  std::string Output(const gpuctl::v1::StartJobRequest& request) const {
    return ReadStream(Job(request).output, StreamShape{kDefaultSegmentBytes});
  }
  std::vector<LifecycleEvent> Events(const gpuctl::v1::StartJobRequest& request, Type type) const {
    std::vector<LifecycleEvent> found;
    const Lifecycle lifecycle = ReadLifecycle(Job(request)).value();
    for (const LifecycleEvent& event : lifecycle.events) {
      if (event.type == type) found.push_back(event);
    }
    return found;
  }

  LoopbackNode node_;
  FollowObserver observer_;
};

TEST_F(NodeTest, StartJobRepeatedAndRacedStartsOnce) {
  const std::string runs = node_.dir().Sub("runs");
  const auto request = node_.Request({TestProgram("fake_job"), "--once", runs});
  std::vector<std::unique_ptr<LinkFactory>> factories;
  std::vector<std::unique_ptr<Link>> links;
  for (int i = 0; i < 4; ++i) {
    factories.push_back(node_.Links());
    links.push_back(factories.back()->Connect().value());
  }
  std::atomic<int> answered{0};
  std::vector<std::thread> racers;
  for (int i = 0; i < 16; ++i) {
    racers.emplace_back([&, i] {
      for (int repeat = 0; repeat < 5; ++repeat) {
        grpc::ClientContext context;
        gpuctl::v1::Job job;
        const grpc::Status status =
            links[static_cast<size_t>(i) % links.size()]->agent().stub->StartJob(&context, request,
                                                                                 &job);
        if (status.ok()) ++answered;
      }
    });
  }
  for (std::thread& racer : racers) racer.join();
  EXPECT_EQ(answered, 80);
  ASSERT_OK(Follow(request));
  EXPECT_THAT(Events(request, Type::kStarted), SizeIs(1));
  EXPECT_THAT(Events(request, Type::kExited), SizeIs(1));
  EXPECT_EQ(ReadFileToString(runs).value(), "run\n");
}

TEST_F(NodeTest, TheSameIdWithAnotherSpecIsRefused) {
  const auto request = node_.Request({"/bin/true"});
  ASSERT_OK(Follow(request));
  auto other = request;
  other.mutable_spec()->add_argv("--version");
  other.set_spec_digest(SpecDigest(other.spec()));
  EXPECT_THAT(Follow(other), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Events(request, Type::kStarted), SizeIs(1));
}

TEST_F(NodeTest, BadIdsAndEmptyCommandsAreRefused) {
  auto request = node_.Request({"/bin/true"});
  request.mutable_spec()->set_job_id("../../etc");
  EXPECT_THAT(Follow(request), StatusIs(absl::StatusCode::kInvalidArgument));
  auto empty = node_.Request({});
  EXPECT_THAT(Follow(empty), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(NodeTest, RetriesKeepAttemptsAndOffsetsTrue) {
  // The job fails twice with exit code 75 after some output and a metric, then succeeds.
  const auto request = node_.Request(
      {"/bin/sh", "-c",
       "echo attempt $GPUCTL_ATTEMPT; echo '{\"loss\":'$GPUCTL_ATTEMPT'}' > $GPUCTL_METRICS; "
       "[ $GPUCTL_ATTEMPT -ge 3 ] || exit 75"},
      [](gpuctl::v1::JobSpec& spec) {
        spec.mutable_retry()->set_max_retries(5);
        spec.mutable_retry()->add_on("exit:75");
        spec.mutable_retry()->set_backoff_ms(1);
      });
  ASSERT_OK(Follow(request));
  const std::string output = Output(request);
  EXPECT_EQ(output, "attempt 1\nattempt 2\nattempt 3\n");
  const auto started = Events(request, Type::kStarted);
  const auto exited = Events(request, Type::kExited);
  ASSERT_THAT(started, SizeIs(3));
  ASSERT_THAT(exited, SizeIs(3));
  for (int i = 0; i < 3; ++i) {
    const size_t at = static_cast<size_t>(i);
    EXPECT_EQ(started[at].attempt, i + 1);
    EXPECT_EQ(exited[at].attempt, i + 1);
    EXPECT_EQ(started[at].output_size, i * 10);
    EXPECT_EQ(exited[at].output_size, (i + 1) * 10);
    EXPECT_EQ(exited[at].exit_code, i < 2 ? 75 : 0);
  }
  const std::string metrics = ReadFileToString(Job(request).metrics).value();
  const std::vector<std::string> lines = absl::StrSplit(metrics, '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, SizeIs(3));
  for (int i = 0; i < 3; ++i) {
    const auto json = nlohmann::json::parse(lines[static_cast<size_t>(i)], nullptr, false);
    ASSERT_FALSE(json.is_discarded());
    EXPECT_EQ(json["gpuctl"]["attempt"], i + 1);
    EXPECT_EQ(json["loss"], i + 1);
    EXPECT_GE(json["gpuctl"]["output_offset"], i * 10);
    EXPECT_LE(json["gpuctl"]["output_offset"], (i + 1) * 10);
  }
}

TEST_F(NodeTest, TimeLimitEndsTheJobWithItsCheckpoint) {
  const auto request =
      node_.Request({TestProgram("fake_job"), "--on-term", "saved", "--barrier",
                     absl::StrCat("end=", node_.dir().Sub("never"))},
                    [](gpuctl::v1::JobSpec& spec) { spec.mutable_limits()->set_time_s(1); });
  ASSERT_EQ(mkfifo(node_.dir().Sub("never").c_str(), 0600), 0);
  ASSERT_OK(Follow(request));
  const auto exited = Events(request, Type::kExited);
  ASSERT_THAT(exited, SizeIs(1));
  EXPECT_EQ(exited[0].reason, "limit:time");
  EXPECT_TRUE(PathExists(JoinPath(Job(request).checkpoints, "saved")));
}

TEST_F(NodeTest, SocketIsPrivateAndNoTcpPortIsOpen) {
  const std::string fifo = node_.dir().Sub("hold");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const auto request =
      node_.Request({TestProgram("fake_job"), "--barrier", absl::StrCat("end=", fifo)});
  std::thread following([&] { EXPECT_OK(Follow(request)); });
  UniqueFd gate;
  Eventually(
      [&] {
        gate.reset(open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
        return gate.valid();
      },
      "the job");
  struct stat info {};
  ASSERT_EQ(stat(node_.root().socket.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(node_.root_dir().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  // The inodes of all listening sockets of the machine; none may be ours.
  std::string listening;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp"}) {
    const std::string text = ReadFileToString(table).value_or("");
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words.size() > 9 && (words[3] == "0A" || words[3] == "07")) {
        absl::StrAppend(&listening, " socket:[", words[9], "] ");
      }
    }
  }
  int sockets = 0;
  for (const char* what : {"guard", "server", "gpuctl-shim", "bridge"}) {
    const std::vector<pid_t> pids = node_.Pids(what);
    EXPECT_FALSE(pids.empty()) << what;
    for (const pid_t pid : pids) {
      const std::string dir = absl::StrCat("/proc/", pid, "/fd");
      const std::vector<std::string> names =
          ListDirectory(dir).value_or(std::vector<std::string>());
      for (const std::string& fd : names) {
        char target[256] = "";
        if (readlink(JoinPath(dir, fd).c_str(), target, sizeof(target) - 1) < 0) continue;
        if (absl::StartsWith(target, "socket:")) ++sockets;
        EXPECT_FALSE(absl::StrContains(listening, absl::StrCat(" ", target, " "))) << what;
      }
    }
  }
  EXPECT_GT(sockets, 0) << "no descriptor was looked at";
  gate.reset();
  following.join();
}

TEST_F(NodeTest, ACanarySecretIsNowhereButInTheJob) {
  const std::string canary = absl::StrCat("canary-", RandomHex(12));
  const std::string fifo = node_.dir().Sub("hold");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  auto request = node_.Request(
      {"/bin/bash", "-c", absl::StrCat("[ ${#TOKEN} = 31 ] && echo has it; read x < ", fifo)},
      [](gpuctl::v1::JobSpec& spec) { spec.add_secret_names("TOKEN"); });
  (*request.mutable_secrets())["TOKEN"] = canary;
  std::thread following([&] { EXPECT_OK(Follow(request)); });
  UniqueFd gate;
  Eventually(
      [&] {
        gate.reset(open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
        return gate.valid();
      },
      "the job");
  int looked_at = 0;
  const std::vector<std::string> names = ListDirectory("/proc").value();
  for (const std::string& name : names) {
    const std::string argv =
        ReadFileToString(absl::StrCat("/proc/", name, "/cmdline"), 4 << 20).value_or("");
    looked_at += argv.empty() ? 0 : 1;
    EXPECT_FALSE(absl::StrContains(argv, canary)) << argv;
  }
  EXPECT_GT(looked_at, 5);
  // The secret is in no environment of our processes, only in the job's.
  for (const char* what : {"guard", "server", "gpuctl-shim", "bridge"}) {
    for (const pid_t pid : node_.Pids(what)) {
      const std::string env =
          ReadFileToString(absl::StrCat("/proc/", pid, "/environ"), 4 << 20).value_or("");
      EXPECT_FALSE(absl::StrContains(env, canary)) << what;
    }
  }
  gate.reset();
  following.join();
  EXPECT_EQ(Output(request), "has it\n");
  int files = 0;
  const std::function<void(const std::string&)> search = [&](const std::string& dir) {
    const std::vector<std::string> entries =
        ListDirectory(dir).value_or(std::vector<std::string>());
    for (const std::string& entry : entries) {
      const std::string path = JoinPath(dir, entry);
      struct stat info {};
      if (lstat(path.c_str(), &info) != 0) continue;
      if (S_ISDIR(info.st_mode)) search(path);
      if (!S_ISREG(info.st_mode)) continue;
      ++files;
      EXPECT_FALSE(absl::StrContains(ReadFileToString(path, 1 << 28).value_or(""), canary)) << path;
    }
  };
  search(node_.dir().path());
  EXPECT_GT(files, 10);
}

TEST_F(NodeTest, AJobThatNeedsASecretIsNotStartedWithoutIt) {
  const auto request = node_.Request(
      {"/bin/true"}, [](gpuctl::v1::JobSpec& spec) { spec.add_secret_names("TOKEN"); });
  EXPECT_THAT(Follow(request),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("secret TOKEN")));
  EXPECT_THAT(Events(request, Type::kStarted), IsEmpty());
}

TEST_F(NodeTest, MissingContentIsPushedOnDemand) {
  const auto request = node_.Request({"/bin/cat", "a.txt"}, [](gpuctl::v1::JobSpec& spec) {
    spec.set_manifest_digest(std::string(64, 'a'));
  });
  const auto links = node_.Links();
  FollowOptions options = node_.Following(request);
  int pushes = 0;
  options.start->push_content = [&] {
    ++pushes;
    return absl::UnknownError("nothing to push");
  };
  EXPECT_THAT(Follower(options, *links, observer_, Clock::Real()).Follow(),
              StatusIs(absl::StatusCode::kUnknown));
  EXPECT_EQ(pushes, 1);
  EXPECT_FALSE(PathExists(Job(request).spec));
}

TEST_F(NodeTest, AnUpgradeTakesTheNodeOverWhileTheJobRuns) {
  const std::string fifo = node_.dir().Sub("hold");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const auto request =
      node_.Request({TestProgram("fake_job"), "--barrier", absl::StrCat("end=", fifo)});
  std::thread following([&] { EXPECT_OK(Follow(request)); });
  UniqueFd gate;
  Eventually(
      [&] {
        gate.reset(open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
        return gate.valid();
      },
      "the job");
  const pid_t guard = node_.OnlyPid("guard");
  const pid_t server = node_.OnlyPid("server");
  SshLinkOptions options = node_.Options();
  options.programs = ProgramsAt(
      node_.dir().Write(
          "newer",
          ReadFileToString(absl::StrCat(BinDir(), "/gpuctl-agent"), 1 << 28).value() + "newer",
          0755),
      absl::StrCat(BinDir(), "/gpuctl-shim"));
  const auto newer = MakeSshLinkFactory(options);
  // The first link may reach the old server while it ends; a later link reaches its successor.
  Eventually(
      [&] {
        const auto link = newer->Connect();
        if (!link.ok()) return false;
        grpc::ClientContext context;
        gpuctl::v1::HelloReply reply;
        return (*link)->agent().stub->Hello(&context, {}, &reply).ok() &&
               node_.OnlyPid("server") != server;
      },
      "the new server");
  EXPECT_EQ(node_.OnlyPid("guard"), guard) << "the guard keeps its pid";
  gate.reset();
  following.join();
  const auto exited = Events(request, Type::kExited);
  ASSERT_THAT(exited, SizeIs(1));
  EXPECT_EQ(exited[0].exit_code, 0);
  // An older bundle does not replace a newer one.
  const std::string current = CurrentBundle(node_.root());
  const auto older = node_.Links()->Connect();
  ASSERT_OK(older);
  grpc::ClientContext context;
  gpuctl::v1::HelloReply reply;
  EXPECT_TRUE((*older)->agent().stub->Hello(&context, {}, &reply).ok());
  EXPECT_EQ(CurrentBundle(node_.root()), current);
}

// Guard and server die together while no laptop is connected: only the shim notices.
TEST_F(NodeTest, AShimAloneBringsGuardAndServerBack) {
  const std::string fifo = node_.dir().Sub("hold");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const auto request =
      node_.Request({TestProgram("fake_job"), "--barrier", absl::StrCat("end=", fifo)});
  {
    const auto link = node_.Links()->Connect();
    ASSERT_OK(link);
    grpc::ClientContext context;
    gpuctl::v1::Job job;
    ASSERT_TRUE((*link)->agent().stub->StartJob(&context, request, &job).ok());
  }
  Eventually([&] { return node_.Pids("bridge").empty(); }, "the end of the link");
  const pid_t guard = node_.OnlyPid("guard");
  const pid_t server = node_.OnlyPid("server");
  ASSERT_GT(guard, 0);
  ASSERT_GT(server, 0);
  kill(guard, SIGSTOP);
  kill(server, SIGKILL);
  kill(guard, SIGKILL);
  Eventually([&] { return node_.OnlyPid("server") != server && node_.OnlyPid("guard") != guard; },
             "their successors");
  // The new guard is no part of the job, so the job's end does not wait for it.
  UniqueFd gate;
  Eventually(
      [&] {
        gate.reset(open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
        return gate.valid();
      },
      "the job");
  gate.reset();
  Eventually([&] { return Events(request, Type::kExited).size() == 1; }, "the end of the job");
  EXPECT_GT(node_.OnlyPid("guard"), 0);
}

TEST_F(NodeTest, AnotherHostKeyIsRefused) {
  {
    const auto link = node_.Links()->Connect();
    ASSERT_OK(link);
  }
  for (const char* file : {"host_key", "host_key.pub"}) {
    ASSERT_EQ(unlink(JoinPath(node_.state_dir(), absl::StrCat("ssh/local/", file)).c_str()), 0);
  }
  const auto link = node_.Links()->Connect();
  EXPECT_THAT(link, StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("host key")));
  EXPECT_EQ(FaultOf(link.status()), LinkFault::kHostKeyChanged);
}

// A rented machine's key is known before the first contact.
TEST_F(NodeTest, OnlyTheGivenHostKeyIsAccepted) {
  ASSERT_OK(PrepareLocalSshd(JoinPath(node_.state_dir(), "ssh/local")));
  const auto line = ReadFileToString(JoinPath(node_.state_dir(), "ssh/local/host_key.pub"));
  ASSERT_OK(line);
  const std::vector<std::string> words = absl::StrSplit(*line, ' ');
  ASSERT_GE(words.size(), 2u);
  SshLinkOptions options = node_.Options();
  int told = 0;
  options.on_new_host_key = [&told](absl::string_view) { ++told; };
  // Another machine in its place is not accepted at the first contact, and it is not pinned.
  options.target.given_host_key = absl::StrCat("SHA256:", std::string(43, 'A'));
  for (int i = 0; i < 2; ++i) {
    const auto link = MakeSshLinkFactory(options)->Connect();
    EXPECT_THAT(link, StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("gpuctl gave")));
    EXPECT_EQ(FaultOf(link.status()), LinkFault::kForeignHostKey);
  }
  options.target.given_host_key = KeyFingerprint(words[1]);
  EXPECT_OK(MakeSshLinkFactory(options)->Connect());
  EXPECT_EQ(told, 0);
  // Not even with an accepted one in between, nor when somebody removed the pin.
  options.target.given_host_key = absl::StrCat("SHA256:", std::string(43, 'A'));
  ASSERT_OK(RemoveTree(JoinPath(node_.state_dir(), "ssh/host-keys")));
  EXPECT_THAT(MakeSshLinkFactory(options)->Connect(),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

// Tests with a script in place of the agent; the test gives the script's bridge.
class ScriptedAgentTest : public NodeTest {
 protected:
  absl::Status StatusOfLinkTo(const std::string& bridge,
                              const std::string& sha256 = "sha256sum \"$2\" | cut -c -64") {
    SshLinkOptions options = node_.Options();
    options.programs =
        ProgramsAt(node_.dir().Write(
                       absl::StrCat("agent-", ++agents_),
                       absl::StrCat("#!/bin/sh\ncase $1 in\nsha256) ", sha256,
                                    ";;\napi-level) echo 1;;\n", "bridge) ", bridge, ";;\nesac\n"),
                       0755),
                   absl::StrCat(BinDir(), "/gpuctl-shim"));
    const auto links = MakeSshLinkFactory(options);
    const auto link = links->Connect();
    if (!link.ok()) return link.status();
    Eventually([&link] { return !(*link)->status().ok(); }, "the end of the bridge");
    return (*link)->status();
  }

 private:
  int agents_ = 0;
};

TEST_F(ScriptedAgentTest, ABridgeTellsTheKindOfItsFailure) {
  gpuctl::v1::ErrorDetail detail;
  detail.set_kind(gpuctl::v1::ErrorDetail::KIND_SERVER_STUCK);
  detail.set_root("/a root");
  const std::string hex = absl::BytesToHexString(detail.SerializeAsString());
  const absl::Status stuck = StatusOfLinkTo(
      absl::StrCat("echo hello; echo; echo GPUCTL-FAULT 1 ", hex, "; echo 'it hangs' >&2; exit 1"));
  EXPECT_THAT(stuck, StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("start the agent's bridge: exit 1: it hangs")));
  EXPECT_EQ(FaultOf(stuck), LinkFault::kServerStuck);
  EXPECT_EQ(DetailOf(stuck).root(), "/a root");
}

TEST_F(ScriptedAgentTest, ABridgeOfAnOlderBuildHasFailedAndNoMore) {
  const absl::Status old = StatusOfLinkTo(
      "echo \"gpuctl-agent: bridge: the agent's server here is older (api level 1, this gpuctl "
      "needs "
      "2) and has not made way for the new one; this ends it, and no job: reboot\" >&2; exit 1");
  EXPECT_THAT(old, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has not made way")));
  EXPECT_EQ(FaultOf(old), LinkFault::kNone);
}

TEST_F(ScriptedAgentTest, AnAgentThatCannotRunIsKnownByWhatHappenedToIt) {
  for (const int code : {126, 127}) {
    const absl::Status status = StatusOfLinkTo(absl::StrCat("exit ", code));
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(FaultOf(status), LinkFault::kAgentCannotRun) << status;
  }
  // Other exit codes of a bridge with the same first digits.
  for (const int code : {1, 12, 120, 125, 129}) {
    EXPECT_EQ(FaultOf(StatusOfLinkTo(absl::StrCat("exit ", code))), LinkFault::kNone) << code;
  }
  EXPECT_EQ(FaultOf(StatusOfLinkTo("exit 0", "exit 1")), LinkFault::kAgentCannotRun);
  const absl::Status damaged = StatusOfLinkTo("exit 0", "echo 0");
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_EQ(FaultOf(damaged), LinkFault::kAgentCannotRun);
}

}  // namespace
}  // namespace gpuctl
