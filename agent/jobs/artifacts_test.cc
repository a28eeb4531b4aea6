#include "agent/jobs/artifacts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/fake_clock.h"
#include "common/job/job_layout.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::SizeIs;

class ListArtifactsTest : public ::testing::Test {
 protected:
  ListArtifactsTest() : job_(dir_.Sub("j-1")) { request_.set_job_id("j-1"); }
  TempDir dir_;
  FakeClock clock_;
  JobPaths job_;
  gpuctl::v1::ListArtifactsRequest request_;
};

TEST_F(ListArtifactsTest, UnknownJobIsNotFound) {
  EXPECT_THAT(ListArtifacts(job_, request_, clock_), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ListArtifactsTest, OnlyCompleteCheckpointsAndMatchingFiles) {
  dir_.Write("j-1/spec.json", "{}");
  dir_.Write("j-1/work/out/deep/a.json", "12345");
  dir_.Write("j-1/work/b.txt", "x");
  dir_.Write("j-1/ckpt/step-00000002/state", "abc");
  dir_.Write("j-1/ckpt/step-00000002/manifest.json",
             R"({"format":1,"step":2,"files":[{"path":"state","size":3,"sha256":")" +
                 std::string(64, '0') + R"("}]})");
  dir_.Write("j-1/ckpt/.tmp-step-00000004/state", "abc");
  dir_.Write("j-1/ckpt/step-00000006/state", "no manifest");
  request_.set_pattern("out/**/*.json");
  const auto reply = ListArtifacts(job_, request_, clock_);
  ASSERT_OK(reply);
  ASSERT_THAT(reply->checkpoints(), SizeIs(1));
  EXPECT_EQ(reply->checkpoints(0).path(), "ckpt/step-00000002");
  EXPECT_EQ(reply->checkpoints(0).size(), 3);
  ASSERT_THAT(reply->files(), SizeIs(1));
  EXPECT_EQ(reply->files(0).path(), "work/out/deep/a.json");
  EXPECT_EQ(reply->files(0).size(), 5);
}

TEST_F(ListArtifactsTest, ManyFilesComeInPages) {
  dir_.Write("j-1/spec.json", "{}");
  for (const char* directory : {"a", "a-b", "a/deep", "b"}) {
    for (int i = 0; i < 50; ++i) dir_.Write(absl::StrCat("j-1/work/", directory, "/f", i), "1");
  }
  request_.set_pattern("**");
  const auto all = ListArtifacts(job_, request_, clock_);
  ASSERT_OK(all);
  EXPECT_FALSE(all->more());
  ASSERT_THAT(all->files(), SizeIs(200));
  gpuctl::v1::ListArtifactsReply paged;
  request_.set_page_bytes(1000);
  int pages = 0;
  for (bool more = true; more; ++pages) {
    const auto page = ListArtifacts(job_, request_, clock_);
    ASSERT_OK(page);
    ASSERT_GT(page->files_size(), 0);
    more = page->more();
    paged.MergeFrom(*page);
    request_.set_after(page->files(page->files_size() - 1).path());
  }
  EXPECT_GT(pages, 5);
  ASSERT_THAT(paged.files(), SizeIs(200));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(paged.files(i).path(), all->files(i).path());
}

TEST_F(ListArtifactsTest, TheTrainerThatWasSentIsNoResult) {
  StoredSpec stored;
  stored.spec.set_job_id("j-1");
  stored.spec_digest = SpecDigest(stored.spec);
  dir_.Write("j-1/spec.json", FormatStoredSpec(stored));
  dir_.Write("j-1/work/.gpuctl/trainer.json", "{}");
  dir_.Write("j-1/work/.gpuctl/trainer-kit/gpuctl-trainer", "x");
  dir_.Write("j-1/work/.gpuctl/trainer-kit/lib/weights.bin", "x");
  request_.set_pattern("**/*");
  request_.add_checkpoint_patterns("**/lib");
  const auto reply = ListArtifacts(job_, request_, clock_);
  ASSERT_OK(reply);
  ASSERT_THAT(reply->files(), SizeIs(1));
  EXPECT_EQ(reply->files(0).path(), "work/.gpuctl/trainer.json");
  EXPECT_THAT(reply->checkpoints(), SizeIs(0));
}

}  // namespace
}  // namespace gpuctl
