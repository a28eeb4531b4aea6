// Downloads trees and files of a job by SFTP: content, modes, symlinks, empty directories.
#ifndef GPUCTL_CLIENT_TRANSFER_SFTP_TREE_H_
#define GPUCTL_CLIENT_TRANSFER_SFTP_TREE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/sftp/sftp_files.h"
#include "common/transfer/pull.h"

namespace gpuctl {

// The files to download, as listed: the paths of entries are relative to `base`.
struct SftpSubject {
  std::string base;  // a directory below the job's
  bool is_file = false;
  std::vector<SftpEntry> entries;
};

class SftpTree {
 public:
  // `job_dir` is a directory of the node; `job_id` is in the names of partial downloads. Both
  // references outlive the object.
  SftpTree(CommandContext& context, SftpFiles& files, std::string job_dir, std::string job_id);

  // Lists the directory `path` below the job's with everything in it, or the file.
  // FAILED_PRECONDITION for anything else.
  absl::StatusOr<SftpSubject> Look(const std::string& path);
  // Lists some files below `base`, with paths relative to it.
  absl::StatusOr<SftpSubject> LookAtFiles(const std::string& base,
                                          const std::vector<std::string>& paths);

  // Downloads the subject into a staging directory in `parent`, to be published like PullTree's
  // result. After an error the received parts stay for the next try, which checks them by the
  // hashes made on arrival. The node sends no hashes: sizes and times before and after must agree,
  // else ABORTED.
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
