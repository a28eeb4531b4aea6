// gpuctl cp to a node that does not keep to the protocol.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "client/base/exit_codes.h"
#include "client/verbs/verbs.h"
#include "common/base/clock.h"
#include "common/transfer/frame_channel.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_peer.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

constexpr char kCpBox[] = "me@box:22";

// A receiver that answers with these frames, whatever it gets.
class ScriptedReceiver : public AgentStream {
 public:
  explicit ScriptedReceiver(const std::vector<gpuctl::v1::TransferFrame>& answers)
      : node_(Encode(answers)), bytes_(node_.stream().bytes) {}
  absl::Status Receive(ByteBuffer& into) override { return bytes_->Receive(into); }
  absl::Status Send(ByteBuffer& from) override { return bytes_->Send(from); }
  absl::Duration RoundTrip() override { return absl::Milliseconds(1); }

 private:
  ScriptedNode node_;
  const std::shared_ptr<ByteStream> bytes_;
};

// It says how many, and not which.
TEST(CpTest, ANodeThatKeptSomethingAndDoesNotNameItIsAnError) {
  ClientWorld world(Clock::Real());
  RunRow row;
  row.run_id = "r-1";
  row.name = "amber-fox-1";
  row.job_id = "j-1";
  row.target.provider = "ssh";
  row.target.name = kCpBox;
  row.created_ms = 1;
  ASSERT_OK(world.context.Store().value()->Insert(row));
  world.script(kCpBox).run_agent =
      [](const std::string&) -> absl::StatusOr<std::unique_ptr<AgentStream>> {
    gpuctl::v1::TransferFrame report;
    report.mutable_merge_report()->set_kept_count(1);
    return std::make_unique<ScriptedReceiver>(std::vector<gpuctl::v1::TransferFrame>{
        NeedFrame(), MissingFrame({0, 1}), report, DoneFrame()});
  };
  world.dir.Write("folder/notes.txt", "notes");
  for (const char* source : {"folder", "folder/notes.txt"}) {
    const auto code = CmdCp(world.context, {world.dir.Sub(source), "amber-fox-1:there"});
    EXPECT_THAT(code, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("cp to amber-fox-1:there: ")))
        << source;
    EXPECT_EQ(ExitCodeOf(code.status()), kExitFailed);
  }
}

}  // namespace
}  // namespace gpuctl
