// Symlinks in a job's work directory behind which its results may lie: outputs -> /workspace/out.
#ifndef GPUCTL_AGENT_RESULTS_RESULT_LINKS_H_
#define GPUCTL_AGENT_RESULTS_RESULT_LINKS_H_

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/job/job_layout.h"

namespace gpuctl {

// Decides which symlinks a search by patterns follows. A search tells where it is with Enter and
// Leave.
class ResultLinks {
 public:
  // `patterns` are relative to work/; see common/base/path_pattern.h.
  ResultLinks(const JobPaths& job, std::vector<std::string> patterns);

  enum class Kind {
    kNone,      // nothing, or nothing that the patterns mean, or what is found elsewhere in work/
    kFollow,    // a directory at a place that a pattern names; `info` is that of the directory
    kUnreached  // leads to files that a pattern means and that changed since the job was accepted
  };
  struct Link {
    Kind kind = Kind::kNone;
    struct stat info {};
  };
  // Looks at the symlink at `path`, relative to work/. Never follows one to a directory that holds
  // the job's directory, into a directory that the search is in, or deeper than eight symlinks.
  Link Look(const std::string& path) const;

  // Begins and ends the search below a symlink that is followed.
  void Enter(const std::string& path, const Link& link);
  void Leave();
  // Returns the last symlink that was entered, relative to the job's directory; "" for none.
  std::string behind() const;

 private:
  bool IsFoundElsewhere(const std::string& pattern, const std::string& target) const;

  const std::string work_;
  const std::vector<std::string> patterns_;
  std::string real_job_, real_work_;  // without symlinks; empty when they are gone
  int64_t accepted_ns_ = 0;
  struct Entered {
    std::string path;
    uint64_t device = 0, inode = 0;
  };
  std::vector<Entered> entered_;
};

// Returns the bytes of the files at or below `path` that changed since `since_ns`, by their ctime;
// -1 when none did. Does not follow symlinks below it. A directory that is too large to look at
// counts as changed.
int64_t ChangedBytes(const std::string& path, int64_t since_ns);

// Returns the path without symlinks; "" when there is no such file.
std::string RealPath(const std::string& path);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_RESULTS_RESULT_LINKS_H_
