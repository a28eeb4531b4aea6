// Reads a node's files by plain SFTP, when gpuctl's agent cannot run there any more. One thread.
#ifndef GPUCTL_CLIENT_SFTP_SFTP_FILES_H_
#define GPUCTL_CLIENT_SFTP_SFTP_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link/ssh_session.h"

struct sftp_session_struct;

namespace gpuctl {

struct SftpEntry {
  std::string path;  // below the directory listed
  bool is_directory = false;
  bool is_file = false;
  bool is_symlink = false;
  uint32_t mode = 0;   // permission bits, 0777 at most; 0644 or 0755 when the server does not tell
  std::string target;  // of a symlink, when it was requested
  int64_t size = 0;
  int64_t modified_s = 0;
};

class SftpFiles {
 public:
  // Starts SFTP. UNAVAILABLE when the node has none.
  static absl::StatusOr<std::unique_ptr<SftpFiles>> Open(std::unique_ptr<SshSession> session);
  ~SftpFiles();
  SftpFiles(const SftpFiles&) = delete;
  SftpFiles& operator=(const SftpFiles&) = delete;

  // Lists everything below `dir`, parents first; does not follow symlinks. A missing directory is
  // empty. RESOURCE_EXHAUSTED beyond 100,000 entries.
  absl::StatusOr<std::vector<SftpEntry>> List(const std::string& dir);
  absl::StatusOr<SftpEntry> Stat(const std::string& path);
  absl::StatusOr<std::string> ReadLink(const std::string& path);
  // Reads `path` from `offset` to `size`, both from its beginning, with many requests at once.
  // Passes the bytes to `take` in order. DATA_LOSS when the file is shorter.
  absl::Status Read(const std::string& path, int64_t offset, int64_t size,
                    const std::function<absl::Status(absl::string_view)>& take);

 private:
  explicit SftpFiles(std::unique_ptr<SshSession> session) : session_(std::move(session)) {}
  absl::Status Error(absl::string_view doing, const std::string& path);
  absl::Status ListInto(const std::string& dir, const std::string& below,
                        std::vector<SftpEntry>& entries);
  std::unique_ptr<SshSession> session_;
  sftp_session_struct* sftp_ = nullptr;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SFTP_SFTP_FILES_H_
