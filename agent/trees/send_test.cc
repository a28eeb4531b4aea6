#include "agent/trees/send.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "common/base/status_macros.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {
namespace {

using gpuctl::v1::TransferFrame;
using gpuctl::v1::Want;
using ::testing::HasSubstr;

// A node's root with one job in it.
struct SampleNode : Node {
  SampleNode() {
    dir.Write("root/jobs/j-1/spec.json", "secret spec");
    dir.Write("root/jobs/j-1/work/out/model.bin",
              RandomBytes(2 * static_cast<size_t>(kFileDataBytes) + 5, 1));
    dir.Write("root/jobs/j-1/work/out/run.sh", "#!/bin/sh\n", 0755);
    dir.Write("root/jobs/j-1/ckpt/step-1/manifest.json", "{}");
    dir.Write("root/outside/secret", "secret");
  }
  std::string Sub(absl::string_view path) const { return JoinPath(root, path); }
};

TransferFrame Begin(const std::string& job_id, const std::string& path) {
  TransferFrame frame;
  frame.mutable_pull_begin()->set_job_id(job_id);
  frame.mutable_pull_begin()->set_path(path);
  return frame;
}

absl::Status SendScript(const Node& node, const std::vector<TransferFrame>& frames,
                        std::vector<TransferFrame>* heard) {
  ScriptedPeer peer(Encode(frames));
  absl::Status status = SendPull(node.root, peer.in_fd(), peer.out_fd());
  *heard = Decode(peer.Heard());
  return status;
}

TransferFrame WantFrame(const std::string& path, int64_t offset, int64_t length) {
  TransferFrame frame;
  Want::Piece* piece = frame.mutable_want()->add_pieces();
  piece->set_path(path);
  piece->set_offset(offset);
  piece->set_length(length);
  return frame;
}

TEST(SendPull, BringsADirectoryHome) {
  SampleNode node;
  TempDir laptop;
  ASSERT_OK(node.Pull("work/out", laptop));
  EXPECT_EQ(DigestOf(laptop.Sub("got")), DigestOf(node.Sub("jobs/j-1/work/out")));
  EXPECT_EQ(laptop.Names("got"), (std::vector<std::string>{"model.bin", "run.sh"}));
  EXPECT_EQ(ReadFileToString(laptop.Sub("got/run.sh")).value(), "#!/bin/sh\n");
  TempDir checkpoint;
  ASSERT_OK(node.Pull("ckpt/step-1", checkpoint));
  EXPECT_TRUE(PathExists(checkpoint.Sub("got/manifest.json")));
  TempDir all;
  ASSERT_OK(node.Pull("work", all));
  EXPECT_TRUE(PathExists(all.Sub("got/out/model.bin")));
}

TEST(SendPull, BringsASingleFileHome) {
  SampleNode node;
  TempDir laptop;
  ASSERT_OK(node.Pull("work/out/run.sh", laptop));
  EXPECT_EQ(laptop.Names("got"), std::vector<std::string>{"run.sh"});
  EXPECT_EQ(ScanTree(laptop.Sub("got")).value()[0].mode(), 0755u);
}

// Appends to a file until it is destroyed.
class Appender {
 public:
  explicit Appender(const std::string& path)
      : thread_([this, path] {
          const UniqueFd fd(file_ops::Open(path, O_WRONLY | O_APPEND));
          while (!done_) (void)WriteAll(fd.get(), "more", path);
        }) {}
  ~Appender() {
    done_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> done_{false};
  std::thread thread_;
};

TEST(SendPull, BringsTheBeginningOfAFileThatTheJobAppendsTo) {
  SampleNode node;
  const std::string log = node.dir.Write("root/jobs/j-1/work/log",
                                         RandomBytes(static_cast<size_t>(kPartBytes) + 100, 1));
  TempDir laptop;
  PullSubject subject;
  subject.job_id = "j-1";
  subject.path = "work";
  subject.files = {"log", "out/run.sh"};
  subject.snapshots = true;
  absl::StatusOr<Pulled> pulled;
  {
    const Appender appender(log);
    const auto wire = node.ToSend();
    pulled = PullTree(StreamOf(wire), subject, laptop.path(), Clock::Real(), {});
  }
  ASSERT_OK(pulled);
  ASSERT_OK(PublishPulled(*pulled->tree, laptop.Sub("got")));
  const std::string got = ReadFileToString(laptop.Sub("got/log")).value();
  EXPECT_GT(got.size(), static_cast<size_t>(kPartBytes));
  EXPECT_TRUE(absl::StartsWith(ReadFileToString(log).value(), got));
  EXPECT_TRUE(PathExists(laptop.Sub("got/out/run.sh")));
}

TEST(SendPull, GivesFilesTheirTimesAndSaysWhatModesItDrops) {
  SampleNode node;
  const std::string file = node.Sub("jobs/j-1/work/out/run.sh");
  ASSERT_EQ(chmod(file.c_str(), 06755), 0);
  const struct timespec times[2] = {{0, UTIME_OMIT}, {1'500'000'000, 7}};
  for (const char* name : {"run.sh", "model.bin"}) {
    ASSERT_EQ(
        utimensat(AT_FDCWD, node.Sub(absl::StrCat("jobs/j-1/work/out/", name)).c_str(), times, 0),
        0);
  }
  TempDir laptop;
  PullSubject subject;
  subject.job_id = "j-1";
  subject.path = "work/out";
  subject.snapshots = true;
  const auto wire = node.ToSend();
  const auto pulled = PullTree(StreamOf(wire), subject, laptop.path(), Clock::Real(), {});
  ASSERT_OK(pulled);
  EXPECT_EQ(pulled->notes.set_id_size(), 1);
  EXPECT_EQ(pulled->notes.set_id(0), "run.sh");
  ASSERT_OK(PublishPulled(*pulled->tree, laptop.Sub("got")));
  for (const char* name : {"run.sh", "model.bin"}) {
    struct stat info {};
    ASSERT_EQ(stat(laptop.Sub(absl::StrCat("got/", name)).c_str(), &info), 0);
    EXPECT_EQ(FileIdentity::Of(info).mtime_ns, 1'500'000'000'000'000'007) << name;
    EXPECT_EQ(info.st_mode & 07000, 0u) << name;
  }
}

TEST(SendPull, FollowsOnlyTheSymlinksThatItIsToldTo) {
  SampleNode node;
  node.dir.Write("root/outside/out/a/f", "f");
  node.dir.Write("root/outside/out/a/deep/g", "g");
  ASSERT_EQ(symlink(node.Sub("outside/out").c_str(), node.Sub("jobs/j-1/work/results").c_str()), 0);
  ASSERT_EQ(symlink(node.Sub("outside").c_str(), node.Sub("outside/out/a/other").c_str()), 0);
  const auto pull = [&](const std::string& path, const std::string& follow,
                        const std::vector<std::string>& files,
                        const TempDir& to) -> absl::StatusOr<std::map<std::string, std::string>> {
    PullSubject subject;
    subject.job_id = "j-1";
    subject.path = path;
    subject.follow = follow;
    subject.files = files;
    TransferOptions options;
    options.streams = 2;
    options.open = [&]() -> absl::StatusOr<TransferStream> { return StreamOf(node.ToSend()); };
    const auto wire = node.ToSend();
    ASSIGN_OR_RETURN(const Pulled pulled,
                     PullTree(StreamOf(wire), subject, to.path(), Clock::Real(), options));
    return Snapshot(pulled.tree->tree_path());
  };
  TempDir laptop;
  // A checkpoint: its directory is below the symlink, or it is the symlink.
  const auto below = pull("work/results/a", "work/results", {}, laptop);
  ASSERT_OK(below);
  EXPECT_EQ(below->at("deep/g"), "g");
  EXPECT_EQ(below->at("other"), absl::StrCat("-> ", node.Sub("outside")));
  const auto itself = pull("work/results", "work/results", {}, laptop);
  ASSERT_OK(itself);
  EXPECT_EQ(itself->at("a/f"), "f");
  // Files: they keep their names below the work directory.
  const auto files =
      pull("work", "work/results", {"results/a/f", "results/a/other/secret"}, laptop);
  ASSERT_OK(files);
  EXPECT_EQ(files->at("results/a/f"), "f");
  EXPECT_EQ(files->count("results/a/other/secret"), 0u);
  EXPECT_FALSE(pull("work/results/a", "", {}, laptop).ok());
  for (const auto& [path, follow] :
       std::vector<std::pair<std::string, std::string>>{{"work", "work/results"},
                                                        {"work", "../../outside"},
                                                        {"work/out", "work/results"},
                                                        {"work", "spec.json"}}) {
    EXPECT_THAT(pull(path, follow, {}, laptop), StatusIs(kInvalid)) << follow;
  }
  EXPECT_THAT(pull("work", "work/results", {"out/run.sh"}, laptop), StatusIs(kInvalid));
}

TEST(SendPull, BringsOnlyTheFilesThatAreNamed) {
  SampleNode node;
  node.dir.Write("root/jobs/j-1/work/out/sub/f", "f");
  TempDir laptop;
  const auto wire = node.ToSend();
  PullSubject subject;
  subject.job_id = "j-1";
  subject.path = "work/out";
  subject.files = {"run.sh", "sub/f", "none", "run.sh"};
  const auto pulled = PullTree(StreamOf(wire), subject, laptop.path(), Clock::Real(), {});
  ASSERT_OK(pulled);
  ASSERT_OK(PublishPulled(*pulled->tree, laptop.Sub("got")));
  EXPECT_EQ(laptop.Names("got"), (std::vector<std::string>{"run.sh", "sub"}));
}

TEST(SendPull, ReachesNothingButTheJobsOwnFiles) {
  SampleNode node;
  ASSERT_EQ(symlink(node.Sub("outside").c_str(), node.Sub("jobs/j-1/work/dir").c_str()), 0);
  ASSERT_EQ(symlink("../spec.json", node.Sub("jobs/j-1/work/file").c_str()), 0);
  ASSERT_OK(MakeDirectories(node.Sub("jobs/j-2")));
  ASSERT_EQ(symlink("../../outside", node.Sub("jobs/j-2/work").c_str()), 0);
  ASSERT_EQ(mkfifo(node.Sub("jobs/j-1/work/fifo").c_str(), 0600), 0);
  for (const TransferFrame& begin : {
           Begin("j-1", ""),
           Begin("j-1", "spec.json"),
           Begin("j-1", "."),
           Begin("j-1", "/etc"),
           Begin("j-1", "work/../spec.json"),
           Begin("j-1", "work/"),
           Begin("j-1", "../j-1/work"),
           Begin("j-1", "workx"),
           Begin("j-1", std::string("work\0x", 6)),
           Begin("j-1", "work/dir"),
           Begin("j-1", "work/dir/secret"),
           Begin("j-1", "work/file"),
           Begin("j-1", "work/fifo"),
           Begin("j-1", "work/missing"),
           Begin("j-2", "work"),
           Begin("j-2", "work/secret"),
           Begin("j-3", "work"),
           Begin("../outside", "work"),
           Begin("", "work"),
           Begin("..", "work"),
           Begin("J", "work"),
       }) {
    std::vector<TransferFrame> heard;
    EXPECT_FALSE(SendScript(node, {begin}, &heard).ok()) << begin.ShortDebugString();
    ASSERT_EQ(heard.size(), 1u) << begin.ShortDebugString();
    EXPECT_NE(heard[0].done().code(), 0);
  }
}

TEST(SendPull, AnswersRequestsForNothingButTheSubject) {
  SampleNode node;
  node.dir.Write("root/jobs/j-1/work/f", "beside");
  ASSERT_EQ(symlink(node.Sub("outside").c_str(), node.Sub("jobs/j-1/work/out/dir").c_str()), 0);
  ASSERT_EQ(symlink("../../spec.json", node.Sub("jobs/j-1/work/out/file").c_str()), 0);
  ASSERT_EQ(mkfifo(node.Sub("jobs/j-1/work/out/fifo").c_str(), 0600), 0);
  TransferFrame join = Begin("j-1", "work/out");
  join.mutable_pull_begin()->set_joins(true);
  TransferFrame file_join = Begin("j-1", "work/out/run.sh");
  file_join.mutable_pull_begin()->set_joins(true);
  std::vector<TransferFrame> heard;
  ASSERT_OK(SendScript(node, {join, WantFrame("run.sh", 2, 4), DoneFrame()}, &heard));
  ASSERT_EQ(heard.size(), 2u);
  EXPECT_EQ(heard[0].file_data().data(), "/bin");
  EXPECT_EQ(heard[0].file_data().offset(), 2);
  ASSERT_OK(SendScript(node, {file_join, WantFrame("run.sh", 0, 1), DoneFrame()}, &heard));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const TransferFrame& want : {WantFrame("", 0, 1),
                                    WantFrame("/etc/passwd", 0, 1),
                                    WantFrame("../f", 0, 1),
                                    WantFrame("../../spec.json", 0, 1),
                                    WantFrame("x/../../f", 0, 1),
                                    WantFrame(".", 0, 1),
                                    WantFrame(std::string("run.sh\0", 7), 0, 1),
                                    WantFrame("dir/secret", 0, 1),
                                    WantFrame("file", 0, 1),
                                    WantFrame("fifo", 0, 1),
                                    WantFrame("none", 0, 1),
                                    WantFrame("run.sh", -1, 1),
                                    WantFrame("run.sh", 0, 0),
                                    WantFrame("run.sh", 0, -1),
                                    WantFrame("run.sh", 0, kPartBytes + 1),
                                    WantFrame("run.sh", 0, kMost),
                                    WantFrame("run.sh", kMost, 1),
                                    WantFrame("run.sh", kMost, kPartBytes),
                                    WantFrame("run.sh", 8, 3),
                                    WantFrame("run.sh", 10, 1)}) {
    EXPECT_FALSE(SendScript(node, {join, want, DoneFrame()}, &heard).ok())
        << want.ShortDebugString();
    ASSERT_FALSE(heard.empty());
    EXPECT_NE(heard.back().done().code(), 0);
    for (size_t i = 0; i + 1 < heard.size(); ++i) {
      EXPECT_LE(heard[i].file_data().data().size(), 2u) << want.ShortDebugString();
    }
  }
  for (const char* path : {"", "model.bin", "../f", "out/run.sh"}) {
    EXPECT_FALSE(SendScript(node, {file_join, WantFrame(path, 0, 1), DoneFrame()}, &heard).ok());
    ASSERT_EQ(heard.size(), 1u);
  }
}

TEST(SendPull, RefusesNamedFilesOutsideTheDirectory) {
  SampleNode node;
  for (const std::string& file : {std::string("../f"), std::string("/etc/passwd"), std::string(""),
                                  std::string("a/../../f"), std::string("a\0b", 3)}) {
    TransferFrame begin = Begin("j-1", "work/out");
    begin.mutable_pull_begin()->add_files(file);
    std::vector<TransferFrame> heard;
    EXPECT_THAT(SendScript(node, {begin, DoneFrame()}, &heard),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << file;
    ASSERT_EQ(heard.size(), 1u);
  }
}

TEST(SendPull, CarriesSymlinksWithoutFollowingThem) {
  SampleNode node;
  ASSERT_EQ(symlink(node.Sub("outside").c_str(), node.Sub("jobs/j-1/work/dir").c_str()), 0);
  TempDir laptop;
  ASSERT_OK(node.Pull("work", laptop));
  char target[4096];
  ASSERT_GT(readlink(laptop.Sub("got/dir").c_str(), target, sizeof(target)), 0);
}

TEST(SendPull, SaysWhatIsMissing) {
  SampleNode node;
  TempDir laptop;
  EXPECT_THAT(node.Pull("work/none", laptop),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("work/none")));
  EXPECT_TRUE(laptop.Names().empty());
}

TEST(SendPull, RefusesAnotherFrameAndAClosedStream) {
  SampleNode node;
  ScriptedPeer closed("");
  EXPECT_THAT(SendPull(node.root, closed.in_fd(), closed.out_fd()),
              StatusIs(absl::StatusCode::kUnavailable));
  TransferFrame other;
  other.mutable_push_begin();
  std::vector<TransferFrame> heard;
  EXPECT_THAT(SendScript(node, {other}, &heard), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace gpuctl
