// Breaks the link a thousand times while a job writes a million lines: reset, black hole, killed
// sshd, stopped process. GPUCTL_CUTS sets another number, GPUCTL_SEED replays a run.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/link/ssh_session.h"
#include "client/streams/follower.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/loopback_node.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kLinesPerStep = 1000;
// The latest place of a cut, in bytes after the start of a step's traffic. It lies inside the step,
// so the message with the step's bytes never arrives completely. Making a link takes less traffic
// than this.
constexpr int64_t kMostOfStep = 50'000;

enum class Cut { kReset, kBlackHole, kKillSshd, kStopProcess };

int FromEnvironment(const char* name, int otherwise) {
  const char* value = getenv(name);
  return value != nullptr ? atoi(value) : otherwise;
}

// Collects what a viewer prints: the mirror's bytes from where it stopped, each once.
class Viewer : public FollowObserver {
 public:
  explicit Viewer(std::string mirror_dir)
      : reader_(MirrorPaths(mirror_dir).output, StreamShape{kDefaultSegmentBytes}) {}
  void OnStored() override {
    std::string buffer(1 << 20, '\0');
    for (;;) {
      const absl::StatusOr<int64_t> got = reader_.Read(
          static_cast<int64_t>(shown.size()), buffer.data(), static_cast<int64_t>(buffer.size()));
      ASSERT_OK(got);
      if (*got == 0) return;
      shown.append(buffer, 0, static_cast<size_t>(*got));
    }
  }
  void OnNotice(absl::string_view text) override { ADD_FAILURE() << text; }
  absl::Status OnNode(const std::string& id) override {
    node_id = id;
    return absl::OkStatus();
  }
  void OnLinkDown(const absl::Status&, absl::Duration) override { ++downs; }
  std::string shown;
  std::string node_id;
  std::atomic<int> downs{0};

 private:
  StreamReader reader_;
};

class CutTest : public ::testing::Test {
 protected:
  CutTest()
      : cuts_(FromEnvironment("GPUCTL_CUTS", 1000)),
        seed_(static_cast<unsigned>(
            FromEnvironment("GPUCTL_SEED", static_cast<int>(std::random_device{}() >> 1)))),
        random_(seed_),
        sshd_(node_.state_dir()) {
    printf("%d cuts, GPUCTL_SEED=%u\n", cuts_, seed_);
    fflush(stdout);
  }

  std::string Fifo() const { return node_.dir().Sub("barrier"); }

  int64_t NodeSize() const {
    return StreamReader(node_.root().Job(job_id_).output, StreamShape{kDefaultSegmentBytes})
        .GetExtent()
        .value()
        .size;
  }
  int64_t MirrorSize() const {
    return StreamReader(MirrorPaths(mirror_).output, StreamShape{kDefaultSegmentBytes})
        .GetExtent()
        .value()
        .size;
  }

  // Lets the job write its next step; returns when it has begun.
  void NextStep() {
    Eventually(
        [&] {
          UniqueFd gate(open(Fifo().c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
          return gate.valid();
        },
        "the job at its barrier");
  }

  std::vector<pid_t> StopVictims() {
    std::vector<pid_t> victims = node_.Pids("bridge");
    if (random_() % 2 == 0) victims = LiveSshds();
    return victims;
  }

  std::vector<pid_t> LiveSshds() {
    std::vector<pid_t> live;
    for (const pid_t pid : sshd_.pids()) {
      const std::string stat =
          ReadFileToString(absl::StrCat("/proc/", pid, "/stat"), 4096).value_or("");
      const size_t end = stat.rfind(')');
      if (end != std::string::npos && stat.substr(end + 2, 1) != "Z") live.push_back(pid);
    }
    return live;
  }

  void Break(Cut cut) {
    switch (cut) {
      case Cut::kReset:
        return proxy_->Reset();
      case Cut::kBlackHole:
        return proxy_->BlackHole();
      case Cut::kKillSshd:
        for (const pid_t pid : LiveSshds()) kill(pid, SIGKILL);
        return;
      case Cut::kStopProcess:
        stopped_ = StopVictims();
        for (const pid_t pid : stopped_) kill(pid, SIGSTOP);
        return;
    }
  }

  void Mend() {
    proxy_->Resume();
    // The client has given the stopped processes up by now; kill them.
    for (const pid_t pid : stopped_) kill(pid, SIGKILL);
    stopped_.clear();
  }

  // Makes one cut while a step's bytes are on their way.
  void CutOnce(int number) {
    const Cut cut = static_cast<Cut>(random_() % 4);
    ++count_[static_cast<int>(cut)];
    const int64_t inside = 1 + static_cast<int64_t>(random_() % kMostOfStep);
    // Everything written so far is in the mirror, so the next bytes are this step's.
    ASSERT_TRUE(Eventually([&] { return MirrorSize() == NodeSize(); }, "the mirror level"));
    const int downs = viewer_->downs;
    // The proxy lets `inside` bytes of the step pass and holds the rest, so the cut falls inside a
    // message.
    const int64_t until = proxy_->forwarded(FaultProxy::Direction::kBackward) + inside;
    proxy_->HoldAfter(FaultProxy::Direction::kBackward, until);
    NextStep();
    ASSERT_TRUE(proxy_->BlockUntilForwarded(FaultProxy::Direction::kBackward, until));
    ASSERT_TRUE(Eventually([&] { return MirrorSize() < NodeSize(); }, "bytes on their way"));
    Break(cut);
    ASSERT_LT(MirrorSize(), NodeSize()) << "cut " << number << " fell with nothing in flight";
    // Let the killed sshd's last bytes and the end of its connection pass.
    if (cut == Cut::kKillSshd) proxy_->Resume();
    ASSERT_TRUE(Eventually([&] { return viewer_->downs > downs; }, "the client notices"));
    Mend();
  }

  LoopbackNode node_;
  const int cuts_;
  const unsigned seed_;
  std::mt19937 random_;
  SshdListener sshd_;
  std::unique_ptr<FaultProxy> proxy_;
  std::unique_ptr<Viewer> viewer_;
  std::string job_id_;
  std::string mirror_;
  std::vector<pid_t> stopped_;
  int count_[4] = {0, 0, 0, 0};
};

TEST_F(CutTest, MirrorStaysByteEqualAndNothingIsShownTwice) {
  ASSERT_EQ(mkfifo(Fifo().c_str(), 0600), 0);
  std::vector<std::string> argv = {TestProgram("fake_job"), "--steps", absl::StrCat(cuts_ + 1),
                                   "--spam-step", absl::StrCat(kLineBytes * kLinesPerStep)};
  for (int step = 1; step <= cuts_ + 1; ++step) {
    argv.push_back("--barrier");
    argv.push_back(absl::StrCat("step:", step, "=", Fifo()));
  }
  const auto request = node_.Request(argv);
  job_id_ = request.spec().job_id();
  FollowOptions options = node_.Following(request);
  mirror_ = options.mirror_dir;
  options.dead_after = absl::Milliseconds(200);
  proxy_ = FaultProxy::Listen("127.0.0.1:0", absl::StrCat("127.0.0.1:", sshd_.port())).value();
  SshLinkOptions ssh = node_.Options();
  ssh.connect_timeout = absl::Milliseconds(500);  // a new link can meet the black hole as well
  ssh.dial = [this] { return ConnectTcp("127.0.0.1", proxy_->port(), absl::Seconds(5)); };
  const auto links = MakeSshLinkFactory(ssh);
  viewer_ = std::make_unique<Viewer>(mirror_);
  Follower follower(options, *links, *viewer_, Clock::Real());
  absl::Status status;
  std::thread following([&] { status = follower.Follow(); });
  Eventually([&] { return PathExists(node_.root().Job(job_id_).output); }, "the job's output");
  for (int number = 0; number < cuts_ && !HasFatalFailure(); ++number) CutOnce(number);
  if (HasFatalFailure()) follower.Stop();
  NextStep();
  following.join();
  ASSERT_OK(status);

  const std::string on_node =
      ReadStream(node_.root().Job(job_id_).output, StreamShape{kDefaultSegmentBytes});
  EXPECT_GE(std::count(on_node.begin(), on_node.end(), '\n'),
            static_cast<int64_t>(cuts_) * kLinesPerStep);
  EXPECT_EQ(ReadStream(MirrorPaths(mirror_).output, StreamShape{kDefaultSegmentBytes}), on_node);
  EXPECT_EQ(viewer_->shown, on_node);
  printf("resets %d, black holes %d, sshd killed %d, process stopped %d\n", count_[0], count_[1],
         count_[2], count_[3]);

  // A second client that knows nothing sees the same.
  FollowOptions second = node_.Following(request, "second");
  second.start.reset();
  second.node_id = viewer_->node_id;
  Viewer other(second.mirror_dir);
  ASSERT_OK(Follower(second, *links, other, Clock::Real()).Follow());
  EXPECT_EQ(other.shown, on_node);
}

}  // namespace
}  // namespace gpuctl
