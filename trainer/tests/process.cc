#include "trainer/tests/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "trainer/base/files.h"

extern char** environ;

namespace gpuctl::trainer {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Process::Process(const std::string& directory, const std::vector<std::string>& command,
                 const std::map<std::string, std::string>& environment)
    : out_(directory + "/stdout"), err_(directory + "/stderr") {
  std::vector<std::string> arguments = command;
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string(*entry).rfind("GPUCTL_", 0) != 0) variables.emplace_back(*entry);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), kFlags, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), kFlags, 0600);
  const int error = posix_spawn(&pid_, arguments[0].c_str(), &actions, nullptr,
                                Pointers(arguments).data(), Pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + arguments[0]);
}

Process::~Process() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Process::Signal(int number) const { kill(pid_, number); }

Ended Process::Wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  Ended ended;
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  ended.out = ReadWholeFile(out_);
  ended.err = ReadWholeFile(err_);
  return ended;
}

MetricsFifo::MetricsFifo(const std::string& path) : path_(path) {
  if (mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("mkfifo failed");
  // Open it to read and write: then it never reaches the end of file while writers come and go.
  fd_ = open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd_ < 0) throw std::runtime_error("cannot open the FIFO");
}

MetricsFifo::~MetricsFifo() { close(fd_); }

bool MetricsFifo::Fill(int timeout_ms) {
  struct pollfd readable = {fd_, POLLIN, 0};
  if (poll(&readable, 1, timeout_ms) <= 0) return false;
  char bytes[65536];
  const ssize_t count = read(fd_, bytes, sizeof(bytes));
  if (count <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(count));
  return true;
}

nlohmann::json MetricsFifo::WaitFor(const std::function<bool(const nlohmann::json&)>& wanted) {
  constexpr int kPatienceMs = 60000;
  do {
    size_t end;
    while ((end = buffer_.find('\n')) != std::string::npos) {
      const auto line = nlohmann::json::parse(buffer_.substr(0, end));
      buffer_.erase(0, end + 1);
      if (wanted(line)) return line;
    }
  } while (Fill(kPatienceMs));
  return nullptr;
}

std::vector<nlohmann::json> MetricsFifo::Rest() {
  while (Fill(0)) {
  }
  std::vector<nlohmann::json> lines;
  size_t end;
  while ((end = buffer_.find('\n')) != std::string::npos) {
    lines.push_back(nlohmann::json::parse(buffer_.substr(0, end)));
    buffer_.erase(0, end + 1);
  }
  return lines;
}

}  // namespace gpuctl::trainer
