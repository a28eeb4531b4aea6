#include "agent/tree_store.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/manifest.h"
#include "common/status_macros.h"
#include "common/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Manifest;

std::string TreePath(const std::string& trees, absl::string_view digest) {
  return JoinPath(trees, digest);
}

std::string ManifestPath(const std::string& trees, absl::string_view digest) {
  return JoinPath(trees, absl::StrCat(digest, ".manifest"));
}

}  // namespace

bool IsManifestDigest(absl::string_view digest) {
  return digest.size() == 64 && digest.find_first_not_of("0123456789abcdef") == digest.npos;
}

bool HasStoredTree(const std::string& trees, absl::string_view digest) {
  // Without its manifest a tree could not be copied; pushing it again brings both.
  return IsManifestDigest(digest) && IsDirectory(TreePath(trees, digest)) &&
         PathExists(ManifestPath(trees, digest));
}

absl::Status PublishTree(const std::string& trees, const Manifest& manifest,
                         const StagingDir& staging) {
  const std::string digest = ManifestDigest(manifest);
  // The manifest comes first, and from the staging directory, so that no leftover of it lies where
  // nobody would clean up.
  const std::string staged = JoinPath(staging.path(), "manifest");
  RETURN_IF_ERROR(WriteFileAtomic(staged, SerializeManifest(manifest)));
  if (file_ops::Rename(staged, ManifestPath(trees, digest)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("publish manifest ", digest));
  }
  const std::string tree = TreePath(trees, digest);
  if (file_ops::Rename(JoinPath(staging.path(), "tree"), tree) != 0) {
    const int error_number = errno;
    // Another push of the same tree was faster. (An empty tree is simply replaced by its equal.)
    if ((error_number == ENOTEMPTY || error_number == EEXIST) && IsDirectory(tree)) {
      return absl::OkStatus();
    }
    return ErrnoStatus(error_number, absl::StrCat("publish tree ", digest));
  }
  return SyncDirectory(trees);
}

absl::Status CopyStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to) {
  if (!HasStoredTree(trees, digest)) {
    return absl::NotFoundError(absl::StrCat("copy tree ", digest, ": it is not stored"));
  }
  const auto damaged = [&](absl::string_view cause) {
    return absl::DataLossError(absl::StrCat("copy tree ", digest, ": ", cause));
  };
  const absl::StatusOr<std::string> bytes =
      ReadFileToString(ManifestPath(trees, digest), kMaxManifestBytes);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<Manifest> manifest = ParseManifest(*bytes);
  if (!manifest.ok() || ManifestDigest(*manifest) != digest) return damaged("manifest differs");
  RETURN_IF_ERROR(Annotate(CopyTree(TreePath(trees, digest), to, *manifest),
                           absl::StrCat("copy tree ", digest)));
  absl::Status status = SyncTree(to, *manifest);
  if (!status.ok()) (void)RemoveTree(to);
  return status;
}

}  // namespace gpuctl
