// Flags that a verb passes on to the built-in trainer as they are typed; the trainer checks them.
#ifndef GPUCTL_CLIENT_VERBS_PASSED_FLAGS_H_
#define GPUCTL_CLIENT_VERBS_PASSED_FLAGS_H_

#include <deque>
#include <string>
#include <vector>

#include "client/base/flag_set.h"

namespace gpuctl {

class PassedFlags {
 public:
  // Declares --`name`, with a value. This object must outlive the parsing.
  void Declare(FlagSet& set, const std::string& name, const std::string& help);
  bool given(const std::string& name) const;
  // Adds "--name=value" for each flag that the command line has.
  void AddTo(std::vector<std::string>& words) const;

 private:
  struct Passed {
    std::string name, value;
    FlagSet::Flag flag;
  };
  std::deque<Passed> flags_;  // their places stay
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_PASSED_FLAGS_H_
