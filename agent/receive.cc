#include "agent/receive.h"

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "agent/tree_store.h"
#include "common/files.h"
#include "common/frame_channel.h"
#include "common/job_layout.h"
#include "common/manifest.h"
#include "common/staging_dir.h"
#include "common/status_macros.h"
#include "common/transfer.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Manifest;
using gpuctl::v1::TransferFrame;

absl::Status StoreTree(FrameChannel& channel, const std::string& trees, const std::string& digest) {
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(channel));
  if (ManifestDigest(manifest) != digest) {
    return absl::DataLossError(absl::StrCat("receive tree ", digest, ": its manifest differs"));
  }
  ASSIGN_OR_RETURN(const StagingDir staging, StagingDir::Create(trees));
  const std::string tree = JoinPath(staging.path(), "tree");
  if (file_ops::MkDir(tree) != 0) {
    return ErrnoStatus(errno, absl::StrCat("make directory ", tree));
  }
  RETURN_IF_ERROR(ReceiveFiles(channel, tree, manifest, nullptr));
  ASSIGN_OR_RETURN(const TransferFrame end, channel.ReadOrError());
  if (!end.has_done()) {
    return absl::InvalidArgumentError("receive tree: the peer went on after the end");
  }
  return PublishTree(trees, manifest, staging);
}

absl::Status Serve(FrameChannel& channel, const std::string& trees) {
  ASSIGN_OR_RETURN(const TransferFrame begin, channel.Read());
  const std::string& digest = begin.push_begin().manifest_digest();
  if (!begin.has_push_begin() || !IsManifestDigest(digest)) {
    return absl::InvalidArgumentError("receive: the peer did not name a manifest's digest");
  }
  RETURN_IF_ERROR(MakeDirectories(trees));
  // Leftovers cost room and nothing else: not a reason to refuse this push.
  (void)RemoveAbandonedStaging(trees);
  TransferFrame need;
  need.mutable_push_need()->set_have(HasStoredTree(trees, digest));
  RETURN_IF_ERROR(channel.Write(need));
  RETURN_IF_ERROR(channel.Flush());
  if (need.push_need().have()) return absl::OkStatus();
  RETURN_IF_ERROR(StoreTree(channel, trees, digest));
  return channel.WriteDone(absl::OkStatus());
}

}  // namespace

absl::Status Receive(const std::string& root, int in_fd, int out_fd) {
  signal(SIGPIPE, SIG_IGN);
  FrameChannel channel(in_fd, out_fd);
  absl::Status status = Serve(channel, RootPaths(root).trees);
  if (!status.ok()) (void)channel.WriteDone(status);
  return status;
}

int RunReceive(const std::string& root, int in_fd, int out_fd) {
  const absl::Status status = Receive(root, in_fd, out_fd);
  if (status.ok()) return 0;
  fprintf(stderr, "gpuctl-agent: %s\n", std::string(status.message()).c_str());
  return 1;
}

absl::Status RemoveAbandonedPushes(const std::string& root) {
  return RemoveAbandonedStaging(RootPaths(root).trees);
}

}  // namespace gpuctl
