#include "common/process/signal_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "common/process/pipe.h"

namespace gpuctl {
namespace {

// The handler's end of the pipe. It is never closed, so that a late handler cannot write into
// another file.
volatile sig_atomic_t g_write_fd = -1;
int g_read_fd = -1;
pid_t g_process = -1;  // the process that made them

volatile sig_atomic_t g_interrupted = 0;

void OnSignal(int signal) {
  const int saved = errno;
  if (signal == SIGINT) g_interrupted = 1;
  const char byte = static_cast<char>(signal);
  // A full pipe holds thousands of signals already; one more adds nothing.
  [[maybe_unused]] const ssize_t written = write(g_write_fd, &byte, 1);
  errno = saved;
}

absl::Status MakePipeOfProcess() {
  if (g_process == getpid()) return absl::OkStatus();
  ASSIGN_OR_RETURN(FdPair ends, MakePipe("make a pipe for signals"));
  for (const int end : {ends.first.get(), ends.second.get()}) fcntl(end, F_SETFL, O_NONBLOCK);
  g_read_fd = ends.first.release();
  g_write_fd = ends.second.release();
  g_process = getpid();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SignalPipe> SignalPipe::Install(std::initializer_list<int> signals,
                                               WaitingCall waiting_call) {
  RETURN_IF_ERROR(MakePipeOfProcess());
  SignalPipe pipe(g_read_fd);
  for (const int signal : signals) {
    struct sigaction before = {};
    if (sigaction(signal, nullptr, &before) != 0) return ErrnoStatus(errno, "handle a signal");
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    action.sa_flags = waiting_call == WaitingCall::kRestarted ? SA_RESTART : 0;
    sigfillset(&action.sa_mask);
    if (sigaction(signal, &action, nullptr) != 0) return ErrnoStatus(errno, "handle a signal");
    pipe.before_.emplace_back(signal, before);
  }
  return pipe;
}

SignalPipe::SignalPipe(SignalPipe&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), before_(std::exchange(other.before_, {})) {}

SignalPipe::~SignalPipe() {
  for (auto of_signal = before_.rbegin(); of_signal != before_.rend(); ++of_signal) {
    sigaction(of_signal->first, &of_signal->second, nullptr);
  }
}

bool TakeInterrupted() {
  const bool interrupted = g_interrupted != 0;
  if (interrupted) g_interrupted = 0;
  return interrupted;
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
