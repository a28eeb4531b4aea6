// The static binaries where nothing else is: an empty root directory, and the root of another
// Debian release ($GPUCTL_OTHER_ROOT, made by ./test with debootstrap; "off" leaves that part out).
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "agent/job_table.h"
#include "common/files.h"
#include "common/ids.h"
#include "common/process.h"
#include "common/sha256.h"
#include "gpuctl/v1/agent.grpc.pb.h"
#include "tests/fakes/loopback_node.h"
#include "tests/matchers.h"

namespace gpuctl {
namespace {

using ::testing::StartsWith;

class ChrootTest : public ::testing::Test {
 protected:
  void TearDown() override {
    if (guard_ > 0) {
      kill(guard_, SIGTERM);
      int status = 0;
      EXPECT_EQ(waitpid(guard_, &status, 0), guard_);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    if (!programs_.empty()) {
      EXPECT_OK(RemoveTree(programs_));
    }
  }

  // Copies the programs into `root`/<name>, and starts a guard there.
  void StartGuard(const std::string& root, const std::string& name) {
    programs_ = JoinPath(root, name);
    ASSERT_OK(MakeDirectories(programs_));
    for (const char* program : {"gpuctl-agent", "gpuctl-shim"}) {
      ASSERT_OK(WriteFileAtomic(JoinPath(programs_, program),
                                ReadFileToString(JoinPath(BinDir(), program), 1 << 28).value(),
                                0755));
    }
    inside_ = absl::StrCat("/", name);
    SpawnOptions spawn;
    spawn.argv = {"/usr/sbin/chroot",
                  root,
                  absl::StrCat(inside_, "/gpuctl-agent"),
                  "guard",
                  "--root",
                  absl::StrCat(inside_, "/node")};
    if (geteuid() != 0) spawn.argv.insert(spawn.argv.begin(), {"/usr/bin/unshare", "-r"});
    spawn.stderr_fd = 2;
    guard_ = Spawn(spawn).value();
    node_ = JoinPath(programs_, "node");
  }

  // Runs a job through the agent's socket and returns its output.
  std::string RunJob(std::vector<std::string> argv) {
    Eventually([&] { return PathExists(JoinPath(node_, "agent.sock")); }, "the socket");
    EXPECT_EQ(chdir(node_.c_str()), 0);
    const auto stub = gpuctl::v1::Agent::NewStub(
        grpc::CreateChannel("unix:agent.sock", grpc::InsecureChannelCredentials()));
    gpuctl::v1::StartJobRequest request;
    request.mutable_spec()->set_job_id(NewJobId());
    for (std::string& argument : argv) request.mutable_spec()->add_argv(std::move(argument));
    request.set_spec_digest(SpecDigest(request.spec()));
    gpuctl::v1::Job job;
    const JobPaths paths = RootPaths(node_).Job(request.spec().job_id());
    Eventually(
        [&] {
          grpc::ClientContext context;
          return stub->StartJob(&context, request, &job).ok();
        },
        "StartJob");
    Eventually(
        [&] {
          const absl::StatusOr<gpuctl::v1::Job> state = DeriveJob(paths);
          return state.ok() && state->state() == gpuctl::v1::JOB_STATE_FINISHED;
        },
        "the end of the job");
    EXPECT_EQ(DeriveJob(paths)->exit_code(), 0);
    return ReadStream(paths.output, StreamShape{kDefaultSegmentBytes});
  }

  pid_t guard_ = -1;
  std::string programs_;
  std::string inside_;
  std::string node_;
};

TEST_F(ChrootTest, GuardServerAndShimRunInAnEmptyRoot) {
  TempDir empty;
  StartGuard(empty.path(), "g");
  const std::string expected =
      absl::StrCat(Sha256HexOfFile(JoinPath(BinDir(), "gpuctl-shim")).value(), "\n");
  EXPECT_EQ(RunJob({"/g/gpuctl-agent", "sha256", "/g/gpuctl-shim"}), expected);
  TearDown();
  guard_ = -1;
  programs_.clear();
}

TEST_F(ChrootTest, GuardServerAndShimRunInAnotherRelease) {
  const char* other = getenv("GPUCTL_OTHER_ROOT");
  ASSERT_NE(other, nullptr) << "GPUCTL_OTHER_ROOT is not set: ./test makes and names one";
  if (std::string(other) == "off") {
    printf("NOT TESTED: GPUCTL_OTHER_ROOT=off\n");
    return;
  }
  ASSERT_TRUE(PathExists(JoinPath(other, "etc/debian_version"))) << other;
  StartGuard(other, absl::StrCat("g-", RandomHex(4)));
  EXPECT_THAT(RunJob({"/bin/sh", "-c", "cat /etc/debian_version; id -u; /bin/bash --version"}),
              StartsWith(ReadFileToString(JoinPath(other, "etc/debian_version")).value()));
}

}  // namespace
}  // namespace gpuctl
