// gpuctl logs, where not everything comes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "client/streams/mirror.h"
#include "client/verbs/verbs.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

constexpr char kLogsBox[] = "me@box:22";

class LogsTest : public ::testing::Test {
 protected:
  LogsTest() : world_(Clock::Real()) {
    RunStore& store = *world_.context.Store().value();
    RunRow row;
    row.run_id = "r-1";
    row.name = "amber-fox-1";
    row.job_id = "j-1";
    row.target.provider = "ssh";
    row.target.name = kLogsBox;
    row.output_segment_bytes = 1 << 20;
    row.created_ms = 1;
    EXPECT_OK(store.Insert(row));
    EXPECT_OK(store.SetAccepted("r-1", "n-1", 2));
    const auto mirror = Mirror::Open(world_.context.Paths()->MirrorDir("r-1"), 1 << 20);
    EXPECT_OK((*mirror)->Apply(Chunk(gpuctl::v1::STREAM_OUTPUT, 0, "begin\n")));
    LifecycleEvent dropped;
    dropped.type = LifecycleEvent::Type::kDropped;
    dropped.output_size = 6;
    dropped.dropped_bytes = 7;
    const std::string line = FormatLifecycleEvent(dropped);
    EXPECT_OK((*mirror)->Apply(Chunk(gpuctl::v1::STREAM_LIFECYCLE, 0, line)));
  }
  ~LogsTest() override { file_ops::SetFaultHook(nullptr); }
  static gpuctl::v1::Chunk Chunk(gpuctl::v1::Stream stream, int64_t offset,
                                 const std::string& data) {
    gpuctl::v1::Chunk chunk;
    chunk.set_stream(stream);
    chunk.set_offset(offset);
    chunk.set_data(data);
    return chunk;
  }
  absl::StatusOr<int> Logs(std::vector<std::string> args) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    absl::StatusOr<int> code = CmdLogs(world_.context, std::move(args));
    told_ = ::testing::internal::GetCapturedStderr();
    shown_ = ::testing::internal::GetCapturedStdout();
    return code;
  }

  ClientWorld world_;
  std::string shown_, told_;
};

TEST_F(LogsTest, AFullDiskOfThisLaptopDoesNotHideWhatIsHere) {
  gpuctl::v1::WatchReply& reply = world_.script(kLogsBox).watch.emplace_back();
  *reply.add_chunks() = Chunk(gpuctl::v1::STREAM_OUTPUT, 6, "more\n");
  reply.mutable_heartbeat()->set_node_id("n-1");
  reply.mutable_heartbeat()->set_output_size(11);
  file_ops::SetFaultHook(
      [](file_ops::Op op, const std::string&) { return op == file_ops::Op::kWrite ? ENOSPC : 0; });
  const auto code = Logs({"amber-fox-1"});
  file_ops::SetFaultHook(nullptr);
  EXPECT_EQ(shown_, "begin\n");
  ASSERT_FALSE(code.ok());
  EXPECT_THAT(std::string(code.status().message()), HasSubstr("printed what is on this laptop"));
}

TEST_F(LogsTest, OutputThatTheNodeCouldNotStoreIsTold) {
  ASSERT_OK(Logs({"amber-fox-1", "--offline"}));
  EXPECT_EQ(shown_, "begin\n");
  EXPECT_THAT(told_, HasSubstr("of output are missing"));
  EXPECT_THAT(told_, HasSubstr("at byte 6)"));
}

}  // namespace
}  // namespace gpuctl
