#include "agent/shim/test_job.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/base/processes.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/process/process.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

void AppendU32(uint32_t value, std::string& to) {
  for (int shift = 0; shift < 32; shift += 8) to.push_back(static_cast<char>(value >> shift));
}

}  // namespace

std::string EncodeForShim(const std::map<std::string, std::string>& secrets, bool committed) {
  std::string bytes;
  for (const auto& [name, value] : secrets) {
    AppendU32(static_cast<uint32_t>(name.size()), bytes);
    bytes += name;
    AppendU32(static_cast<uint32_t>(value.size()), bytes);
    bytes += value;
  }
  AppendU32(0xFFFFFFFF, bytes);
  if (committed) bytes.push_back('C');
  return bytes;
}

std::string BinPath(absl::string_view name) {
  const char* dir = getenv("GPUCTL_BIN_DIR");
  // Without ctest the binaries are beside the directory of the test.
  return JoinPath(dir == nullptr ? JoinPath(DirName(DirName(SelfPath(""))), "bin") : dir, name);
}

std::string FakeJobPath() { return JoinPath(DirName(BinPath("x")), "../tests/fake_job"); }

bool WaitUntil(const std::function<bool()>& done) {
  const absl::Duration end = Clock::Real().SinceBoot() + absl::Seconds(60);
  while (!done()) {
    if (Clock::Real().SinceBoot() > end) return false;
    Clock::Real().SleepFor(absl::Milliseconds(1));
  }
  return true;
}

TestJob::TestJob(std::vector<std::string> argv, std::string parent)
    : paths_(JoinPath(parent.empty() ? temp_.path() : parent, NewJobId())) {
  EXPECT_OK(MakeDirectories(paths_.work));
  spec.set_job_id(BaseName(paths_.dir));
  spec.set_run_id("r-test");
  spec.set_grace_ms(60'000);
  for (std::string& argument : argv) spec.add_argv(std::move(argument));
}

TestJob::~TestJob() {
  for (const pid_t shim : shims_) {
    if (shim > 0) {
      kill(shim, SIGKILL);
      waitpid(shim, nullptr, 0);
    }
  }
  EXPECT_OK(SweepJob(paths_, spec.job_id(), absl::Seconds(30), Clock::Real()));
}

std::vector<std::string> TestJob::Bash(const std::string& script) {
  return {"bash", "-eo", "pipefail", "-c", script};
}

pid_t TestJob::Start(int attempt, const std::string& secrets,
                     const std::vector<std::string>& wrapper) {
  if (!PathExists(paths_.spec)) {
    EXPECT_OK(WriteFileAtomic(paths_.spec, FormatStoredSpec({SpecDigest(spec), spec})));
  }
  std::vector<std::string> argv = wrapper;
  for (const std::string& part : {BinPath("gpuctl-shim"), paths_.dir, absl::StrCat(attempt)}) {
    argv.push_back(part);
  }
  std::vector<char*> pointers;
  for (std::string& argument : argv) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  int in[2];
  EXPECT_EQ(pipe(in), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(in[0], STDIN_FILENO);
    close(in[0]);
    close(in[1]);
    setsid();
    execvp(pointers[0], pointers.data());
    _exit(99);
  }
  close(in[0]);
  EXPECT_OK(WriteAll(in[1], secrets, "the shim's stdin"));
  close(in[1]);
  shims_.push_back(pid);
  return pid;
}

int TestJob::Wait(pid_t shim) {
  int status = 0;
  EXPECT_TRUE(WaitUntil([&] { return waitpid(shim, &status, WNOHANG) == shim; }))
      << "the shim does not end; lifecycle: "
      << ReadFileToString(paths_.lifecycle).value_or("none");
  for (pid_t& known : shims_) {
    if (known == shim && (WIFEXITED(status) || WIFSIGNALED(status))) known = -1;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void TestJob::Control(absl::string_view line) {
  // A shim that has just started may not have made its FIFO yet.
  int fd = -1;
  ASSERT_TRUE(WaitUntil([&] {
    fd = open(paths_.control.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0;
  }));
  EXPECT_OK(WriteAll(fd, absl::StrCat(line, "\n"), "control"));
  close(fd);
}

std::string TestJob::Output() const {
  std::string all;
  StreamReader reader(paths_.output, OutputShape(spec));
  const auto extent = reader.GetExtent();
  std::vector<char> buffer(1 << 20);
  for (int64_t at = extent.ok() ? extent->first_offset : 0;;) {
    const auto got = reader.Read(at, buffer.data(), static_cast<int64_t>(buffer.size()));
    if (!got.ok() || *got == 0) return all;
    all.append(buffer.data(), static_cast<size_t>(*got));
    at += *got;
  }
}

std::string TestJob::MetricsText() const { return ReadFileToString(paths_.metrics).value_or(""); }

std::string TestJob::ShimStderr() const {
  return ReadFileToString(paths_.shim_stderr).value_or("");
}

Lifecycle TestJob::ReadLifecycle() const {
  return ParseLifecycle(ReadFileToString(paths_.lifecycle).value_or(""));
}

std::vector<LifecycleEvent> TestJob::Events(LifecycleEvent::Type type) const {
  std::vector<LifecycleEvent> events;
  for (const LifecycleEvent& event : ReadLifecycle().events) {
    if (event.type == type) events.push_back(event);
  }
  return events;
}

LifecycleEvent TestJob::Exited() const {
  const std::vector<LifecycleEvent> exited = Events(LifecycleEvent::Type::kExited);
  EXPECT_EQ(exited.size(), 1u) << ReadFileToString(paths_.lifecycle).value_or("none")
                               << ShimStderr();
  return exited.size() == 1 ? exited[0] : LifecycleEvent();
}

bool TestJob::WaitForOutput(absl::string_view text) {
  return WaitUntil([&] { return absl::StrContains(Output(), text); });
}

bool TestJob::WaitForEvent(LifecycleEvent::Type type) {
  return WaitUntil([&] { return !Events(type).empty(); });
}

bool TestJob::HasProcesses() const { return !MarkedProcesses(spec.job_id()).empty(); }

std::string TestJob::MakeFifo(absl::string_view name) {
  std::string path = temp_.Sub(name);
  EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
  return path;
}

UniqueFd TestJob::Arrive(const std::string& fifo) {
  int fd = -1;
  EXPECT_TRUE(WaitUntil([&] {
    fd = open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0;
  }));
  return UniqueFd(fd);
}

}  // namespace gpuctl
