#include "agent/base/node_root.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agent/base/held_root.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {

absl::StatusOr<RootPaths> PrepareNodeRoot(const std::string& root) {
  RootPaths paths(root);
  if (BaseName(DirName(root)) == absl::StrCat("gpuctl-", geteuid()) && !IsHeldRoot(paths)) {
    return absl::FailedPreconditionError(
        absl::StrCat("open root ", root, ": the allocation has ended"));
  }
  RETURN_IF_ERROR(MakeDirectories(root, 0700));
  struct stat info {};
  if (stat(root.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("open root ", root));
  if (info.st_uid != geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("open root ", root, ": it belongs to another user"));
  }
  if ((info.st_mode & 077) != 0 && chmod(root.c_str(), 0700) != 0) {
    return ErrnoStatus(errno, absl::StrCat("make root private ", root));
  }
  // A root that has a node already was accepted by an older agent, which knew fewer types. Its jobs
  // must still be watched, stopped and fetched.
  const std::string type = PathExists(paths.node_id) ? "" : NetworkFileSystem(root);
  if (!type.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "open root ", root, ": it lies on a network file system (", type,
        "), where locks do not tell the living from the dead; choose a local directory"));
  }
  for (const std::string& dir :
       {paths.bin, paths.trees, paths.jobs, paths.tombstones, DirName(paths.telemetry)}) {
    RETURN_IF_ERROR(MakeDirectories(dir, 0700));
  }
  return paths;
}

absl::StatusOr<std::string> NodeId(const RootPaths& paths) {
  if (absl::StatusOr<std::string> id = ReadFileToString(paths.node_id, 256); id.ok()) {
    const std::string stripped(absl::StripAsciiWhitespace(*id));
    if (IsValidId(stripped)) return stripped;
  }
  // link(2) does not replace a file: one of several makers wins, and all read the winner's id.
  const std::string temporary = absl::StrCat(paths.node_id, ".tmp-", RandomHex(6));
  RETURN_IF_ERROR(WriteFileAtomic(temporary, absl::StrCat("n-", RandomHex(8), "\n")));
  const int linked = link(temporary.c_str(), paths.node_id.c_str());
  const int error = errno;
  unlink(temporary.c_str());
  if (linked != 0 && error != EEXIST) {
    return ErrnoStatus(error, absl::StrCat("make node id ", paths.node_id));
  }
  RETURN_IF_ERROR(SyncDirectory(paths.root));
  ASSIGN_OR_RETURN(const std::string id, ReadFileToString(paths.node_id, 256));
  const std::string stripped(absl::StripAsciiWhitespace(id));
  if (!IsValidId(stripped)) {
    return absl::DataLossError(absl::StrCat("read node id ", paths.node_id, ": not an id"));
  }
  return stripped;
}

}  // namespace gpuctl
