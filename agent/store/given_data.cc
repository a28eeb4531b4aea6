#include "agent/store/given_data.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/store/stored_files.h"
#include "agent/store/tree_store.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"

namespace gpuctl {
namespace {

constexpr int64_t kMostNoteBytes = int64_t{1} << 32;

// Adds the files below `path` that have several links.
void AddLinked(const std::string& path, std::set<uint64_t>& inodes) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string below = JoinPath(path, name);
    struct stat info {};
    if (lstat(below.c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) AddLinked(below, inodes);
    if (S_ISREG(info.st_mode) && info.st_nlink > 1) inodes.insert(uint64_t{info.st_ino});
  }
}

}  // namespace

std::string LentFilesPath(const JobPaths& job) { return JoinPath(job.dir, "data.inodes"); }

std::string DataManifestPath(const JobPaths& job, const std::string& digest) {
  return JoinPath(job.dir, absl::StrCat("data.", digest, ".manifest"));
}

absl::Status AddLentFiles(const JobPaths& job, std::set<uint64_t>& inodes) {
  const absl::StatusOr<std::string> bytes = ReadFileToString(LentFilesPath(job), kMostNoteBytes);
  if (bytes.ok()) {
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes->size(); at += sizeof(uint64_t)) {
      uint64_t inode = 0;
      memcpy(&inode, bytes->data() + at, sizeof(inode));
      inodes.insert(inode);
    }
    return absl::OkStatus();
  }
  if (!absl::IsNotFound(bytes.status())) return bytes.status();
  const absl::StatusOr<StoredSpec> stored = ReadStoredSpec(job);
  if (!stored.ok()) return absl::OkStatus();
  for (const gpuctl::v1::DataTree& data : stored->spec.data()) {
    AddLinked(JoinPath(job.work, data.path()), inodes);
  }
  return absl::OkStatus();
}

void TakeBackData(const RootPaths& root, const JobPaths& job, const gpuctl::v1::JobSpec& spec) {
  const UniqueFd work(file_ops::Open(job.work, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (!work.valid()) return;
  DirWalk walk(work.get());
  for (const gpuctl::v1::DataTree& data : spec.data()) {
    if (!IsSafeRelativePath(data.path())) continue;
    // This does not follow a symlink that the job has put there.
    const absl::StatusOr<int> dir = walk.Open(data.path());
    if (dir.ok()) TakeBackStoredTree(root.trees, data.manifest_digest(), *dir);
  }
}

GivenData::GivenData(const JobPaths& job, const gpuctl::v1::DataTree& data) : path_(data.path()) {
  const std::string& digest = data.manifest_digest();
  const std::string trees = RootPaths(DirName(DirName(job.dir))).trees;
  absl::StatusOr<ManifestReader> given = ManifestReader::Open(DataManifestPath(job, digest));
  // Older agents gave no manifest to the job.
  if (!given.ok()) given = ManifestReader::Open(StoredManifestPath(trees, digest));
  if (given.ok()) given_ = *std::move(given);
  known_ = std::make_unique<KnownFiles>(trees, digest);
}

absl::StatusOr<const gpuctl::v1::FileEntry*> GivenData::Find(absl::string_view path) {
  path.remove_prefix(std::min(path.size(), path_.size() + 1));
  while (!given_.AtEnd() && PathLess(given_.entry().path(), path)) {
    RETURN_IF_ERROR(given_.Advance());
  }
  return !given_.AtEnd() && given_.entry().path() == path ? &given_.entry() : nullptr;
}

}  // namespace gpuctl
