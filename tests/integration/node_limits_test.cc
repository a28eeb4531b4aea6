// Tests a rented node whose laptop never comes back, with the real parts: limits, guard, server,
// shim, and the request to a provider's API on loopback.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/jobs/job_table.h"
#include "agent/limits/contact.h"
#include "client/link/agent_calls.h"
#include "client/streams/follower.h"
#include "common/base/clock.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "common/process/process.h"
#include "tests/support/loopback_node.h"
#include "tests/support/matchers.h"
#include "tests/support/reply_server.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kKey[] = "k-canary_1";

class NodeLimitsTest : public ::testing::Test {
 protected:
  ~NodeLimitsTest() override { unsetenv("GPUCTL_PROC"); }
  NodeLimitsTest() {
    const std::string environ =
        node_.dir().Write("pid1", absl::StrCat("CONTAINER_ID=17", std::string(1, '\0'),
                                               "CONTAINER_API_KEY=", kKey, std::string(1, '\0')));
    // A user at a terminal of this machine must not count as a user on the node.
    setenv("GPUCTL_PROC", node_.dir().Sub("proc").c_str(), 1);
    // Send the bundle, then start the guard as the start script does, with the container's
    // environment.
    Hello();
    const std::string agent = JoinPath(node_.root().bin_current, "gpuctl-agent");
    for (const char* command : {"shutdown", "guard"}) {
      SpawnOptions spawn;
      spawn.argv = {agent, command, "--root", node_.root_dir()};
      if (std::string(command) == "guard") spawn.argv.push_back("--detach");
      spawn.env = {absl::StrCat("GPUCTL_PID1_ENVIRON=", environ)};
      spawn.stderr_fd = 2;
      int status = 0;
      waitpid(Spawn(spawn).value(), &status, 0);
      EXPECT_EQ(status, 0) << command;
    }
    Eventually([&] { return IsLocked(node_.root().guard_lock).value_or(false); }, "the guard");
  }

  gpuctl::v1::NodeLimits Limits() const {
    gpuctl::v1::NodeLimits limits;
    limits.set_revision(1);
    limits.set_lease_id("l-1");
    limits.set_provider("vast");
    limits.set_instance_id("17");
    limits.set_release_base_url(absl::StrCat("http://127.0.0.1:", provider_.port()));
    limits.set_rate_usd_per_hour(1);
    limits.set_cost_usd(100);
    limits.set_idle_s(600);
    limits.set_salvage_s(3600);
    limits.set_lease_s(72 * 3600);
    limits.set_self_release(true);
    return limits;
  }

  // Makes one call over a link of its own.
  template <typename Request, typename Reply>
  Reply Call(const Request& request,
             grpc::Status (gpuctl::v1::Agent::StubInterface::*method)(grpc::ClientContext*,
                                                                      const Request&, Reply*)) {
    Reply reply;
    const auto links = node_.Links();
    const auto link = links->Connect();
    EXPECT_OK(link);
    if (!link.ok()) return reply;
    grpc::ClientContext context;
    const grpc::Status status = ((*(*link)->agent().stub).*method)(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }
  gpuctl::v1::HelloReply Hello() {
    return Call(gpuctl::v1::HelloRequest(), &gpuctl::v1::Agent::StubInterface::Hello);
  }
  gpuctl::v1::NodeLimitsState Set(const gpuctl::v1::NodeLimits& limits) {
    return Call(limits, &gpuctl::v1::Agent::StubInterface::SetNodeLimits);
  }

  LoopbackNode node_;
  ReplyServer provider_{ReplyServer::Options{}};
};

TEST_F(NodeLimitsTest, AnIdleNodeReleasesItself) {
  EXPECT_FALSE(Hello().has_limits());
  auto limits = Limits();
  const gpuctl::v1::NodeLimitsState state = Set(limits);
  EXPECT_EQ(state.limits().SerializeAsString(), limits.SerializeAsString());
  EXPECT_TRUE(state.can_release()) << state.cannot_release_why();
  EXPECT_EQ(state.reason(), "limit:idle");
  EXPECT_TRUE(PathExists(node_.root().claimed));
  EXPECT_THAT(provider_.requests(), IsEmpty());
  limits.set_idle_s(1);
  EXPECT_EQ(Set(limits).limits().idle_s(), 600) << "the same revision changes nothing";
  limits.set_revision(2);
  EXPECT_EQ(Set(limits).limits().idle_s(), 1);
  ASSERT_TRUE(provider_.WaitForRequests(1));
  EXPECT_THAT(provider_.requests()[0], StartsWith("DELETE /api/v0/instances/17/ HTTP/1.1\r\n"));
  EXPECT_THAT(provider_.requests()[0], HasSubstr(absl::StrCat("Bearer ", kKey, "\r\n")));
  Eventually([&] { return Hello().limits().release_requests() == 1; }, "the note of it");
  EXPECT_EQ(Hello().limits().release_outcome(), "answer 204");
  for (const std::string& file : {node_.root().limits, node_.root().release, node_.root().log}) {
    EXPECT_THAT(ReadFileToString(file).value(), Not(HasSubstr(kKey))) << file;
  }
}

TEST_F(NodeLimitsTest, CostEndsTheJobWithItsCheckpointAndThenTheNode) {
  auto limits = Limits();
  limits.set_cost_usd(5);
  limits.set_spent_before_usd(10);
  limits.set_salvage_s(1);
  const std::string never = node_.dir().Sub("never");
  ASSERT_EQ(mkfifo(never.c_str(), 0600), 0);
  const auto request = node_.Request(
      {TestProgram("fake_job"), "--on-term", "saved", "--barrier", absl::StrCat("end=", never)});
  Set(limits);
  ASSERT_TRUE(provider_.WaitForRequests(1)) << "nothing runs and the money is gone";
  Call(request, &gpuctl::v1::Agent::StubInterface::StartJob);
  const JobPaths job = node_.root().Job(request.spec().job_id());
  Eventually(
      [&] {
        const auto lifecycle = ReadLifecycle(job);
        return lifecycle.ok() && IsOver(*lifecycle);
      },
      "the end of the job");
  EXPECT_EQ(ReadLifecycle(job)->events.back().reason, "limit:cost");
  EXPECT_TRUE(PathExists(JoinPath(job.checkpoints, "saved")));
}

// Kills the guard alone, then the server alone, while a link keeps the node alive.
TEST_F(NodeLimitsTest, KillingGuardAndServerDisarmsNothing) {
  auto limits = Limits();
  limits.set_idle_s(3);
  {
    const auto links = node_.Links();
    const auto link = links->Connect();
    ASSERT_OK(link);
    grpc::ClientContext context;
    gpuctl::v1::NodeLimitsState state;
    ASSERT_TRUE((*link)->agent().stub->SetNodeLimits(&context, limits, &state).ok());
    EXPECT_TRUE(InContact(node_.root()));
    const pid_t guard = node_.OnlyPid("guard");
    ASSERT_GT(guard, 0);
    kill(guard, SIGKILL);
    Eventually([&] { return node_.OnlyPid("guard") != guard; }, "a guard that the server started");
    const pid_t server = node_.OnlyPid("server");
    ASSERT_GT(server, 0);
    kill(server, SIGKILL);
    Eventually([&] { return node_.OnlyPid("server") != server; },
               "a server that the guard started");
    EXPECT_THAT(provider_.requests(), IsEmpty());
  }
  ASSERT_TRUE(provider_.WaitForRequests(1));
}

TEST_F(NodeLimitsTest, ResultsAreKeptUntilTheyAreHome) {
  auto limits = Limits();
  limits.set_idle_s(1);
  const auto request = node_.Request({"/bin/true"});
  {
    // The node is not idle while the link exists.
    const auto links = node_.Links();
    const auto link = links->Connect();
    ASSERT_OK(link);
    grpc::ClientContext set_context, start_context;
    gpuctl::v1::NodeLimitsState state;
    gpuctl::v1::Job job;
    ASSERT_TRUE((*link)->agent().stub->SetNodeLimits(&set_context, limits, &state).ok());
    ASSERT_TRUE((*link)->agent().stub->StartJob(&start_context, request, &job).ok());
    const JobPaths paths = node_.root().Job(request.spec().job_id());
    Eventually(
        [&] {
          const auto state_now = DeriveJob(paths);
          return state_now.ok() && state_now->state() == gpuctl::v1::JOB_STATE_FINISHED;
        },
        "the end of the job");
  }
  const gpuctl::v1::NodeLimitsState kept = Hello().limits();
  EXPECT_FALSE(kept.results_home());
  EXPECT_EQ(kept.reason(), "limit:salvage");
  EXPECT_THAT(provider_.requests(), IsEmpty());
  gpuctl::v1::MarkHomeRequest home;
  home.add_jobs()->set_job_id(request.spec().job_id());
  home.mutable_jobs(0)->set_all_home(true);
  const gpuctl::v1::NodeLimitsState free = Call(home, &gpuctl::v1::Agent::StubInterface::MarkHome);
  EXPECT_TRUE(free.results_home());
  EXPECT_EQ(free.reason(), "limit:idle");
  ASSERT_TRUE(provider_.WaitForRequests(1));
}

TEST_F(NodeLimitsTest, AFailingProviderIsAskedAgain) {
  ReplyServer::Options failing;
  failing.pieces = {"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"};
  ReplyServer provider(failing);
  auto limits = Limits();
  limits.set_release_base_url(absl::StrCat("http://127.0.0.1:", provider.port()));
  limits.set_idle_s(1);
  Set(limits);
  ASSERT_TRUE(provider.WaitForRequests(2));
  EXPECT_EQ(Hello().limits().release_outcome(), "answer 500");
}

TEST_F(NodeLimitsTest, ACommandBesideTheJobIsContact) {
  Set(Limits());
  Eventually([&] { return !InContact(node_.root()); }, "the end of the link");
  const auto links = node_.Links();
  auto command =
      links->RunStreaming(absl::StrCat(BinDir(), "/gpuctl-agent contact --root ", node_.root_dir(),
                                       " --pid $$ </dev/null >/dev/null 2>&1 & exec cat"),
                          [](absl::string_view) {});
  ASSERT_OK(command);
  Eventually([&] { return InContact(node_.root()); }, "the contact");
  ASSERT_OK(WriteAll((*command)->fd(), "x", "the command"));
  char byte = 0;
  EXPECT_EQ(read((*command)->fd(), &byte, 1), 1);
  command->reset();
  Eventually([&] { return !InContact(node_.root()); }, "its end");
}

}  // namespace
}  // namespace gpuctl
