// Signals as a readable descriptor, for poll loops.
#ifndef GPUCTL_AGENT_SIGNALS_H_
#define GPUCTL_AGENT_SIGNALS_H_

#include <initializer_list>

#include "common/unique_fd.h"

namespace gpuctl {

// While one exists, the given signals are written into a pipe by a handler instead of doing what
// they do. One per process, made before other threads.
class CaughtSignals {
 public:
  CaughtSignals(std::initializer_list<int> signals);
  int fd() const { return read_end_.get(); }
  // The next signal number, or 0 when none is waiting.
  int Next();

 private:
  UniqueFd read_end_;
  UniqueFd write_end_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SIGNALS_H_
