// Takes a tree that the client has sent to a store on a cluster's shared file system.
#ifndef GPUCTL_AGENT_TREES_TAKE_H_
#define GPUCTL_AGENT_TREES_TAKE_H_

#include <string>

#include "absl/status/status.h"

namespace gpuctl {

// Copies the tree from the store below `place` into that of `root`, reads and checks all of it, and
// removes it from there, unless `keep`. OK when `root` has it already. NOT_FOUND when `place` has
// no such tree; DATA_LOSS when its content is another: then it stays there, and nothing appears
// here.
absl::Status TakeTree(const std::string& root, const std::string& place, const std::string& digest,
                      bool keep);

// Copies the tree `digest` from the directory `from` of stored trees into another one, reads and
// checks all of it. OK when that has it already. Errors as TakeTree.
absl::Status BringTree(const std::string& from, const std::string& trees,
                       const std::string& digest);

// Runs the subcommand: TakeTree, with its error on stderr. Returns the process's exit code.
int RunTake(const std::string& root, const std::string& place, const std::string& digest,
            bool keep);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TREES_TAKE_H_
