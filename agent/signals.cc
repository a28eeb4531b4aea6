#include "agent/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

namespace gpuctl {
namespace {

volatile sig_atomic_t signal_write_fd = -1;

void Forward(int number) {
  const int saved = errno;
  const unsigned char byte = static_cast<unsigned char>(number);
  // A full pipe has wakened its reader already.
  if (write(signal_write_fd, &byte, 1) < 0) errno = saved;
  errno = saved;
}

}  // namespace

CaughtSignals::CaughtSignals(std::initializer_list<int> signals) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) return;
  for (const int fd : ends) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  read_end_.reset(ends[0]);
  write_end_.reset(ends[1]);
  signal_write_fd = ends[1];
  struct sigaction action {};
  action.sa_handler = Forward;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  for (const int number : signals) sigaction(number, &action, nullptr);
}

int CaughtSignals::Next() {
  unsigned char byte = 0;
  return read(read_end_.get(), &byte, 1) == 1 ? byte : 0;
}

}  // namespace gpuctl
