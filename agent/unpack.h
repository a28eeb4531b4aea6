// `gpuctl-agent unpack`: makes the other program of a bundle, of which most is in this one.
#ifndef GPUCTL_AGENT_UNPACK_H_
#define GPUCTL_AGENT_UNPACK_H_

#include <string>

namespace gpuctl {

// Reads from `input` what PackAgainst made of a program with the file `base`, and writes the
// program to `target`, mode 0700. Returns the exit code: 0, or 1 after printing why.
int RunUnpack(const std::string& base, const std::string& target, int input);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_UNPACK_H_
