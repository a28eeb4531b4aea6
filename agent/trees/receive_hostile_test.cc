// Attacks on `gpuctl-agent receive` by a hostile laptop or job.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/trees/receive.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {
namespace {

using gpuctl::v1::TransferFrame;

// Expects that the script is refused with an error and that nothing is stored.
void ExpectRefused(const std::vector<TransferFrame>& script) {
  Node node;
  std::vector<TransferFrame> heard;
  EXPECT_FALSE(ReceiveScript(node, script, &heard).ok());
  ASSERT_FALSE(heard.empty());
  EXPECT_NE(heard.back().done().code(), 0);
  EXPECT_TRUE(node.Stored().empty());
  EXPECT_TRUE(node.dir.Names() == std::vector<std::string>{"root"} || node.dir.Names().empty());
}

TEST(ReceivePush, RefusesHostileDigests) {
  SampleLaptop laptop;
  for (const std::string& digest :
       {std::string(), std::string("../../../etc"), std::string(64, '/'), std::string(64, 'A'),
        std::string(63, 'a'), std::string(65, 'a')}) {
    ExpectRefused(laptop.FramesOf(laptop.manifest, digest));
  }
  ExpectRefused(laptop.FramesOf(laptop.manifest, std::string(64, 'a')));  // another tree's
}

TEST(ReceivePush, RefusesHostileManifests) {
  SampleLaptop laptop;
  const std::string big(2 * static_cast<size_t>(kFileDataBytes) + 3, 'b');
  for (const Manifest& manifest :
       {ManifestOf({FileOf("../f", big)}), ManifestOf({FileOf("/tmp/f", big)}),
        ManifestOf({FileOf("a/../../f", big)}), ManifestOf({FileOf(std::string("z\0f", 3), big)}),
        ManifestOf({FileOf("a", big), FileOf("a", big)}),
        ManifestOf({FileOf("b", big), FileOf("a", big)}),
        ManifestOf({FileOf("a", big), FileOf("a/f", big)}), ManifestOf({FileOf("a", big, 04755)}),
        ManifestOf({SymlinkOf("a", "/tmp"), FileOf("a/f", big)})}) {
    ExpectRefused(laptop.FramesOf(manifest, manifest.Digest()));
  }
}

TEST(ReceivePush, RefusesFramesOutOfPlace) {
  SampleLaptop laptop;
  const auto frames = laptop.Frames();
  const auto with = [&](size_t at, const TransferFrame& frame) {
    std::vector<TransferFrame> changed = frames;
    changed.insert(changed.begin() + static_cast<long>(at), frame);
    return changed;
  };
  ExpectRefused({frames[1]});
  ExpectRefused({DataFrame(0, 0, "x")});
  ExpectRefused({DoneFrame()});
  ExpectRefused({frames[0], DoneFrame()});
  ExpectRefused(with(1, DataFrame(0, 0, "x")));
  ExpectRefused(with(frames.size() - 1, frames[2]));  // half a piece once more
  ExpectRefused(with(frames.size() - 1, MissingFrame({0, 1})));
  ExpectRefused(with(3, DataFrame(99, 0, "x")));
  ExpectRefused({frames[0], frames[1], DoneFrame()});  // without its content
  Node node;
  ScriptedPeer huge(std::string("\xff\xff\xff\xff rest"));
  EXPECT_THAT(ReceivePush(node.root, huge.in_fd(), huge.out_fd()),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ReceivePush, RefusesHostileJobsAndDirectories) {
  SampleLaptop laptop;
  for (const auto& [job_id, into] :
       std::vector<std::pair<std::string, std::string>>{{"../j-1", ""},
                                                        {"..", ""},
                                                        {"j-1/work", ""},
                                                        {"J", ""},
                                                        {"j-none", ""},
                                                        {"j-1", ".."},
                                                        {"j-1", "../x"},
                                                        {"j-1", "/tmp"},
                                                        {"j-1", "a/../../x"},
                                                        {"j-1", "a/"},
                                                        {"j-1", std::string("a\0b", 3)},
                                                        {"j-1", "link"},
                                                        {"j-1", "link/deeper"},
                                                        {"j-1", "file"},
                                                        {"j-1", "file/deeper"}}) {
    Node node;
    TempDir outside;
    node.dir.Write("root/jobs/j-1/work/file", "mine");
    ASSERT_EQ(symlink(outside.path().c_str(), JoinPath(node.job.work, "link").c_str()), 0);
    PushTarget target;
    target.job_id = job_id;
    target.into = into;
    std::vector<TransferFrame> heard;
    EXPECT_FALSE(
        ReceiveScript(node, laptop.FramesOf(laptop.manifest, laptop.digest(), target), &heard).ok())
        << job_id << " " << into;
    ASSERT_FALSE(heard.empty());
    EXPECT_NE(heard.back().done().code(), 0);
    EXPECT_TRUE(outside.Names().empty());
    EXPECT_EQ(node.dir.Names(), std::vector<std::string>{"root"});
    EXPECT_EQ(node.dir.Names("root/jobs"), std::vector<std::string>{"j-1"});
    EXPECT_EQ(node.dir.Names("root/jobs/j-1/work"), (std::vector<std::string>{"file", "link"}));
    EXPECT_EQ(ReadFileToString(JoinPath(node.job.work, "file")).value(), "mine");
  }
}

TEST(ReceivePush, RefusesToJoinWhatIsNoPush) {
  SampleLaptop laptop;
  Node node;
  const std::string name = ".gpuctl-partial-0123456789abcdef";
  // It looks like a staging directory, but is in a place where jobs or others can make one.
  for (const std::string& place :
       {absl::StrCat("root/jobs/j-1/work/", name), absl::StrCat("root/", name), name,
        absl::StrCat("root/blobs/trees/", std::string(64, 'a'), "/", name)}) {
    node.dir.Write(absl::StrCat(place, "/manifest"), laptop.manifest.bytes());
    ASSERT_OK(MakeDirectories(node.dir.Sub(absl::StrCat(place, "/tree"))));
  }
  TempDir outside;
  outside.Write("manifest", laptop.manifest.bytes());
  ASSERT_OK(MakeDirectories(outside.Sub("tree")));
  const std::string linked = absl::StrCat(node.trees, "/.gpuctl-partial-link");
  ASSERT_EQ(symlink(outside.path().c_str(), linked.c_str()), 0);
  for (const std::string& token :
       {std::string(), std::string("."), std::string("../x"), absl::StrCat("../", name), name,
        absl::StrCat("blobs/trees/../../../", name), absl::StrCat("jobs/../", name),
        absl::StrCat("jobs/j-1/work/", name), absl::StrCat("/", node.trees, "/", name),
        absl::StrCat("blobs/trees/", std::string(64, 'a'), "/", name),
        std::string("blobs/trees/.gpuctl-partial-none"),
        std::string("blobs/trees/.gpuctl-partial-link"), std::string("blobs/trees"),
        std::string("jobs/j-1"), std::string("jobs/j-1/work"),
        std::string("blobs/trees/.gpuctl-partial-\0x", 30)}) {
    TransferFrame join;
    join.mutable_push_join()->set_token(token);
    const auto frames = laptop.Frames();
    std::vector<TransferFrame> script = {join};
    script.insert(script.end(), frames.begin() + 2, frames.end());
    std::vector<TransferFrame> heard;
    EXPECT_FALSE(ReceiveScript(node, script, &heard).ok()) << token;
    ASSERT_EQ(heard.size(), 1u) << token;
    EXPECT_NE(heard[0].done().code(), 0) << token;
  }
  EXPECT_TRUE(outside.Names("tree").empty());
  EXPECT_TRUE(node.dir.Names(absl::StrCat(name, "/tree")).empty());
  EXPECT_TRUE(node.dir.Names(absl::StrCat("root/jobs/j-1/work/", name, "/tree")).empty());
}

TEST(ReceivePush, RefusesContentWithAWrongHash) {
  SampleLaptop laptop;
  Node node;
  auto frames = laptop.Frames();
  for (TransferFrame& frame : frames) {
    if (frame.has_file_data()) frame.mutable_file_data()->mutable_data()->back() ^= 1;
  }
  EXPECT_THAT(ReceiveScript(node, frames), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_TRUE(node.Stored().empty());
  // The content is wrong, so nothing of it is used.
  const auto outcome = node.Push(laptop);
  ASSERT_OK(outcome);
  EXPECT_EQ(outcome->sent.bytes, laptop.manifest.content_bytes());
  node.ExpectWhole(laptop.digest());
}

// A job that shares the machine puts symlinks into a running push.
TEST(ReceivePush, ASymlinkSwappedInBetweenIsNotFollowed) {
  SampleLaptop laptop;
  TempDir outside;
  outside.Write("main.py", "mine");
  outside.Write("big", "mine");
  for (const std::string& swapped : {std::string("src"), std::string("big")}) {
    Node node;
    bool done = false;
    file_ops::SetFaultHook([&](file_ops::Op op, const std::string& path) {
      const bool now =
          op == file_ops::Op::kOpen && path == (swapped == "src" ? "src/main.py" : "big");
      if (now && !done) {
        done = true;
        const auto staged = node.Staged();
        const std::string tree = JoinPath(JoinPath(node.trees, staged.at(0)), "tree");
        const std::string target = swapped == "src" ? outside.path() : outside.Sub("big");
        (void)RemoveTree(JoinPath(tree, swapped));
        EXPECT_EQ(symlink(target.c_str(), JoinPath(tree, swapped).c_str()), 0);
      }
      return 0;
    });
    const absl::Status status = ReceiveScript(node, laptop.Frames());
    file_ops::SetFaultHook(nullptr);
    EXPECT_TRUE(done);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(node.Stored().empty());
    EXPECT_EQ(ReadFileToString(outside.Sub("main.py")).value(), "mine");
    EXPECT_EQ(ReadFileToString(outside.Sub("big")).value(), "mine");
    EXPECT_EQ(outside.Names().size(), 2u);
  }
}

}  // namespace
}  // namespace gpuctl
