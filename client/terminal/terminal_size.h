// How many characters a terminal shows.
#ifndef GPUCTL_CLIENT_TERMINAL_TERMINAL_SIZE_H_
#define GPUCTL_CLIENT_TERMINAL_TERMINAL_SIZE_H_

namespace gpuctl {

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};
// Returns the size of the terminal on `fd`; 80x24 when it does not tell.
TerminalSize GetTerminalSize(int fd);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_TERMINAL_SIZE_H_
