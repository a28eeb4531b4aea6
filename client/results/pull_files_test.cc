// What a pull brings home, what it takes for brought, and what it does not touch.
#include "client/results/pull_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "agent/trees/send.h"
#include "client/base/exit_codes.h"
#include "client/results/pulled_record.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kNode[] = "me@box:22";

// A stream to the node's own end of a pull, on threads of this process.
class SendStream : public AgentStream {
 public:
  explicit SendStream(const std::string& root)
      : wire_([root](int fd) { (void)SendPull(root, fd, fd); }), stream_(wire_.fd(), wire_.fd()) {}
  absl::Status Receive(ByteBuffer& into) override { return stream_.Receive(into); }
  absl::Status Send(ByteBuffer& from) override { return stream_.Send(from); }
  absl::Duration RoundTrip() override { return absl::Milliseconds(1); }

 private:
  Wire wire_;
  FdStream stream_;
};

class PullFilesTest : public ::testing::Test {
 protected:
  PullFilesTest() : world_(Clock::Real()) {
    row_.run_id = "r-1";
    row_.job_id = "j-1";
    style_.quiet = true;
    world_.script(kNode).run_agent =
        [this](const std::string& arguments) -> absl::StatusOr<std::unique_ptr<AgentStream>> {
      EXPECT_EQ(arguments, "send");
      return std::make_unique<SendStream>(node_.path());
    };
    links_ = world_.node(kNode).Links();
    EXPECT_OK(MakeDirectories(home_.Sub("results")));
  }
  void OnNode(const std::string& path, const std::string& content) {
    node_.Write(absl::StrCat("jobs/j-1/", path), content);
  }
  // A script's checkpoint of one file, and how the node lists it.
  CheckpointInfo Foreign(const std::string& content) {
    OnNode("work/out/best/weights.bin", content);
    CheckpointInfo info;
    info.set_kind(CheckpointInfo::KIND_FOREIGN);
    info.set_path("work/out/best");
    info.set_name("best");
    info.set_modified_ms(++modified_);
    gpuctl::v1::Artifact& file = *info.add_files();
    file.set_path("work/out/best/weights.bin");
    file.set_size(static_cast<int64_t>(content.size()));
    return info;
  }
  // The trainer's, whose manifest tells of `told`.
  CheckpointInfo Trainers(const std::string& content, const std::string& told) {
    OnNode("ckpt/step-7/weights.bin", content);
    OnNode("ckpt/step-7/manifest.json",
           absl::StrCat(R"({"format":1,"step":7,"files":[{"path":"weights.bin","size":)",
                        told.size(), R"(,"sha256":")", Sha256HexOf(told), R"("}]})"));
    CheckpointInfo info;
    info.set_path("ckpt/step-7");
    info.set_step(7);
    info.set_modified_ms(++modified_);
    return info;
  }
  absl::StatusOr<bool> Checkpoint(const CheckpointInfo& info) {
    return PullCheckpoint(world_.context, *links_, row_, info, To(), style_);
  }
  absl::StatusOr<TransferCount> Files(const std::vector<std::string>& paths) {
    std::vector<gpuctl::v1::Artifact> artifacts;
    for (const std::string& path : paths) artifacts.emplace_back().set_path(path);
    return PullFiles(world_.context, *links_, row_, artifacts, To(), style_);
  }
  std::string To() { return home_.Sub("results"); }
  std::string Home(const std::string& path) {
    return ReadFileToString(JoinPath(To(), path)).value_or("(none)");
  }
  std::vector<PulledItem> Recorded() {
    return PulledRecord(world_.context.Paths().value().MirrorDir("r-1")).Read().value();
  }

  ClientWorld world_;
  TempDir node_;
  TempDir home_;
  RunRow row_;
  TransferStyle style_;
  std::unique_ptr<LinkFactory> links_;
  int64_t modified_ = 1000;
};

TEST_F(PullFilesTest, ACheckpointIsBroughtOnceAndRecorded) {
  const CheckpointInfo info = Foreign("weights");
  const auto first = Checkpoint(info);
  ASSERT_OK(first);
  EXPECT_TRUE(*first);
  EXPECT_EQ(Home("best/weights.bin"), "weights");
  ASSERT_EQ(Recorded().size(), 1u);
  EXPECT_EQ(Recorded()[0].from, "work/out/best");
  EXPECT_TRUE(Recorded()[0].ours);
  const auto second = Checkpoint(info);
  ASSERT_OK(second);
  EXPECT_FALSE(*second);
  EXPECT_EQ(Recorded().size(), 1u);
}

TEST_F(PullFilesTest, ACopyThatWasThereIsNotOurs) {
  home_.Write("results/best/weights.bin", "weights");
  const auto brought = Checkpoint(Foreign("weights"));
  ASSERT_OK(brought);
  EXPECT_FALSE(*brought);
  ASSERT_EQ(Recorded().size(), 1u);
  EXPECT_FALSE(Recorded()[0].ours);
  // So it is not replaced by newer content either.
  const auto newer = Checkpoint(Foreign("newer weights"));
  EXPECT_THAT(newer.status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(Home("best/weights.bin"), "weights");
}

TEST_F(PullFilesTest, NewerContentReplacesOnlyWhatNobodyHasTouched) {
  ASSERT_OK(Checkpoint(Foreign("weights")));
  const auto newer = Checkpoint(Foreign("newer weights"));
  ASSERT_OK(newer);
  EXPECT_TRUE(*newer);
  EXPECT_EQ(Home("best/weights.bin"), "newer weights");
  EXPECT_THAT(home_.Names("results/best"), ElementsAre("weights.bin"));
  home_.Write("results/best/notes.txt", "mine");
  const auto newest = Checkpoint(Foreign("newest weights"));
  EXPECT_THAT(newest.status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is something else")));
  EXPECT_THAT(HintOf(newest.status()), HasSubstr("--to"));
  EXPECT_EQ(Home("best/weights.bin"), "newer weights");
  EXPECT_EQ(Home("best/notes.txt"), "mine");
}

TEST_F(PullFilesTest, SomethingElseOfThatNameStaysAsItIs) {
  home_.Write("results/best/weights.bin", "another run's");
  const auto brought = Checkpoint(Foreign("weights"));
  EXPECT_THAT(brought.status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is something else")));
  EXPECT_EQ(Home("best/weights.bin"), "another run's");
  EXPECT_THAT(Recorded(), IsEmpty());
}

TEST_F(PullFilesTest, ACheckpointThatIsBeingWrittenAgainIsNotBrought) {
  CheckpointInfo info = Foreign("weights");
  OnNode("work/out/best/weights.bin", "half");
  EXPECT_THAT(Checkpoint(info).status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("it is being written again")));
  info = Foreign("weights");
  info.add_files()->set_path("work/out/best/optimizer.bin");
  EXPECT_THAT(Checkpoint(info).status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("being removed")));
  EXPECT_FALSE(PathExists(JoinPath(To(), "best")));
  EXPECT_THAT(Recorded(), IsEmpty());
}

TEST_F(PullFilesTest, TheTrainersCheckpointIsVerifiedByItsOwnManifest) {
  const CheckpointInfo good = Trainers("weights", "weights");
  const auto first = Checkpoint(good);
  ASSERT_OK(first);
  EXPECT_TRUE(*first);
  EXPECT_EQ(Home("step-7/weights.bin"), "weights");
  const auto second = Checkpoint(good);
  ASSERT_OK(second);
  EXPECT_FALSE(*second);
}

TEST_F(PullFilesTest, ATrainersCheckpointWithOtherContentDoesNotComeHome) {
  EXPECT_THAT(Checkpoint(Trainers("weighty", "weights")).status(),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(PathExists(JoinPath(To(), "step-7")));
  EXPECT_THAT(Recorded(), IsEmpty());
}

TEST_F(PullFilesTest, AnotherRunsCheckpointOfTheSameStepIsNotTakenForBrought) {
  ASSERT_OK(Checkpoint(Trainers("weights", "weights")));
  row_.run_id = "r-2";
  const CheckpointInfo other = Trainers("others!", "others!");
  EXPECT_THAT(Checkpoint(other).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is something else")));
  EXPECT_EQ(Home("step-7/weights.bin"), "weights");
  // The same content is as good, whoever brought it.
  const auto same = Checkpoint(Trainers("weights", "weights"));
  ASSERT_OK(same);
  EXPECT_FALSE(*same);
}

TEST_F(PullFilesTest, ANameThatLeadsElsewhereIsRefused) {
  CheckpointInfo info = Foreign("weights");
  info.set_name("../best");
  EXPECT_THAT(Checkpoint(info).status(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(PathExists(home_.Sub("best")));
  for (const char* path :
       {"ckpt/step-7/weights.bin", "work/../spec.json", "work/", "/etc/passwd"}) {
    EXPECT_THAT(Files({path}).status(), StatusIs(absl::StatusCode::kDataLoss)) << path;
  }
}

TEST_F(PullFilesTest, FilesComeToTheSamePlacesAndAreNotSentTwice) {
  OnNode("work/out/log.txt", "log");
  OnNode("work/out/other.txt", "not asked for");
  OnNode("work/a.txt", "a");
  home_.Write("results/mine.txt", "mine");
  const auto first = Files({"work/out/log.txt", "work/a.txt"});
  ASSERT_OK(first);
  EXPECT_EQ(first->files, 2);
  EXPECT_EQ(first->bytes, 4);
  EXPECT_EQ(Home("out/log.txt"), "log");
  EXPECT_EQ(Home("a.txt"), "a");
  EXPECT_EQ(Home("mine.txt"), "mine");
  EXPECT_FALSE(PathExists(JoinPath(To(), "out/other.txt")));
  ASSERT_EQ(Recorded().size(), 1u);
  EXPECT_EQ(Recorded()[0].files.size(), 2u);
  const auto second = Files({"work/out/log.txt", "work/a.txt"});
  ASSERT_OK(second);
  EXPECT_EQ(second->bytes, 0);
  OnNode("work/out/log.txt", "log, and more");
  const auto third = Files({"work/out/log.txt", "work/a.txt"});
  ASSERT_OK(third);
  EXPECT_EQ(third->bytes, 13);
  EXPECT_EQ(Home("out/log.txt"), "log, and more");
}

TEST_F(PullFilesTest, ADirectoryInAFilesPlaceStays) {
  OnNode("work/log", "log");
  home_.Write("results/log/mine.txt", "mine");
  EXPECT_THAT(Files({"work/log"}).status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(Home("log/mine.txt"), "mine");
  EXPECT_THAT(Recorded(), IsEmpty());
}

TEST_F(PullFilesTest, OnlyADirectoryOfOursIsKeptFromTheNextLaunch) {
  ASSERT_OK(MakeOwnDestination(home_.Sub("new")));
  EXPECT_EQ(ReadFileToString(home_.Sub("new/.gpuctlignore")).value_or(""), "*\n");
  ASSERT_OK(MakeOwnDestination(To()));
  EXPECT_FALSE(PathExists(JoinPath(To(), ".gpuctlignore")));
}

}  // namespace
}  // namespace gpuctl
