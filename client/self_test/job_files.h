// The files by which the self-test's jobs and the self-test know of each other.
#ifndef GPUCTL_CLIENT_SELF_TEST_JOB_FILES_H_
#define GPUCTL_CLIENT_SELF_TEST_JOB_FILES_H_

#include <string>

#include "common/files/files.h"

namespace gpuctl {

struct JobFiles {
  explicit JobFiles(const std::string& dir)
      : alive(JoinPath(dir, "alive")),
        lock(JoinPath(dir, "job.lock")),
        orphan_lock(JoinPath(dir, "orphan.lock")),
        system_lock(JoinPath(dir, "system.lock")),
        pid(JoinPath(dir, "pid")),
        shim_pid(JoinPath(dir, "shim-pid")) {}

  std::string alive;        // while it is there, the job's processes live
  std::string lock;         // the job holds it
  std::string orphan_lock;  // held by a child in a session of its own whose parent is gone
  std::string system_lock;  // held by such a child that is a program of the system
  std::string pid;          // the job's, in digits; written last
  std::string shim_pid;     // the shim's
};

inline constexpr char kSentFile[] = "input.bin";  // in the work directory
inline constexpr char kJobReady[] = "the job is ready";
inline constexpr char kJobFailed[] = "the job failed: ";  // with the reason

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SELF_TEST_JOB_FILES_H_
