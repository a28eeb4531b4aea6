#include "client/terminal/panel_terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "client/terminal/line_assembler.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kShowCursor = "\x1b[?25h\x1b[0m";
constexpr absl::string_view kHideCursor = "\x1b[?25l";

// What the handlers of fatal signals need.
struct SavedTerminal {
  volatile sig_atomic_t active = 0;
  int fd = -1;
  bool has_attributes = false;
  termios attributes = {};
};
SavedTerminal g_saved;

void RestoreAttributes() {
  if (!g_saved.active) return;
  g_saved.active = 0;
  if (g_saved.has_attributes) tcsetattr(g_saved.fd, TCSANOW, &g_saved.attributes);
  [[maybe_unused]] const ssize_t written =
      write(g_saved.fd, kShowCursor.data(), kShowCursor.size());
}

void OnFatalSignal(int signal) {
  RestoreAttributes();
  std::signal(signal, SIG_DFL);
  raise(signal);
}

absl::Status WaitUntilWritable(int fd, int wake_fd, bool& woken) {
  pollfd polled[2] = {{fd, POLLOUT, 0}, {wake_fd, POLLIN, 0}};
  while (poll(polled, wake_fd >= 0 ? 2 : 1, -1) < 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "wait for the terminal");
  }
  woken = wake_fd >= 0 && (polled[1].revents & POLLIN) != 0;
  return absl::OkStatus();
}

}  // namespace

TerminalSize GetTerminalSize(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

absl::StatusOr<size_t> WriteOrWake(int fd, absl::string_view text, int wake_fd) {
  struct stat info = {};
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  size_t done = 0;
  while (done < text.size()) {
    bool woken = false;
    if (!regular) RETURN_IF_ERROR(WaitUntilWritable(fd, wake_fd, woken));
    if (woken) return done;
    // A pipe that polls writable takes this much without blocking.
    const size_t piece = regular ? text.size() - done : std::min<size_t>(text.size() - done, 4096);
    const ssize_t written = write(fd, text.data() + done, piece);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno == EPIPE || errno == EIO) {
      return absl::UnavailableError("write the output: its reader is gone");
    } else if (errno != EINTR && errno != EAGAIN) {
      return ErrnoStatus(errno, "write the output");
    }
  }
  return done;
}

void PanelTerminal::Start() {
  if (started_) return;
  started_ = true;
  g_saved.fd = fd_;
  g_saved.has_attributes = tcgetattr(fd_, &g_saved.attributes) == 0;
  g_saved.active = 1;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT}) {
    std::signal(signal, OnFatalSignal);
  }
  if (g_saved.has_attributes) {
    termios quiet = g_saved.attributes;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
    tcsetattr(fd_, TCSANOW, &quiet);
  }
  (void)WriteOrWake(fd_, kHideCursor, -1);
}

void PanelTerminal::Restore() {
  if (!started_) return;
  started_ = false;
  (void)WriteOrWake(fd_, Frame({}, {}), -1);
  // What was typed meanwhile was not meant for the shell.
  tcflush(fd_, TCIFLUSH);
  RestoreAttributes();
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT}) {
    std::signal(signal, SIG_DFL);
  }
}

std::string PanelTerminal::Frame(const std::vector<std::string>& log,
                                 const std::vector<std::string>& panel) {
  const int columns = size().columns;
  int rows = 0;
  for (const int width : shown_widths_) rows += std::max(1, (width + columns - 1) / columns);
  // As one update where the terminal knows how (mode 2026), else it flickers a little.
  std::string frame = "\x1b[?2026h\r";
  if (rows > 1) absl::StrAppend(&frame, "\x1b[", rows - 1, "A");
  absl::StrAppend(&frame, "\x1b[J");
  for (const std::string& line : log) absl::StrAppend(&frame, line, "\n");
  shown_widths_.clear();
  for (size_t i = 0; i < panel.size(); ++i) {
    absl::StrAppend(&frame, i == 0 ? "" : "\n", panel[i]);
    shown_widths_.push_back(DisplayWidth(panel[i]));
  }
  absl::StrAppend(&frame, "\x1b[?2026l");
  return frame;
}

}  // namespace gpuctl
