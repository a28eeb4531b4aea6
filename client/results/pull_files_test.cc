// What a pull brings home, what it takes for brought, and what it does not touch.
#include "client/results/pull_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "agent/trees/send.h"
#include "client/base/exit_codes.h"
#include "client/runs/pulled_record.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/transfer/frame_channel.h"
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

// A node that answers each pull with the same tree, whatever it was asked for.
class LyingStream : public AgentStream {
 public:
  LyingStream(Manifest manifest, std::vector<std::string> contents)
      : wire_([manifest = std::move(manifest), contents = std::move(contents)](int fd) {
          FrameChannel channel(fd, fd);
          (void)channel.Read();
          (void)WriteManifest(channel, manifest, /*single_file=*/false);
          while (true) {
            const auto frame = channel.Read();
            if (!frame.ok() || !frame->has_want()) break;
            for (const auto& piece : frame->want().pieces()) {
              (void)channel.Write(DataFrame(piece.index(), 0, contents[piece.index()]));
            }
            (void)channel.Flush();
          }
          (void)channel.WriteDone(absl::OkStatus());
        }),
        stream_(wire_.fd(), wire_.fd()) {}
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
  // Makes the node answer every pull with these files.
  void NodeLies(const std::vector<std::pair<std::string, std::string>>& files) {
    Manifest manifest;
    std::vector<std::string> contents;
    for (const auto& [path, content] : files) {
      manifest.Append(FileOf(path, content));
      contents.push_back(content);
    }
    NodeSends(manifest, contents);
  }
  void NodeSends(const Manifest& manifest, const std::vector<std::string>& contents) {
    world_.script(kNode).run_agent =
        [=](const std::string&) -> absl::StatusOr<std::unique_ptr<AgentStream>> {
      return std::make_unique<LyingStream>(manifest, contents);
    };
  }
  // The same files with the times and sizes that a node lists.
  absl::StatusOr<PulledNames> Listed(const std::vector<std::string>& paths) {
    std::vector<gpuctl::v1::Artifact> artifacts;
    for (const std::string& path : paths) {
      struct stat info {};
      EXPECT_EQ(stat(node_.Sub(absl::StrCat("jobs/j-1/", path)).c_str(), &info), 0);
      gpuctl::v1::Artifact& artifact = artifacts.emplace_back();
      artifact.set_path(path);
      artifact.set_size(info.st_size);
      artifact.set_modified_ms(ModifiedMs(info));
    }
    return PullFiles(world_.context, *links_, row_, artifacts, To(), style_);
  }
  ino_t Inode(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(stat(JoinPath(To(), path).c_str(), &info), 0);
    return info.st_ino;
  }
  int64_t RecordBytes() {
    struct stat info {};
    const std::string run = world_.context.Paths().value().MirrorDir("r-1");
    EXPECT_EQ(stat(JoinPath(run, "pulled.jsonl").c_str(), &info), 0);
    return info.st_size;
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
  for (const char* path : {"ckpt/../spec.json", "work/../spec.json", "work/", "/etc/passwd"}) {
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

TEST_F(PullFilesTest, OnlyWhatWasAskedForIsWritten) {
  NodeLies({{".bashrc", "evil"}, {".ssh/authorized_keys", "evil"}, {"out.txt", "out"}});
  EXPECT_THAT(Files({"work/out.txt"}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not asked for")));
  EXPECT_THAT(home_.Names("results"), IsEmpty());
  EXPECT_THAT(Recorded(), IsEmpty());
}

TEST_F(PullFilesTest, ASymlinkDoesNotComeInAFilesPlace) {
  NodeSends(ManifestOf({SymlinkOf("out.txt", "/etc/passwd")}), {""});
  EXPECT_THAT(Files({"work/out.txt"}).status(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(home_.Names("results"), IsEmpty());
}

TEST_F(PullFilesTest, OfATrainersCheckpointOnlyTheListedFilesComeHome) {
  CheckpointInfo info = Trainers("weights", "weights");
  OnNode("ckpt/step-7/extra.py", "evil");
  gpuctl::v1::Artifact& file = *info.add_files();
  file.set_path("ckpt/step-7/weights.bin");
  file.set_size(7);
  ASSERT_OK(Checkpoint(info));
  EXPECT_THAT(home_.Names("results/step-7"), ElementsAre("manifest.json", "weights.bin"));
}

TEST_F(PullFilesTest, AFileThatIsGoneFromTheNodeIsNamed) {
  OnNode("work/a.txt", "a");
  std::vector<gpuctl::v1::Artifact> artifacts;
  for (const char* path : {"work/a.txt", "work/b.txt"}) artifacts.emplace_back().set_path(path);
  const auto pulled = PullFiles(world_.context, *links_, row_, artifacts, To(), style_);
  ASSERT_OK(pulled);
  EXPECT_THAT(pulled->gone, ElementsAre("b.txt"));
}

TEST_F(PullFilesTest, WhatIsHomeIsNotBroughtOrWrittenAgain) {
  OnNode("work/out/log.txt", "log");
  OnNode("work/a.txt", "a");
  ASSERT_OK(Listed({"work/out/log.txt", "work/a.txt"}));
  const ino_t inode = Inode("out/log.txt");
  const int64_t record = RecordBytes();
  // The node is not even asked.
  world_.script(kNode).run_agent =
      [](const std::string&) -> absl::StatusOr<std::unique_ptr<AgentStream>> {
    return absl::UnavailableError("asked");
  };
  const auto second = Listed({"work/out/log.txt", "work/a.txt"});
  ASSERT_OK(second);
  EXPECT_THAT(second->there, ElementsAre("a.txt", "out/log.txt"));
  EXPECT_EQ(Inode("out/log.txt"), inode);
  EXPECT_EQ(RecordBytes(), record);
}

TEST_F(PullFilesTest, ContentThatIsHomeIsNotWrittenAgain) {
  OnNode("work/a.txt", "a");
  ASSERT_OK(Files({"work/a.txt"}));
  const ino_t inode = Inode("a.txt");
  // This list has no times, so the node's hashes decide.
  const auto second = Files({"work/a.txt"});
  ASSERT_OK(second);
  EXPECT_EQ(second->bytes, 0);
  EXPECT_EQ(Inode("a.txt"), inode);
}

TEST_F(PullFilesTest, AnUnchangedCheckpointIsNotReadAgain) {
  CheckpointInfo info = Foreign("weights");
  ASSERT_OK(Checkpoint(info));
  const ino_t inode = Inode("best/weights.bin");
  const int64_t record = RecordBytes();
  world_.script(kNode).run_agent =
      [](const std::string&) -> absl::StatusOr<std::unique_ptr<AgentStream>> {
    return absl::UnavailableError("asked");
  };
  const auto again = Checkpoint(info);
  ASSERT_OK(again);
  EXPECT_FALSE(*again);
  EXPECT_EQ(Inode("best/weights.bin"), inode);
  EXPECT_EQ(RecordBytes(), record);
}

// Whenever gpuctl is killed, one of the two is there under its name.
TEST_F(PullFilesTest, ACheckpointIsNeverMissingWhileNewerContentReplacesIt) {
  ASSERT_OK(Checkpoint(Foreign("weights")));
  const CheckpointInfo newer = Foreign("newer weights");
  std::atomic<int> missing{0};
  file_ops::SetFaultHook([&](file_ops::Op, const std::string&) {
    missing += !PathExists(JoinPath(To(), "best/weights.bin"));
    return 0;
  });
  const auto brought = Checkpoint(newer);
  file_ops::SetFaultHook(nullptr);
  ASSERT_OK(brought);
  EXPECT_EQ(Home("best/weights.bin"), "newer weights");
  EXPECT_EQ(missing, 0);
  EXPECT_THAT(home_.Names("results"), ElementsAre("best"));
}

TEST_F(PullFilesTest, WhatPullDidNotBringIsNotOverwrittenWithoutAsking) {
  OnNode("work/a.txt", "theirs");
  home_.Write("results/a.txt", "mine");
  const auto refused = Listed({"work/a.txt"});
  EXPECT_THAT(refused.status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(HintOf(refused.status()), HasSubstr("--overwrite"));
  EXPECT_EQ(Home("a.txt"), "mine");
  style_.overwrite = true;
  ASSERT_OK(Listed({"work/a.txt"}));
  EXPECT_EQ(Home("a.txt"), "theirs");
  style_.overwrite = false;
  // What pull brought and the user changed is the user's.
  home_.Write("results/a.txt", "theirs, and mine");
  OnNode("work/a.txt", "newer");
  EXPECT_THAT(Listed({"work/a.txt"}).status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(Home("a.txt"), "theirs, and mine");
}

TEST_F(PullFilesTest, WhatIsNoFileIsNeverReplaced) {
  OnNode("work/link", "content");
  OnNode("work/pipe", "content");
  home_.Write("precious", "mine");
  ASSERT_EQ(symlink("../precious", home_.Sub("results/link").c_str()), 0);
  ASSERT_EQ(mkfifo(home_.Sub("results/pipe").c_str(), 0600), 0);
  style_.overwrite = true;
  for (const char* path : {"work/link", "work/pipe"}) {
    EXPECT_THAT(Files({path}).status(), StatusIs(absl::StatusCode::kFailedPrecondition)) << path;
  }
  struct stat info {};
  EXPECT_EQ(lstat(home_.Sub("results/link").c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  EXPECT_EQ(lstat(home_.Sub("results/pipe").c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));
  EXPECT_EQ(ReadFileToString(home_.Sub("precious")).value_or(""), "mine");
}

}  // namespace
}  // namespace gpuctl
