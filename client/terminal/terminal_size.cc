#include "client/terminal/terminal_size.h"

#include <sys/ioctl.h>

namespace gpuctl {

TerminalSize GetTerminalSize(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

}  // namespace gpuctl
