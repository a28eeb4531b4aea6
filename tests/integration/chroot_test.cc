// Tests the static binaries without any other file: in an empty root directory, and in the root of
// another Debian release ($GPUCTL_OTHER_ROOT, made by ./test with debootstrap; "off" leaves that
// part out).
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/jobs/job_table.h"
#include "agent/limits/node_limits_store.h"
#include "common/base/ids.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/process/process.h"
#include "gpuctl/v1/agent.grpc.pb.h"
#include "tests/support/loopback_node.h"
#include "tests/support/matchers.h"
#include "tests/support/reply_server.h"

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

// A node requests its own end: it resolves names by the root's own files, takes its trusted
// certificates from the file beside the program, and reads none of OpenSSL's configuration.
TEST_F(ChrootTest, ReleaseReachesItsProviderFromABareRoot) {
  std::vector<std::string> roots;
  TempDir empty;
  roots.push_back(empty.path());
  // A static program could not load what this configuration names.
  empty.Write("usr/lib/ssl/openssl.cnf",
              "openssl_conf = a\n[a]\nproviders = b\n[b]\nlegacy = c\n[c]\nactivate = 1\n");
  TestCa ca;
  ReplyServer::Options serving;
  serving.certificate = ca.Issue("DNS:api.test");
  ReplyServer provider(serving);
  const char* other = getenv("GPUCTL_OTHER_ROOT");
  if (other != nullptr && PathExists(JoinPath(other, "etc/debian_version"))) {
    roots.push_back(other);
  } else {
    printf("NOT TESTED: another release; GPUCTL_OTHER_ROOT names none\n");
  }
  for (const std::string& root : roots) {
    const std::string hosts = JoinPath(root, "etc/hosts");
    const absl::StatusOr<std::string> hosts_before = ReadFileToString(hosts);
    ASSERT_OK(MakeDirectories(DirName(hosts), 0755));
    ASSERT_OK(WriteFileAtomic(hosts, "127.0.0.1 localhost api.test\n", 0644));
    const std::string name = absl::StrCat("r-", RandomHex(4));
    programs_ = JoinPath(root, name);
    ASSERT_OK(MakeDirectories(JoinPath(programs_, "node")));
    ASSERT_OK(WriteFileAtomic(JoinPath(programs_, "gpuctl-agent"),
                              ReadFileToString(JoinPath(BinDir(), "gpuctl-agent"), 1 << 28).value(),
                              0755));
    ASSERT_OK(WriteFileAtomic(JoinPath(programs_, "roots.pem"), ca.pem()));
    gpuctl::v1::NodeLimits limits;
    limits.set_revision(1);
    limits.set_provider("vast");
    limits.set_instance_id("17");
    limits.set_release_base_url(absl::StrCat("https://api.test:", provider.port()));
    limits.set_self_release(true);
    ASSERT_OK(StoreNodeLimits(RootPaths(JoinPath(programs_, "node")), limits, {}));
    SpawnOptions spawn;
    spawn.argv = {"/usr/sbin/chroot", root,     absl::StrCat("/", name, "/gpuctl-agent"),
                  "release",          "--root", absl::StrCat("/", name, "/node")};
    if (geteuid() != 0) spawn.argv.insert(spawn.argv.begin(), {"/usr/bin/unshare", "-r"});
    spawn.env = {"CONTAINER_ID=17", "CONTAINER_API_KEY=k"};
    spawn.stderr_fd = 2;
    const size_t before = provider.requests().size();
    int status = -1;
    ASSERT_GT(waitpid(Spawn(spawn).value(), &status, 0), 0);
    EXPECT_EQ(status, 0) << root;
    EXPECT_EQ(provider.requests().size(), before + 1) << root;
    if (hosts_before.ok()) {
      EXPECT_OK(WriteFileAtomic(hosts, *hosts_before, 0644));
    }
    EXPECT_OK(RemoveTree(programs_));
    programs_.clear();
  }
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
