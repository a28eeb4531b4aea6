// A script for a node's shell that puts a directory in its place.
#ifndef GPUCTL_CLIENT_PROGRAMS_PUBLISH_SCRIPT_H_
#define GPUCTL_CLIENT_PROGRAMS_PUBLISH_SCRIPT_H_

#include <string>

namespace gpuctl {

// Returns a script (POSIX sh) that makes the directory `partial` the directory `final_dir`, or
// removes it when another process has made that one. Both are words of the shell; `partial` ends
// with a plain name.
std::string PublishScript(const std::string& partial, const std::string& final_dir);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PROGRAMS_PUBLISH_SCRIPT_H_
