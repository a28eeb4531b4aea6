// What comes home of a run, by the lists of its node.
#include "client/results/pull_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/files/files.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kBox[] = "me@box:22";

// What an ended job made of which no pattern tells.
class BringMadeTest : public ::testing::Test {
 protected:
  BringMadeTest() : world_(Clock::Real()) {
    row_.run_id = "r-1";
    row_.name = "amber-fox-1";
    row_.job_id = "j-1";
    row_.target.provider = "ssh";
    row_.target.name = kBox;
    row_.end.emplace().state = gpuctl::v1::JOB_STATE_FINISHED;
    world_.script(kBox).run_agent =
        [this](const std::string&) -> absl::StatusOr<std::unique_ptr<AgentStream>> {
      ++transfers_;
      return absl::PermissionDeniedError("asked for it");
    };
  }
  // Brings what the node says that the job made: a file at `path`.
  absl::Status Bring(const std::string& path) {
    gpuctl::v1::RemoveJobReply& made = world_.script(kBox).removal;
    made.clear_left();
    made.add_left()->set_path(path);
    made.set_left_count(1);
    PullRequest request;
    request.to = world_.dir.Sub("home");
    request.undeclared = true;
    PullResults pulled;
    ::testing::internal::CaptureStderr();
    const absl::Status status =
        BringResults(world_.context, *world_.node(kBox).Links(), row_, request, pulled);
    told_ = ::testing::internal::GetCapturedStderr();
    return status;
  }

  ClientWorld world_;
  RunRow row_;
  int transfers_ = 0;
  std::string told_;
};

TEST_F(BringMadeTest, AFileOfTheWorkDirectoryIsAskedFor) {
  EXPECT_THAT(Bring("work/out/model.bin"), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(transfers_, 1);
  EXPECT_THAT(told_, HasSubstr("bringing all that its job made"));
}

TEST_F(BringMadeTest, APathThatLeadsElsewhereIsNotEvenAskedFor) {
  for (const char* path : {"work/../x", "work/out/../../x", "work/..", "work//etc/passwd",
                           "/etc/passwd", "../x", "ckpt/x", ""}) {
    EXPECT_THAT(Bring(path), StatusIs(absl::StatusCode::kNotFound)) << path;
    EXPECT_THAT(told_, Not(HasSubstr("bringing all"))) << path;
  }
  EXPECT_EQ(transfers_, 0);
  EXPECT_FALSE(PathExists(world_.dir.Sub("home")));
}

}  // namespace
}  // namespace gpuctl
