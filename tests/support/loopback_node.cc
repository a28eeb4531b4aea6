#include "tests/support/loopback_node.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/pipe.h"

namespace gpuctl {
namespace {

// Returns the command line (or, for a job's process, the environment) of a process.
std::string ProcText(const std::string& pid, const char* file) {
  return ReadFileToString(absl::StrCat("/proc/", pid, "/", file), 4 << 20).value_or("");
}

bool IsZombie(const std::string& pid) {
  const std::string stat = ProcText(pid, "stat");
  const size_t end = stat.rfind(')');
  return end == std::string::npos || stat.substr(end + 2, 1) == "Z";
}

std::vector<pid_t> FindProcesses(const std::function<bool(const std::string& pid)>& wanted) {
  std::vector<pid_t> found;
  const std::vector<std::string> names =
      ListDirectory("/proc").value_or(std::vector<std::string>());
  for (const std::string& name : names) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(name, &pid) || pid == getpid() || IsZombie(name)) continue;
    if (wanted(name)) found.push_back(pid);
  }
  return found;
}

}  // namespace

std::string BinDir() {
  const char* dir = getenv("GPUCTL_BIN_DIR");
  EXPECT_NE(dir, nullptr) << "GPUCTL_BIN_DIR is not set; run this by ctest";
  return dir != nullptr ? dir : ".";
}

std::string TestProgram(const std::string& name) {
  return absl::StrCat(BinDir(), "/../tests/", name);
}

bool Eventually(const std::function<bool()>& condition, const std::string& what) {
  for (int i = 0; i < 12'000; ++i) {
    if (condition()) return true;
    poll(nullptr, 0, 5);
  }
  ADD_FAILURE() << "never happened: " << what;
  return false;
}

std::string ReadStream(const std::string& path, StreamShape shape) {
  StreamReader reader(path, shape);
  std::string contents;
  std::string buffer(1 << 20, '\0');
  int64_t offset = reader.GetExtent().value_or(Extent{}).first_offset;
  for (;;) {
    const absl::StatusOr<int64_t> got =
        reader.Read(offset, buffer.data(), static_cast<int64_t>(buffer.size()));
    EXPECT_TRUE(got.ok()) << got.status();
    if (!got.ok() || *got == 0) return contents;
    contents.append(buffer, 0, static_cast<size_t>(*got));
    offset += *got;
  }
}

LoopbackNode::LoopbackNode() { EXPECT_TRUE(MakeDirectories(state_dir()).ok()); }

LoopbackNode::~LoopbackNode() {
  const std::string root = root_dir();
  auto ours = [&root](const std::string& pid) {
    return absl::StrContains(ProcText(pid, "cmdline"), root) ||
           absl::StrContains(ProcText(pid, "environ"), root);
  };
  // Guards end first, so that nothing is started again.
  for (const pid_t pid : Pids("guard")) kill(pid, SIGKILL);
  Eventually(
      [&] {
        const std::vector<pid_t> left = FindProcesses(ours);
        for (const pid_t pid : left) kill(pid, SIGKILL);
        return left.empty();
      },
      "the end of all processes of the node");
}

SshLinkOptions LoopbackNode::Options() const {
  SshLinkOptions options;
  options.target.provider = "local";
  options.target.name = "local";
  options.target.root = root_dir();
  options.state_dir = state_dir();
  options.programs =
      ProgramsAt(absl::StrCat(BinDir(), "/gpuctl-agent"), absl::StrCat(BinDir(), "/gpuctl-shim"));
  return options;
}

gpuctl::v1::StartJobRequest LoopbackNode::Request(
    std::vector<std::string> argv, const std::function<void(gpuctl::v1::JobSpec&)>& change) const {
  gpuctl::v1::StartJobRequest request;
  gpuctl::v1::JobSpec& spec = *request.mutable_spec();
  spec.set_job_id(NewJobId());
  spec.set_run_id(NewRunId());
  for (std::string& argument : argv) spec.add_argv(std::move(argument));
  if (change) change(spec);
  request.set_spec_digest(SpecDigest(spec));
  return request;
}

FollowOptions LoopbackNode::Following(const gpuctl::v1::StartJobRequest& request,
                                      const std::string& mirror) const {
  FollowOptions options;
  options.job_id = request.spec().job_id();
  options.client_id = NewRunId();
  options.mirror_dir = dir_.Sub(mirror);
  options.output_segment_bytes = request.spec().output_segment_bytes();
  options.start.emplace().start = request;
  return options;
}

std::vector<pid_t> LoopbackNode::Pids(const std::string& what) const {
  const std::string root = root_dir();
  return FindProcesses([&](const std::string& pid) {
    const std::string command = ProcText(pid, "cmdline");
    return absl::StrContains(command, root) && absl::StrContains(command, what);
  });
}

pid_t LoopbackNode::OnlyPid(const std::string& what) const {
  pid_t only = -1;
  Eventually(
      [&] {
        const std::vector<pid_t> pids = Pids(what);
        if (pids.size() == 1) only = pids[0];
        return pids.size() == 1;
      },
      "a single " + what);
  return only;
}

SshdListener::SshdListener(const std::string& state_dir)
    : sshd_(PrepareLocalSshd(JoinPath(state_dir, "ssh/local")).value()) {
  listener_.reset(socket(AF_INET, SOCK_STREAM, 0));
  fcntl(listener_.get(), F_SETFD, FD_CLOEXEC);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(listener_.get(), 64), 0);
  socklen_t size = sizeof(address);
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  FdPair stop = MakePipe("stop the listener").value();
  stop_read_ = std::move(stop.first);
  stop_write_ = std::move(stop.second);
  thread_ = std::thread([this] { Run(); });
}

SshdListener::~SshdListener() {
  stop_write_.reset();
  thread_.join();
  for (const pid_t pid : pids()) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

std::vector<pid_t> SshdListener::pids() {
  MutexLock lock(mutex_);
  return pids_;
}

void SshdListener::Run() {
  for (;;) {
    pollfd waited[2] = {{listener_.get(), POLLIN, 0}, {stop_read_.get(), POLLIN, 0}};
    poll(waited, 2, -1);
    if (waited[1].revents != 0) return;
    UniqueFd connection(accept(listener_.get(), nullptr, nullptr));
    if (!connection.valid()) continue;
    fcntl(connection.get(), F_SETFD, FD_CLOEXEC);
    const absl::StatusOr<int> pid = ServeLocalSshd(sshd_, connection);
    if (!pid.ok()) continue;
    MutexLock lock(mutex_);
    pids_.push_back(*pid);
  }
}

}  // namespace gpuctl
