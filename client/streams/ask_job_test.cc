// What a node may answer when it is asked for a job's lifecycle.
#include "client/streams/ask_job.h"

#include <gtest/gtest.h>

#include <string>

#include "client/streams/mirror.h"
#include "tests/support/fake_node.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

// A lifecycle without end takes no more memory than the mirror would store of it, and what is
// stored of it can be read.
TEST(AskJobTest, OfALifecycleComesAsMuchAsAMirrorStores) {
  const int64_t most = MirrorLimits().lifecycle;
  constexpr int64_t kChunk = 3 << 19;  // the limit is inside of one
  ASSERT_NE(most % kChunk, 0);
  FakeNode node;
  node.script().has_job = true;
  for (int i = 0; i < 6; ++i) {
    gpuctl::v1::WatchReply reply;
    gpuctl::v1::Chunk& chunk = *reply.add_chunks();
    chunk.set_stream(gpuctl::v1::STREAM_LIFECYCLE);
    chunk.set_offset(i * kChunk);
    chunk.set_data(std::string(kChunk, '\n'));
    reply.mutable_heartbeat()->set_lifecycle_size(int64_t{1} << 40);
    node.script().watch.push_back(reply);
  }
  const std::unique_ptr<LinkFactory> links = node.Links();
  auto link = links->Connect();
  ASSERT_OK(link);
  const absl::StatusOr<JobAnswer> answer = AskJob(**link, "j-1", {}, absl::Seconds(30));
  ASSERT_OK(answer);
  EXPECT_EQ(static_cast<int64_t>(answer->lifecycle.size()), most);
  TempDir dir;
  ASSERT_OK(StoreLifecycleBeside(dir.path(), answer->lifecycle));
  EXPECT_OK(ReadMirrorLifecycle(dir.path()));
}

}  // namespace
}  // namespace gpuctl
