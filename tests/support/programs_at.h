// Programs for nodes at any place, for tests.
#ifndef GPUCTL_TESTS_SUPPORT_PROGRAMS_AT_H_
#define GPUCTL_TESTS_SUPPORT_PROGRAMS_AT_H_

#include <string>
#include <utility>

#include "client/programs/node_programs.h"
#include "common/files/files.h"

namespace gpuctl {

// Returns programs for this machine's platform, whatever the files are.
inline NodePrograms ProgramsAt(const std::string& agent, const std::string& shim) {
  PlatformPrograms programs;
  programs.platform = OwnPlatform();
  programs.dir = DirName(agent);
  programs.agent = agent;
  programs.shim = shim;
  const std::string roots = JoinPath(programs.dir, "roots.pem");
  if (PathExists(roots)) programs.roots = roots;
  NodePrograms all;
  all.Add(std::move(programs));
  return all;
}

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_PROGRAMS_AT_H_
