// Copies the jobs of an allocation to a cluster's shared file system, while they run and when they
// are over.
#ifndef GPUCTL_AGENT_HOLD_RESULTS_COPY_H_
#define GPUCTL_AGENT_HOLD_RESULTS_COPY_H_

#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"
#include "common/job/stream_file.h"

namespace gpuctl {

// Writes the new file `to` with the content, mode and times of `from`, to the disk. NOT_FOUND for
// what is no regular file.
absl::Status CopyOneFile(const std::string& from, const std::string& to);

// Copies the regular files below `from` to the directory `to`, which may have others. What is there
// under the same name is replaced.
absl::Status CopyDirectory(const std::string& from, const std::string& to);

// Gives the copy `to` of a later start of an allocation the checkpoints and files that `earlier`
// has, for they are copied again only when the job is over. They share their content where the file
// system has hard links: what is copied later takes the place of a file, and changes none. A job
// of which not all can be read leaves the others; then its copy in `earlier` stays (Stays).
absl::Status TakeFilesOf(const RootPaths& earlier, const RootPaths& to);

// Appends what is new in the streams of a root to their copies. One process at a time does that.
// Not thread-safe.
class StreamsCopy {
 public:
  StreamsCopy(const RootPaths& from, const RootPaths& to) : from_(from), to_(to) {}
  // Copies once. Each copy is the beginning of its stream, byte for byte, and a job's lifecycle
  // never names bytes that are not in the copy. `sync`: what is copied is also brought to the disk,
  // so that other machines see it. An error of one stream leaves the others; the first is returned.
  absl::Status Pass(bool sync);

 private:
  absl::Status CopyJob(const std::string& job_id, bool sync);
  // Copies up to `end` bytes.
  absl::Status CopyStream(const std::string& from, const std::string& to, StreamShape shape,
                          int64_t end, bool sync);

  const RootPaths from_;
  const RootPaths to_;
  std::map<std::string, StreamWriter> writers_;  // by the path of the copy
  std::set<std::string> settled_;                // jobs that are over and copied
};

// Copies checkpoints when they are whole, and the other results when their job is over. Whatever
// interrupts it, what has its name in the copy is whole. Not thread-safe.
class FilesCopy {
 public:
  FilesCopy(const RootPaths& from, const RootPaths& to, Clock& clock)
      : from_(from), to_(to), clock_(clock) {}
  // True when a job is over, and its results are not copied yet.
  bool IsDue();
  // Copies once. `last`: jobs that are not over count as if they were. Returns the first error;
  // what it concerns is tried again at the next call.
  absl::Status Pass(bool last);
  // True when there are jobs, all are over, and all of their results are copied.
  bool HasAll();
  // True when the last Pass left nothing out.
  bool whole() const { return whole_; }

 private:
  absl::Status CopyJob(const std::string& job_id, bool last);
  absl::Status CopyCheckpoints(const std::string& job_id, const gpuctl::v1::KeptResults& wanted);
  absl::Status CopyFiles(const std::string& job_id, const gpuctl::v1::KeptResults& wanted);
  // Returns the error of a list; `first_error` gets that of a file, if there is none yet.
  absl::Status CopyMatches(const std::string& job_id, const std::string& pattern,
                           absl::Status& first_error);
  // Copies a file under another name, and then gives it its own.
  absl::Status CopyFile(const std::string& from, const std::string& to) const;

  const RootPaths from_;
  const RootPaths to_;
  Clock& clock_;
  std::set<std::string> done_;  // jobs that are over and copied
  bool whole_ = true;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_HOLD_RESULTS_COPY_H_
