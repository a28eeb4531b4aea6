// Transfers over several streams at once.
#include <gtest/gtest.h>
#include <unistd.h>

#include "common/base/mutex.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {
namespace {

const bool kStreamsInMemory = UseMemoryFileSystem();
constexpr int kStreams = 4;

// Files of all sizes; enough to be worth several streams.
struct WideLaptop : Laptop {
  WideLaptop() {
    for (uint64_t i = 0; i < 200; ++i) {
      dir.Write(absl::StrCat("small/", i), RandomBytes(100 + 13 * i, i));
    }
    for (uint64_t i = 0; i < 12; ++i) {
      dir.Write(absl::StrCat("middle-", i), RandomBytes(2'500'000 + i, 1000 + i));
    }
    dir.Write("large", RandomBytes(4 * static_cast<size_t>(kPartBytes) + 7, 5), 0444);
    Scan();
  }
};

// Opens further streams. It delays the first one until all are open, so that each has work with any
// scheduling of threads.
class Team {
 public:
  using Open = std::function<std::shared_ptr<Wire>(const WireLimits&)>;
  explicit Team(Open open) : open_(std::move(open)) {}

  // Delays the first stream, in each direction, after the messages before the content.
  void Hold(int64_t bytes) {
    if (bytes < 500'000) return;
    MutexLock lock(mutex_);
    while (opened_ < wait_for) changed_.Wait(mutex_);
  }

  TransferOptions Options() {
    TransferOptions options;
    options.streams = kStreams;
    options.open = [this]() -> absl::StatusOr<TransferStream> {
      const std::shared_ptr<Wire> wire = open_(further_limits);
      MutexLock lock(mutex_);
      ++opened_;
      changed_.NotifyAll();
      return StreamOf(wire);
    };
    return options;
  }
  int opened() {
    MutexLock lock(mutex_);
    return opened_;
  }

  WireLimits further_limits;
  int wait_for = kStreams - 1;

 private:
  const Open open_;
  Mutex mutex_;
  CondVar changed_;
  int opened_ ABSL_GUARDED_BY(mutex_) = 0;
};

absl::StatusOr<PushOutcome> PushByTeam(const Node& node, const Laptop& laptop,
                                       const PushTarget& target, const WireLimits& further = {}) {
  Team team([&](const WireLimits& limits) { return node.ToReceive(limits); });
  team.further_limits = further;
  // One that dies may be the last to be opened.
  if (further.up < 10'000'000 || further.down < 10'000'000) team.wait_for = 1;
  WireLimits first;
  first.on_up = [&](int64_t up) { team.Hold(up); };
  const auto wire = node.ToReceive(first);
  auto outcome = PushTree(StreamOf(wire), laptop.dir.path(), laptop.manifest, target, Clock::Real(),
                          team.Options());
  wire->Close();
  if (outcome.ok()) {
    EXPECT_EQ(outcome->sent.streams, kStreams);
    EXPECT_EQ(outcome->sent.bytes, outcome->sent.total_bytes);
    EXPECT_EQ(team.opened(), kStreams - 1);
    // The first one did not send everything.
    EXPECT_LT(wire->up(), outcome->sent.bytes);
  }
  return outcome;
}

TEST(Streams, PushToTheStore) {
  const WideLaptop laptop;
  Node node;
  ASSERT_OK(PushByTeam(node, laptop, {}));
  node.ExpectWhole(laptop.digest());
  EXPECT_TRUE(node.Staged().empty());
}

TEST(Streams, PushIntoAWorkDirectory) {
  const WideLaptop laptop;
  Node node;
  node.dir.Write("root/jobs/j-1/work/sub/own", "the job's");
  PushTarget target;
  target.job_id = "j-1";
  target.into = "sub/deeper";
  const auto outcome = PushByTeam(node, laptop, target);
  ASSERT_OK(outcome);
  EXPECT_EQ(outcome->merge.written(), 213);
  EXPECT_EQ(DigestOf(JoinPath(node.job.work, "sub/deeper")), laptop.digest());
  EXPECT_EQ(ReadFileToString(JoinPath(node.job.work, "sub/own")).value(), "the job's");
  EXPECT_TRUE(Node::Names(node.job.dir, true).empty());
}

absl::StatusOr<Pulled> PullByTeam(const Node& node, const TempDir& to,
                                  const WireLimits& further = {}) {
  Team team([&](const WireLimits& limits) { return node.ToSend(limits); });
  team.further_limits = further;
  // One that dies may be the last to be opened.
  if (further.up < 10'000'000 || further.down < 10'000'000) team.wait_for = 1;
  WireLimits first;
  first.on_down = [&](int64_t down) { team.Hold(down); };
  const auto wire = node.ToSend(first);
  PullSubject subject;
  subject.job_id = "j-1";
  subject.path = "work";
  auto pulled = PullTree(StreamOf(wire), subject, to.path(), Clock::Real(), team.Options());
  wire->Close();
  if (pulled.ok()) {
    EXPECT_EQ(pulled->received.streams, kStreams);
    EXPECT_LT(wire->down(), pulled->received.bytes);
  }
  return pulled;
}

TEST(Streams, Pull) {
  const WideLaptop job;
  Node node;
  ASSERT_OK(MakeDirectories(node.job.dir));
  ASSERT_OK(CopyTree(job.dir.path(), node.job.work, job.manifest));
  TempDir to;
  {
    const auto pulled = PullByTeam(node, to);
    ASSERT_OK(pulled);
    ASSERT_OK(PublishPulled(*pulled->tree, to.Sub("got")));
  }
  EXPECT_EQ(DigestOf(to.Sub("got")), job.digest());
  EXPECT_EQ(to.Names(), std::vector<std::string>{"got"});
}

TEST(Streams, OneThatDiesIsAnErrorAndTheNextTryCompletes) {
  const WideLaptop laptop;
  // A stream that dies at once may leave nothing behind.
  int64_t spared = 0;
  for (const int64_t up : {int64_t{0}, int64_t{20}, int64_t{1'000'000}, int64_t{3'000'000}}) {
    Node node;
    WireLimits limits;
    limits.up = up;
    EXPECT_THAT(PushByTeam(node, laptop, {}, limits), StatusIs(absl::StatusCode::kUnavailable))
        << up;
    EXPECT_TRUE(node.Stored().empty());
    const auto outcome = node.Push(laptop);
    ASSERT_OK(outcome);
    EXPECT_LE(outcome->sent.bytes, laptop.manifest.content_bytes());
    spared += laptop.manifest.content_bytes() - outcome->sent.bytes;
    node.ExpectWhole(laptop.digest());
    EXPECT_TRUE(node.Staged().empty());
  }
  EXPECT_GT(spared, 0);
  spared = 0;
  Node node;
  ASSERT_OK(MakeDirectories(node.job.dir));
  ASSERT_OK(CopyTree(laptop.dir.path(), node.job.work, laptop.manifest));
  // What a pull of everything takes on the wire: the content, its frames and the manifest.
  TempDir elsewhere;
  int64_t whole = 0;
  ASSERT_OK(node.Pull("work", elsewhere, {}, &whole));
  for (const int64_t down : {int64_t{0}, int64_t{1'000'000}}) {
    TempDir to;
    WireLimits limits;
    limits.down = down;
    EXPECT_THAT(PullByTeam(node, to, limits), StatusIs(absl::StatusCode::kUnavailable)) << down;
    EXPECT_TRUE(Node::Names(to.path(), false).empty());
    int64_t bytes = 0;
    ASSERT_OK(node.Pull("work", to, {}, &bytes));
    EXPECT_LE(bytes, whole);
    spared += whole - bytes;
    EXPECT_EQ(DigestOf(to.Sub("got")), laptop.digest());
    EXPECT_EQ(to.Names(), std::vector<std::string>{"got"});
  }
  EXPECT_GT(spared, 0);
}

TEST(Streams, WhereTheFirstDiesTheOthersEnd) {
  const WideLaptop laptop;
  Node node;
  Team team([&](const WireLimits& limits) { return node.ToReceive(limits); });
  WireLimits first;
  first.on_up = [&](int64_t up) { team.Hold(up); };
  first.up = 900'000;
  const auto wire = node.ToReceive(first);
  EXPECT_THAT(PushTree(StreamOf(wire), laptop.dir.path(), laptop.manifest, {}, Clock::Real(),
                       team.Options()),
              StatusIs(absl::StatusCode::kUnavailable));
  wire->Close();
  ASSERT_OK(node.Push(laptop));
  node.ExpectWhole(laptop.digest());
}

TEST(Streams, OneThatCannotBeOpenedIsNoError) {
  const WideLaptop laptop;
  Node node;
  TransferOptions options;
  int asked = 0;
  options.streams = kStreams;
  options.open = [&]() -> absl::StatusOr<TransferStream> {
    ++asked;
    return absl::UnavailableError("no more channels");
  };
  const auto wire = node.ToReceive();
  const auto outcome =
      PushTree(StreamOf(wire), laptop.dir.path(), laptop.manifest, {}, Clock::Real(), options);
  ASSERT_OK(outcome);
  EXPECT_EQ(outcome->sent.streams, 1);
  EXPECT_EQ(asked, 1);
  node.ExpectWhole(laptop.digest());
}

TEST(Streams, LittleContentIsNotWorthOne) {
  Laptop laptop;
  laptop.dir.Write("f", RandomBytes(1 << 20, 1));
  laptop.Scan();
  Node node;
  TransferOptions options;
  options.open = []() -> absl::StatusOr<TransferStream> {
    ADD_FAILURE();
    return absl::UnavailableError("");
  };
  const auto wire = node.ToReceive();
  ASSERT_OK(
      PushTree(StreamOf(wire), laptop.dir.path(), laptop.manifest, {}, Clock::Real(), options));
}

// A further stream finds a changed file. The node is told on every stream.
TEST(Streams, AChangedFileOnAFurtherStreamEndsAll) {
  WideLaptop laptop;
  ASSERT_EQ(truncate(laptop.dir.Sub("middle-7").c_str(), 5), 0);
  Node node;
  EXPECT_THAT(PushByTeam(node, laptop, {}), StatusIs(absl::StatusCode::kAborted));
  EXPECT_TRUE(node.Stored().empty());
  laptop.Scan();
  ASSERT_OK(node.Push(laptop));
  node.ExpectWhole(laptop.digest());
}

// A file of zeros over all streams takes nothing on the wire and on the disk.
TEST(Streams, ASparseFileStaysSparse) {
  Laptop laptop;
  constexpr int64_t kSize = int64_t{1} << 30;
  {
    const UniqueFd fd(file_ops::Open(laptop.dir.Sub("sparse"), O_RDWR | O_CREAT, 0644));
    ASSERT_EQ(ftruncate(fd.get(), kSize), 0);
    ASSERT_EQ(pwrite(fd.get(), "end", 3, kSize - 3), 3);
  }
  laptop.Scan();
  Node node;
  Team team([&](const WireLimits& limits) { return node.ToReceive(limits); });
  const auto wire = node.ToReceive();
  const auto outcome = PushTree(StreamOf(wire), laptop.dir.path(), laptop.manifest, {},
                                Clock::Real(), team.Options());
  ASSERT_OK(outcome);
  EXPECT_EQ(outcome->sent.bytes, kSize);
  wire->Close();
  EXPECT_LT(wire->up(), 2 << 20);
  ASSERT_TRUE(HasStoredTree(node.trees, laptop.digest()));
  struct stat info {};
  const std::string stored = JoinPath(JoinPath(node.trees, laptop.digest()), "sparse");
  ASSERT_EQ(stat(stored.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, kSize);
  EXPECT_LT(info.st_blocks * 512, 1 << 20);
  // A job's copy takes no more room, and a pull brings back the same file.
  ASSERT_OK(MakeDirectories(node.job.dir));
  ASSERT_OK(CopyStoredTree(node.trees, laptop.digest(), node.job.work));
  ASSERT_EQ(stat(JoinPath(node.job.work, "sparse").c_str(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, 1 << 20);
  TempDir to;
  int64_t down = 0;
  ASSERT_OK(node.Pull("work", to, {}, &down));
  EXPECT_LT(down, 2 << 20);
  ASSERT_EQ(stat(to.Sub("got/sparse").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, kSize);
  EXPECT_LT(info.st_blocks * 512, 1 << 20);
}

}  // namespace
}  // namespace gpuctl
