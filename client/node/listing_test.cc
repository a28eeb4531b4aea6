// What a node may name in its list of results.
#include "client/node/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;
using gpuctl::v1::ListArtifactsReply;

CheckpointInfo& AddForeign(ListArtifactsReply& reply, const std::string& path,
                           const std::string& name) {
  CheckpointInfo& info = *reply.add_checkpoints();
  info.set_kind(CheckpointInfo::KIND_FOREIGN);
  info.set_path(path);
  info.set_name(name);
  info.set_is_file(true);
  info.add_files()->set_path(path);
  return info;
}

CheckpointInfo& AddTrainers(ListArtifactsReply& reply, const std::string& path) {
  CheckpointInfo& info = *reply.add_checkpoints();
  info.set_path(path);
  return info;
}

TEST(ListingTest, WhatWasAskedForPasses) {
  ListArtifactsReply reply;
  reply.add_files()->set_path("work/outputs/a.json");
  AddTrainers(reply, "ckpt/step-00000007");
  AddForeign(reply, "work/out/best.pt", "best.pt");
  EXPECT_OK(CheckListing("outputs/*.json", {"out/*.pt"}, reply));
  EXPECT_EQ(reply.checkpoints(0).name(), "step-00000007");
  EXPECT_EQ(reply.checkpoints(1).name(), "best.pt");
}

TEST(ListingTest, AFileThatThePatternDoesNotMatchIsRefused) {
  for (const char* path :
       {"work/.bashrc", "work/.ssh/authorized_keys", "ckpt/a.json", "work/../a.json", "a.json"}) {
    ListArtifactsReply reply;
    reply.add_files()->set_path(path);
    EXPECT_THAT(CheckListing("a.json", {}, reply), StatusIs(absl::StatusCode::kDataLoss)) << path;
  }
  ListArtifactsReply unasked;
  unasked.add_files()->set_path("work/a.json");
  EXPECT_THAT(CheckListing("", {}, unasked), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(ListingTest, ACheckpointThatNoPatternMatchesIsRefused) {
  for (const char* path : {"work/.bashrc", "work/out/../.bashrc", "ckpt/best.pt", "out/best.pt"}) {
    ListArtifactsReply reply;
    AddForeign(reply, path, "best.pt");
    EXPECT_THAT(CheckListing("", {"out/*.pt"}, reply), StatusIs(absl::StatusCode::kDataLoss))
        << path;
  }
  for (const char* path : {"ckpt/.ssh", "work/step-7", "ckpt/step-7/x", "ckpt/step-", "step-7"}) {
    ListArtifactsReply reply;
    AddTrainers(reply, path);
    EXPECT_THAT(CheckListing("", {}, reply), StatusIs(absl::StatusCode::kDataLoss)) << path;
  }
}

TEST(ListingTest, TheNodeDoesNotChooseNamesAtHome) {
  ListArtifactsReply reply;
  AddForeign(reply, "work/out/best.pt", ".bashrc");
  EXPECT_OK(CheckListing("", {"out/*.pt"}, reply));
  EXPECT_EQ(reply.checkpoints(0).name(), "best.pt");
}

TEST(ListingTest, FilesOutsideTheirCheckpointAndImpossibleSizesAreRefused) {
  ListArtifactsReply outside;
  AddForeign(outside, "work/out/best.pt", "best.pt").add_files()->set_path("work/.bashrc");
  EXPECT_THAT(CheckListing("", {"out/*.pt"}, outside), StatusIs(absl::StatusCode::kDataLoss));
  for (const int64_t size : {int64_t{-1}, INT64_MAX}) {
    ListArtifactsReply reply;
    AddForeign(reply, "work/out/best.pt", "best.pt").mutable_files(0)->set_size(size);
    EXPECT_THAT(CheckListing("", {"out/*.pt"}, reply), StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST(ListingTest, TwoCheckpointsWithOneNameGetTheirPaths) {
  ListArtifactsReply reply;
  AddForeign(reply, "work/a/best.pt", "best.pt");
  AddForeign(reply, "work/b/best.pt", "best.pt");
  AddForeign(reply, "work/b/other.pt", "other.pt");
  EXPECT_OK(CheckListing("", {"a/*.pt", "b/*.pt"}, reply));
  EXPECT_EQ(reply.checkpoints(0).name(), "a/best.pt");
  EXPECT_EQ(reply.checkpoints(1).name(), "b/best.pt");
  EXPECT_EQ(reply.checkpoints(2).name(), "other.pt");
}

}  // namespace
}  // namespace gpuctl
