#include "client/signal_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "common/status_macros.h"

namespace gpuctl {
namespace {

// The handler's end. Never closed once made: a late handler must not write into another file.
int g_write_fd = -1;
int g_read_fd = -1;

void OnSignal(int signal) {
  const int saved = errno;
  const char byte = static_cast<char>(signal);
  // A full pipe holds thousands of signals already; one more says nothing new.
  [[maybe_unused]] const ssize_t written = write(g_write_fd, &byte, 1);
  errno = saved;
}

absl::Status MakePipe() {
  if (g_read_fd >= 0) return absl::OkStatus();
  int ends[2];
  if (pipe(ends) != 0) return ErrnoStatus(errno, "make a pipe for signals");
  for (const int end : ends) {
    fcntl(end, F_SETFD, FD_CLOEXEC);
    fcntl(end, F_SETFL, O_NONBLOCK);
  }
  g_read_fd = ends[0];
  g_write_fd = ends[1];
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SignalPipe> SignalPipe::Install(std::initializer_list<int> signals) {
  RETURN_IF_ERROR(MakePipe());
  SignalPipe pipe(g_read_fd);
  for (const int signal : signals) {
    struct sigaction before = {};
    if (signal == SIGHUP && sigaction(signal, nullptr, &before) == 0 &&
        before.sa_handler == SIG_IGN) {
      continue;
    }
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    sigemptyset(&action.sa_mask);
    // No SA_RESTART: a write to a blocked terminal must come back.
    if (sigaction(signal, &action, nullptr) != 0) return ErrnoStatus(errno, "handle a signal");
    pipe.signals_.push_back(signal);
  }
  return pipe;
}

SignalPipe::SignalPipe(SignalPipe&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), signals_(std::exchange(other.signals_, {})) {}

SignalPipe::~SignalPipe() {
  for (const int signal : signals_) std::signal(signal, SIG_DFL);
}

std::vector<int> SignalPipe::Take() {
  std::vector<int> signals;
  char bytes[64];
  ssize_t count = 0;
  while ((count = read(fd_, bytes, sizeof(bytes))) > 0) {
    for (ssize_t i = 0; i < count; ++i) signals.push_back(bytes[i]);
  }
  return signals;
}

}  // namespace gpuctl
