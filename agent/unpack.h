// `gpuctl-agent unpack`: makes the other program of a bundle, of which most is in this one.
#ifndef GPUCTL_AGENT_UNPACK_H_
#define GPUCTL_AGENT_UNPACK_H_

#include <cstddef>
#include <string>

namespace gpuctl {

// A file that comes before the packed program, as it is.
struct PlainFile {
  std::string path;  // empty: none does
  size_t size = 0;   // in bytes
};

// Reads from `input` a plain file and what PackAgainst made of a program with the file `base`, and
// writes the file and, mode 0700, the program to `target`. Returns the exit code: 0, or 1 after
// printing why.
int RunUnpack(const std::string& base, const std::string& target, const PlainFile& before,
              int input);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_UNPACK_H_
