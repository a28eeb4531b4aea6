// Transfers that are cut after every 64 KiB. The next try sends only the missing content.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <future>
#include <thread>
#include <utility>

#include "tests/support/every_nth.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {
namespace {

const bool kResumeInMemory = UseMemoryFileSystem();
constexpr int64_t kStep = 64 << 10;
// The bytes beside content: the manifest, requests and frame headers.
constexpr int64_t kOverheadBytes = 64 << 10;

// Small files, one of 20 MB in three parts with holes, and all other kinds of entries.
struct MixedLaptop : Laptop {
  explicit MixedLaptop(uint64_t seed) {
    for (uint64_t i = 0; i < 60; ++i) {
      dir.Write(absl::StrCat("src/d", i % 7, "/f", i), RandomBytes(200 + i * 700, seed * 1000 + i));
    }
    dir.Write("empty", "");
    EXPECT_OK(MakeDirectories(dir.Sub("void"), 0750));
    EXPECT_EQ(symlink("src/d1", dir.Sub("link").c_str()), 0);
    const UniqueFd fd(file_ops::Open(dir.Sub("large"), O_RDWR | O_CREAT, 0444));
    EXPECT_EQ(ftruncate(fd.get(), 20'000'000), 0);
    for (int64_t part = 0; part < 3; ++part) {
      const std::string data = RandomBytes(400'000, seed + static_cast<uint64_t>(part));
      EXPECT_EQ(pwrite(fd.get(), data.data(), data.size(), part * kPartBytes + 100'000),
                static_cast<ssize_t>(data.size()));
    }
    Scan();
  }
};

// Returns `length` bytes from `offset`: fewer where the file ends, none where there is no file.
std::string ReadRange(const std::string& path, int64_t offset, int64_t length) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string bytes(static_cast<size_t>(length), '\0');
  const ssize_t got = fd.valid() ? pread(fd.get(), bytes.data(), bytes.size(), offset) : 0;
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return bytes;
}

// Returns the content bytes of the pieces that no staging directory in `parent` has.
int64_t LackingBytes(const std::string& parent, const std::string& source,
                     const Manifest& manifest) {
  int64_t lacking = 0;
  MissingContent::AllOf(manifest).ForEachPiece(manifest, [&](const Piece& piece) {
    const std::string path = manifest[piece.index].path();
    const std::string wanted = ReadRange(JoinPath(source, path), piece.offset, piece.length);
    for (const std::string& staged : Node::Names(parent, true)) {
      const std::string tree = StagedTreePath(JoinPath(parent, staged));
      if (ReadRange(JoinPath(tree, path), piece.offset, piece.length) == wanted) return;
    }
    lacking += piece.length;
  });
  return lacking;
}

// Knows the content bytes of the pieces that are complete within the first `cut` bytes of a push.
class PushStream {
 public:
  explicit PushStream(const Laptop& laptop) {
    int64_t at = 0;
    for (const auto& frame : laptop.Frames()) {
      at += static_cast<int64_t>(Encode({frame}).size());
      if (!frame.has_file_data()) continue;
      const auto& data = frame.file_data();
      const int64_t end = data.offset() + data.zeros() + static_cast<int64_t>(data.data().size());
      const int64_t size = laptop.manifest[data.index()].size();
      if (end != size && end % kPartBytes != 0) continue;
      complete_.emplace_back(at, end - (end - 1) / kPartBytes * kPartBytes);
    }
    total_ = at;
  }
  int64_t total() const { return total_; }
  int64_t CompleteWithin(int64_t cut) const {
    int64_t bytes = 0;
    for (const auto& [end, length] : complete_) bytes += end <= cut ? length : 0;
    return bytes;
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> complete_;
  int64_t total_ = 0;
};

TEST(Resume, APushToTheStoreCutAnywhere) {
  const MixedLaptop laptop(1);
  const PushStream stream(laptop);
  const int64_t content = laptop.manifest.content_bytes();
  int64_t cuts = 0;
  for (int64_t cut = kStep; cut < stream.total(); cut += kStep * EveryNth(), ++cuts) {
    Node node;
    WireLimits limits;
    limits.up = cut;
    ASSERT_FALSE(node.Push(laptop, {}, limits).ok()) << cut;
    EXPECT_TRUE(node.Stored().empty()) << cut;
    const int64_t lacking = LackingBytes(node.trees, laptop.dir.path(), laptop.manifest);
    EXPECT_EQ(lacking, content - stream.CompleteWithin(cut)) << cut;
    int64_t up = 0;
    const auto outcome = node.Push(laptop, {}, {}, &up);
    ASSERT_OK(outcome) << cut;
    EXPECT_EQ(outcome->sent.bytes, lacking) << cut;
    EXPECT_LE(up, stream.total() - cut + kPartBytes + kOverheadBytes) << cut;
    ASSERT_TRUE(HasStoredTree(node.trees, laptop.digest()));
    ASSERT_EQ(DigestOf(JoinPath(node.trees, laptop.digest())), laptop.digest()) << cut;
    EXPECT_TRUE(node.Staged().empty());
  }
  EXPECT_GT(cuts * EveryNth(), 30);
}

// A push that gets 256 KiB further with each try completes.
TEST(Resume, ManyShortTriesAddUp) {
  const MixedLaptop laptop(1);
  Node node;
  int tries = 0;
  int64_t bytes = 0;
  absl::Status status = absl::UnknownError("not tried");
  while (!status.ok() && ++tries < 100) {
    WireLimits limits;
    limits.up = 600'000;
    int64_t up = 0;
    status = node.Push(laptop, {}, limits, &up).status();
    bytes += up;
  }
  ASSERT_OK(status);
  EXPECT_GT(tries, 4);
  EXPECT_LT(bytes, 3 * PushStream(laptop).total());
  node.ExpectWhole(laptop.digest());
  EXPECT_TRUE(node.Staged().empty());
}

TEST(Resume, APushIntoAWorkDirectoryCutAnywhere) {
  const MixedLaptop first(1);
  const MixedLaptop second(2);
  PushTarget target;
  target.job_id = "j-1";
  // Not all of the second is sent: the node finds some of it in the first.
  int64_t total = 0;
  {
    Node node;
    ASSERT_OK(MakeDirectories(node.job.work, 0755));
    ASSERT_OK(node.PushWork(first));
    ASSERT_OK(node.Push(second, target, {}, &total));
  }
  EXPECT_GT(total, 30 * kStep);
  for (int64_t cut = kStep; cut < total; cut += 2 * kStep * EveryNth()) {
    Node node;
    ASSERT_OK(MakeDirectories(node.job.work, 0755));
    ASSERT_OK(node.PushWork(first));
    node.dir.Write("root/jobs/j-1/work/own", "the job's");
    const auto before = ScanTree(node.job.work).value().Digest();
    WireLimits limits;
    limits.up = cut;
    ASSERT_FALSE(node.Push(second, target, limits).ok()) << cut;
    EXPECT_EQ(DigestOf(node.job.work), before) << cut;  // unchanged
    const int64_t lacking = LackingBytes(node.job.dir, second.dir.path(), second.manifest);
    const auto outcome = node.PushWork(second);
    ASSERT_OK(outcome) << cut;
    EXPECT_LE(outcome->sent.bytes, lacking) << cut;
    EXPECT_EQ(ReadFileToString(JoinPath(node.job.work, "own")).value(), "the job's");
    ASSERT_OK(RemoveTree(JoinPath(node.job.work, "own")));
    ASSERT_EQ(DigestOf(node.job.work), second.digest()) << cut;
    EXPECT_TRUE(Node::Names(node.job.dir, true).empty());
  }
}

TEST(Resume, APullCutAnywhere) {
  const MixedLaptop job(3);
  Node node;
  ASSERT_OK(MakeDirectories(node.job.dir));
  ASSERT_EQ(rename(job.dir.path().c_str(), node.job.work.c_str()), 0);
  int64_t total = 0;
  {
    TempDir to;
    ASSERT_OK(node.Pull("work", to, {}, &total));
  }
  int64_t all_lacking = 0;
  int cuts = 0;
  for (int64_t cut = kStep; cut < total; cut += kStep * EveryNth(), ++cuts) {
    TempDir to;
    WireLimits limits;
    limits.down = cut;
    ASSERT_FALSE(node.Pull("work", to, limits).ok()) << cut;
    EXPECT_TRUE(Node::Names(to.path(), false).empty()) << cut;
    const int64_t lacking = LackingBytes(to.path(), node.job.work, job.manifest);
    int64_t down = 0;
    const auto wire = node.ToSend();
    PullSubject subject;
    subject.job_id = "j-1";
    subject.path = "work";
    {
      const auto pulled = PullTree(StreamOf(wire), subject, to.path(), Clock::Real(), {});
      ASSERT_OK(pulled) << cut;
      wire->Close();
      down = wire->down();
      EXPECT_EQ(pulled->received.bytes, lacking) << cut;
      ASSERT_OK(PublishPulled(*pulled->tree, to.Sub("got")));
    }
    EXPECT_LE(down, lacking + kOverheadBytes);
    ASSERT_EQ(DigestOf(to.Sub("got")), job.digest()) << cut;
    EXPECT_EQ(to.Names(), std::vector<std::string>{"got"});
    all_lacking += lacking;
  }
  EXPECT_GT(cuts * EveryNth(), 30);
  // Received content was kept: on average half of it was there.
  EXPECT_LT(all_lacking, cuts * job.manifest.content_bytes() * 3 / 4);
  ASSERT_EQ(rename(node.job.work.c_str(), job.dir.path().c_str()), 0);
}

// Only content that the laptop changed meanwhile is sent again.
TEST(Resume, OfAnotherVersionTakesWhatBothHave) {
  MixedLaptop laptop(1);
  Node node;
  WireLimits limits;
  limits.up = 1'500'000;
  ASSERT_FALSE(node.Push(laptop, {}, limits).ok());
  const std::string grown = ReadFileToString(laptop.dir.Sub("src/d3/f3")).value() + "more";
  laptop.dir.Write("src/d3/f3", grown);
  laptop.Scan();
  const int64_t lacking = LackingBytes(node.trees, laptop.dir.path(), laptop.manifest);
  const auto outcome = node.Push(laptop);
  ASSERT_OK(outcome);
  EXPECT_EQ(outcome->sent.bytes, lacking);
  EXPECT_LT(lacking, laptop.manifest.content_bytes());
  node.ExpectWhole(laptop.digest());
}

// A large file that is changed in one part: only what is around the change is sent.
TEST(Resume, OnlyChangedPartsOfALargeFileAreSent) {
  Laptop laptop;
  std::string content = RandomBytes(3 * static_cast<size_t>(kPartBytes) + 77, 5);
  laptop.dir.Write("large", content, 0444);
  laptop.Scan();
  Node node;
  ASSERT_OK(node.Push(laptop));
  const std::string first = laptop.digest();
  content[static_cast<size_t>(kPartBytes) + 5] ^= 1;
  content += "longer";
  laptop.dir.Write("large", content, 0444);
  laptop.Scan();
  const auto outcome = node.Push(laptop);
  ASSERT_OK(outcome);
  // The chunk that changed, and at most those beside it; the end of the file is new.
  EXPECT_GE(outcome->sent.bytes, 7);
  EXPECT_LE(outcome->sent.bytes, 256 << 10);
  node.ExpectWhole(laptop.digest());
  node.ExpectWhole(first);
}

// An interrupted push may share files with stored trees and with jobs' copies of them. A push that
// continues it changes none of these.
TEST(Resume, DoesNotWriteIntoWhatIsSharedWithStoredTrees) {
  Laptop laptop;
  std::string content = RandomBytes(2 * static_cast<size_t>(kPartBytes) + 77, 5);
  laptop.dir.Write("large", content);
  laptop.dir.Write("tool", "#!/bin/sh\n", 0644);
  laptop.Scan();
  Node node;
  ASSERT_OK(node.Push(laptop));
  const std::string first = laptop.digest();
  ASSERT_OK(LinkStoredTree(node.trees, first, node.dir.Sub("given")));
  laptop.dir.Write("more", RandomBytes(1 << 20, 6));
  laptop.Scan();
  WireLimits limits;
  limits.up = 300'000;
  ASSERT_FALSE(node.Push(laptop, {}, limits).ok());
  ASSERT_EQ(node.Staged().size(), 1u);
  content[5] ^= 1;
  laptop.dir.Write("large", content);
  ASSERT_EQ(chmod(laptop.dir.Sub("tool").c_str(), 0755), 0);
  laptop.Scan();
  const auto outcome = node.Push(laptop);
  ASSERT_OK(outcome);
  EXPECT_EQ(DigestOf(node.dir.Sub("given")), first);
  node.ExpectWhole(first);
  node.ExpectWhole(laptop.digest());
}

// A wire that stops after `from` bytes until it is released.
class StalledWire {
 public:
  explicit StalledWire(int64_t from) : from_(from) {}
  ~StalledWire() { LetGo(); }
  WireLimits Limits() {
    WireLimits limits;
    limits.on_up = [this](int64_t up) {
      if (up < from_ || std::exchange(stalls_, true)) return;
      stalled_.set_value();
      gone_on_.wait();
    };
    return limits;
  }
  void WaitUntilStalled() { stalled_.get_future().wait(); }
  void LetGo() {
    if (!std::exchange(let_go_, true)) go_on_.set_value();
  }

 private:
  const int64_t from_;
  bool stalls_ = false;  // used by the wire's thread
  bool let_go_ = false;
  std::promise<void> stalled_;
  std::promise<void> go_on_;
  std::future<void> gone_on_ = go_on_.get_future();
};

bool HasSilentPush(const std::string& parent) {
  for (const std::string& staged : Node::Names(parent, true)) {
    for (const std::string& name :
         ListDirectory(JoinPath(parent, staged)).value_or(std::vector<std::string>())) {
      if (absl::StartsWith(name, "silent.")) return true;
    }
  }
  return false;
}

// When a laptop is closed or loses its network silently, the node's end waits for hours.
TEST(Resume, APushWhoseLaptopFellSilentMakesWay) {
  Laptop laptop;
  laptop.dir.Write("large", RandomBytes(3 * static_cast<size_t>(kPartBytes), 8));
  laptop.Scan();
  for (const bool into_work : {false, true}) {
    Node node;
    node.silence = absl::Milliseconds(1);
    PushTarget target;
    if (into_work) {
      ASSERT_OK(MakeDirectories(node.job.work));
      target.job_id = "j-1";
    }
    StalledWire stalled(2 * kPartBytes + (1 << 20));
    absl::Status first;
    std::thread laptop_asleep(
        [&] { first = node.Push(laptop, target, stalled.Limits()).status(); });
    stalled.WaitUntilStalled();
    const std::string parent = into_work ? node.job.dir : node.trees;
    while (!HasSilentPush(parent)) poll(nullptr, 0, 1);
    const auto second = node.Push(laptop, target);
    stalled.LetGo();
    laptop_asleep.join();
    EXPECT_FALSE(first.ok());
    ASSERT_OK(second) << into_work;
    EXPECT_EQ(second->sent.bytes, kPartBytes) << "two parts of three were there";
    EXPECT_EQ(DigestOf(into_work ? node.job.work : JoinPath(node.trees, laptop.digest())),
              laptop.digest());
  }
}

// Another push may take over only when nothing comes.
TEST(Resume, APushThatGoesOnMakesNoWay) {
  Laptop laptop;
  laptop.dir.Write("large", RandomBytes(3 * static_cast<size_t>(kPartBytes), 8));
  laptop.Scan();
  Node node;
  PushTarget target;
  target.job_id = "j-1";
  ASSERT_OK(MakeDirectories(node.job.work));
  StalledWire stalled(2 * kPartBytes + (1 << 20));
  absl::Status first;
  std::thread other([&] { first = node.Push(laptop, target, stalled.Limits()).status(); });
  stalled.WaitUntilStalled();
  EXPECT_THAT(node.Push(laptop, target).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr("another one")));
  stalled.LetGo();
  other.join();
  EXPECT_OK(first);
  EXPECT_EQ(DigestOf(node.job.work), laptop.digest());
}

}  // namespace
}  // namespace gpuctl
