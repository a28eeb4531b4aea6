// Trees and files of a job brought home by SFTP, as they are there: content, modes, symlinks, empty
// directories.
#ifndef GPUCTL_CLIENT_TRANSFER_SFTP_TREE_H_
#define GPUCTL_CLIENT_TRANSFER_SFTP_TREE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link/sftp_files.h"
#include "client/runs/context.h"
#include "common/transfer/pull.h"

namespace gpuctl {

// What is to come, as it was listed: the paths of entries are relative to `base`.
struct SftpSubject {
  std::string base;  // a directory below the job's
  bool is_file = false;
  std::vector<SftpEntry> entries;
};

class SftpTree {
 public:
  // `job_dir` is the node's; what is only partly here is told from others' by `job_id`. Both
  // references outlive the object.
  SftpTree(CommandContext& context, SftpFiles& files, std::string job_dir, std::string job_id);

  // The directory `path` below the job's with all in it, or the file. FAILED_PRECONDITION for
  // anything else.
  absl::StatusOr<SftpSubject> Look(const std::string& path);
  // Some files below `base`, with paths relative to it.
  absl::StatusOr<SftpSubject> LookAtFiles(const std::string& base,
                                          const std::vector<std::string>& paths);

  // Brings it into a staging directory in `parent`, to be published as what PullTree brings. After
  // an error what has come stays for the next try, which checks it by the hashes it had when it
  // came. There is no hash of the node's: sizes and times before and after must agree, else
  // ABORTED.
  absl::StatusOr<Pulled> Fetch(const SftpSubject& subject, const std::string& parent);

 private:
  std::string Remote(const SftpSubject& subject, const SftpEntry& entry) const;
  absl::Status FetchFile(const std::string& remote, const SftpEntry& entry, const std::string& part,
                         const std::function<void(int64_t bytes, bool moved)>& progress);
  absl::Status FetchFiles(const SftpSubject& subject, const std::string& parts,
                          std::vector<std::string>& names);
  absl::StatusOr<Pulled> Assemble(const SftpSubject& subject, const std::string& parts,
                                  const std::vector<std::string>& names, const std::string& parent);

  CommandContext& context_;
  SftpFiles& files_;
  const std::string job_dir_;
  const std::string job_id_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRANSFER_SFTP_TREE_H_
