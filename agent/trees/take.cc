#include "agent/trees/take.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/store/stored_files.h"
#include "agent/store/tree_store.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"
#include "common/tree/manifest.h"
#include "common/tree/tree_builder.h"

namespace gpuctl {
namespace {

absl::Status Take(const std::string& from, const std::string& trees, const std::string& digest) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadStoredManifest(from, digest));
  if (manifest.Digest() != digest) return absl::DataLossError("its manifest is another one");
  const Manifest there = manifest;
  const std::string path = StoredTreePath(from, digest);
  const UniqueFd source(file_ops::Open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (!source.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  RETURN_IF_ERROR(MakeDirectories(trees));
  ASSIGN_OR_RETURN(const std::unique_ptr<TreeBuilder> builder,
                   TreeBuilder::Begin(trees, std::move(manifest)));
  ASSIGN_OR_RETURN(StoredIdentities taken, TakeFromStoredTrees(trees, *builder, Reuse::kLink));
  RETURN_IF_ERROR(builder->TakeFrom(source.get(), there, Reuse::kCopy, /*verified=*/false));
  RETURN_IF_ERROR(builder->Finish());
  return PublishTree(trees, digest, *builder, std::move(taken));
}

}  // namespace

absl::Status BringTree(const std::string& from, const std::string& trees,
                       const std::string& digest) {
  if (UseStoredTree(trees, digest)) return absl::OkStatus();
  return Annotate(Take(from, trees, digest), absl::StrCat("take ", digest));
}

absl::Status TakeTree(const std::string& root, const std::string& place, const std::string& digest,
                      bool keep) {
  if (!IsManifestDigest(digest)) return absl::InvalidArgumentError("take: this is no digest");
  const std::string trees = RootPaths(root).trees;
  const std::string from = RootPaths(place).trees;
  RETURN_IF_ERROR(BringTree(from, trees, digest));
  if (keep) return absl::OkStatus();
  // The manifest goes first: without it nobody takes a part for the tree.
  unlink(StoredManifestPath(from, digest).c_str());
  return RemoveTree(StoredTreePath(from, digest));
}

int RunTake(const std::string& root, const std::string& place, const std::string& digest,
            bool keep) {
  const absl::Status status = TakeTree(root, place, digest, keep);
  if (status.ok()) return 0;
  fprintf(stderr, "gpuctl-agent: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace gpuctl
