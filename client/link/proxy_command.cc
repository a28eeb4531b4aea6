#include "client/link/proxy_command.h"

#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/link/local_sshd.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

// Time for a command that gives up to say so and end.
constexpr absl::Duration kLastWords = absl::Milliseconds(500);
constexpr size_t kLongestLine = 4096;

class Words : public ProxyWords {
 public:
  std::string LastLine() override {
    MutexLock lock(mutex_);
    while (!ended_) {
      if (!changed_.WaitFor(mutex_, kLastWords)) break;
    }
    return last_;
  }
  void Add(absl::string_view line) {
    MutexLock lock(mutex_);
    last_ = std::string(line);
  }
  void End() {
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::string last_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Reads lines until nobody can write any more. Parts of a line that is too long count as lines.
void ReadLines(const UniqueFd& from, const std::function<void(absl::string_view)>& on_line) {
  std::string line;
  const auto finish = [&] {
    const absl::string_view text = absl::StripTrailingAsciiWhitespace(line);
    if (!text.empty()) on_line(text);
    line.clear();
  };
  char piece[1024];
  while (true) {
    const ssize_t got = read(from.get(), piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (const char c : absl::string_view(piece, static_cast<size_t>(got))) {
      line += c;
      if (c == '\n' || line.size() >= kLongestLine) finish();
    }
  }
  finish();
}

}  // namespace

absl::StatusOr<ProxyConnection> StartProxyCommand(
    const std::string& command, std::function<void(absl::string_view line)> on_line) {
  ASSIGN_OR_RETURN(FdPair ends, MakeSocketPair("start the proxy command"));
  ASSIGN_OR_RETURN(FdPair said, MakePipe("start the proxy command"));
  SpawnOptions spawn;
  spawn.argv = {"/bin/sh", "-c", absl::StrCat("exec ", command)};
  spawn.stdin_fd = ends.second.get();
  spawn.stdout_fd = ends.second.get();
  spawn.stderr_fd = said.second.get();
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(spawn));
  ReapLater(pid);
  auto words = std::make_shared<Words>();
  std::thread([words, on_line = std::move(on_line), from = std::move(said.first)] {
    ReadLines(from, [&](absl::string_view line) {
      words->Add(line);
      if (on_line) on_line(line);
    });
    words->End();
  }).detach();
  return ProxyConnection{std::move(ends.first), std::move(words)};
}

}  // namespace gpuctl
