// A run that is shown: from the request that starts its job to its end, or until the user leaves.
#include "client/show/show_run.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/base/exit_codes.h"
#include "client/streams/mirror.h"
#include "client/terminal/panel_terminal.h"
#include "common/base/clock.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"
#include "common/process/signal_pipe.h"
#include "common/transfer/error_detail.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Replies = std::vector<gpuctl::v1::WatchReply>;

constexpr char kBox[] = "me@box:22";
constexpr char kRunsOn[] = "amber-fox-1 runs on me@box:22";

// Stands still unless a test moves it or lets it go. Safe from any thread.
class HeldClock : public Clock {
 public:
  absl::Time Now() override { return Real().Now(); }
  absl::Duration SinceBoot() override {
    return held_ ? absl::Seconds(seconds_.load()) : Real().SinceBoot();
  }
  void SleepFor(absl::Duration duration) override { Real().SleepFor(duration); }
  void AddSeconds(int64_t seconds) { seconds_ += seconds; }
  void LetGo() { held_ = false; }

 private:
  std::atomic<bool> held_{true};
  std::atomic<int64_t> seconds_{1000};
};

absl::Status ContentMissing() {
  gpuctl::v1::ErrorDetail detail;
  detail.set_kind(gpuctl::v1::ErrorDetail::KIND_CONTENT_MISSING);
  return WithDetail(absl::FailedPreconditionError("no such tree"), detail);
}

class ShowRunTest : public ::testing::Test {
 protected:
  ShowRunTest() : world_(clock_) {
    store_ = world_.context.Store().value();
    world_.context.terminal.stderr_tty = true;
    row_.run_id = "r-1";
    row_.name = "amber-fox-1";
    row_.job_id = "j-1";
    row_.target.provider = "ssh";
    row_.target.name = kBox;
    row_.output_segment_bytes = 1 << 20;
    row_.created_ms = 1;
    EXPECT_OK(store_->Insert(row_));
  }
  void TearDown() override { (void)signals_.Take(); }

  RunRow Stored() { return store_->Get("r-1").value(); }
  NodeScript& Script() { return world_.script(kBox); }
  std::string MirrorDir() { return world_.context.Paths().value().MirrorDir("r-1"); }

  // What launch asks for.
  ShowRunOptions Launching() {
    ShowRunOptions options;
    StartRequest& request = options.start.emplace();
    request.start.mutable_spec()->set_job_id("j-1");
    request.push_content = [this] {
      ++pushes_;
      if (when_pushed_) when_pushed_();
      return push_;
    };
    request.on_failure = [this](const std::function<bool()>&) {
      ++failures_;
      end_at_failure_ = Stored().end;
    };
    options.from_beginning = true;
    return options;
  }
  // Shows the run, with what `meanwhile` does on another thread. What it printed is in shown_ and
  // told_ then.
  absl::StatusOr<int> Show(ShowRunOptions options, LinkFactory* links,
                           const std::function<void()>& meanwhile = nullptr) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    std::thread other([this, &meanwhile] {
      if (meanwhile) meanwhile();
      // A show that hangs fails its test.
      if (!Becomes([this] { return over_.load(); })) kill(getpid(), SIGTERM);
    });
    absl::StatusOr<int> code = ShowRun(world_.context, *store_, row_, links, std::move(options));
    over_ = true;
    other.join();
    told_ = ::testing::internal::GetCapturedStderr();
    shown_ = ::testing::internal::GetCapturedStdout();
    return code;
  }
  absl::StatusOr<int> Show(ShowRunOptions options,
                           const std::function<void()>& meanwhile = nullptr) {
    const std::unique_ptr<LinkFactory> links = world_.node(kBox).Links();
    return Show(std::move(options), links.get(), meanwhile);
  }
  // Waits until it is true; false when that takes too long.
  static bool Becomes(const std::function<bool()>& condition) {
    for (int looks = 0; looks < 20'000; ++looks) {
      if (condition()) return true;
      Clock::Real().SleepFor(absl::Milliseconds(1));
    }
    return condition();
  }
  // Waits until the show has said `text` on stderr, which is a file meanwhile. False when the show
  // is over first.
  bool Says(const std::string& text) {
    const auto said = [&text] {
      char bytes[1 << 14];
      const ssize_t size = pread(STDERR_FILENO, bytes, sizeof(bytes), 0);
      return size > 0 && std::string(bytes, static_cast<size_t>(size)).find(text) != text.npos;
    };
    return Becomes([&] { return over_ || said(); }) && said();
  }

  // These add what a Watch is sent.
  static gpuctl::v1::WatchReply& Heartbeat(Replies& replies) {
    replies.emplace_back().mutable_heartbeat()->set_node_id("n-1");
    return replies.back();
  }
  void Send(Replies& replies, gpuctl::v1::Stream stream, const std::string& data) {
    gpuctl::v1::Chunk& chunk = *Heartbeat(replies).add_chunks();
    chunk.set_stream(stream);
    chunk.set_offset(sizes_[stream]);
    chunk.set_data(data);
    sizes_[stream] += static_cast<int64_t>(data.size());
  }
  void Begins(Replies& replies) {
    LifecycleEvent started;
    started.attempt = 1;
    started.pid = 7;
    started.boot_id = "b-1";
    Send(replies, gpuctl::v1::STREAM_LIFECYCLE, FormatLifecycleEvent(started));
  }
  void Prints(Replies& replies, const std::string& text) {
    Send(replies, gpuctl::v1::STREAM_OUTPUT, text);
  }
  void Ends(Replies& replies, int code, const std::string& reason = "") {
    LifecycleEvent exited;
    exited.type = LifecycleEvent::Type::kExited;
    exited.attempt = 1;
    exited.exit_code = code;
    exited.reason = reason;
    exited.output_size = sizes_[gpuctl::v1::STREAM_OUTPUT];
    exited.time_ms = 1234;
    Send(replies, gpuctl::v1::STREAM_LIFECYCLE, FormatLifecycleEvent(exited));
    replies.back().set_complete(true);
  }
  // Has a job print a line and run on.
  void RunsOn() {
    Begins(Script().watch);
    Prints(Script().watch, "hello\n");
  }
  void ExpectNeverStarted(const std::optional<RunEnd>& end) {
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->state, gpuctl::v1::JOB_STATE_UNSPECIFIED);
    EXPECT_EQ(end->source, EndSource::kGpuctl);
  }

  // Late signals end here, and not this process.
  SignalPipe signals_ = SignalPipe::Install({SIGINT, SIGTERM}).value();
  HeldClock clock_;
  ClientWorld world_;
  RunStore* store_ = nullptr;
  RunRow row_;
  std::map<gpuctl::v1::Stream, int64_t> sizes_;
  absl::Status push_;
  std::function<void()> when_pushed_;
  int pushes_ = 0;
  int failures_ = 0;
  std::optional<RunEnd> end_at_failure_;
  std::atomic<bool> over_{false};
  std::string shown_, told_;
};

TEST_F(ShowRunTest, AJobThatIsStartedIsShownToItsEnd) {
  RunsOn();
  Ends(Script().watch, 3);
  const auto code = Show(Launching());
  ASSERT_OK(code);
  EXPECT_EQ(*code, 3);
  EXPECT_EQ(shown_, "hello\n");
  EXPECT_THAT(told_, AllOf(HasSubstr(kRunsOn), HasSubstr("amber-fox-1 exited with code 3")));
  ASSERT_EQ(Script().starts.size(), 1u);
  EXPECT_EQ(Script().starts[0].spec().job_id(), "j-1");
  // No other node starts it, should this one be rebuilt.
  EXPECT_EQ(Script().starts[0].expected_node_id(), "n-1");
  const RunRow stored = Stored();
  EXPECT_EQ(stored.node_id, "n-1");
  EXPECT_GT(stored.accepted_ms, 0);
  ASSERT_TRUE(stored.end.has_value());
  EXPECT_EQ(stored.end->state, gpuctl::v1::JOB_STATE_FINISHED);
  EXPECT_EQ(stored.end->exit_code, 3);
  EXPECT_EQ(stored.end->ended_ms, 1234);
  EXPECT_EQ(pushes_, 0);
  EXPECT_EQ(failures_, 0);
}

TEST_F(ShowRunTest, ANodeThatHidesHowTheJobEndedIsAnError) {
  RunsOn();
  Script().watch.back().set_complete(true);
  const auto code = Show(Launching());
  EXPECT_THAT(code, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not how it ended")));
  EXPECT_FALSE(Stored().end.has_value());
}

TEST_F(ShowRunTest, ContentThatTheNodeLacksIsPushedOnceAndTheJobStarted) {
  Script().first_starts = {ContentMissing()};
  RunsOn();
  Ends(Script().watch, 0);
  const auto code = Show(Launching());
  ASSERT_OK(code);
  EXPECT_EQ(*code, 0);
  EXPECT_EQ(pushes_, 1);
  EXPECT_EQ(Script().starts.size(), 2u);
  EXPECT_EQ(shown_, "hello\n");
}

TEST_F(ShowRunTest, WhoSendsContentHasTheScreen) {
  world_.context.terminal.animation = true;
  Script().first_starts = {ContentMissing()};
  RunsOn();
  Ends(Script().watch, 0);
  bool shown_meanwhile = true;
  when_pushed_ = [&shown_meanwhile] {
    shown_meanwhile = PanelIsShown();
    EXPECT_EQ(write(STDOUT_FILENO, "BAR", 3), 3);
  };
  ASSERT_OK(Show(Launching()));
  EXPECT_FALSE(shown_meanwhile);
  const size_t bar = shown_.find("BAR");
  ASSERT_NE(bar, shown_.npos);
  EXPECT_THAT(shown_.substr(0, bar), testing::Not(HasSubstr("hello")));
  EXPECT_THAT(shown_.substr(bar), HasSubstr("hello"));
  EXPECT_FALSE(PanelIsShown());
}

TEST_F(ShowRunTest, WhatCannotBePushedIsNotStarted) {
  Script().start = ContentMissing();
  push_ = absl::FailedPreconditionError("train.py changed meanwhile");
  const auto code = Show(Launching());
  EXPECT_THAT(code, StatusIs(absl::StatusCode::kFailedPrecondition,
                             HasSubstr("train.py changed meanwhile")));
  EXPECT_EQ(pushes_, 1);
  EXPECT_EQ(Script().starts.size(), 1u);
  EXPECT_EQ(failures_, 1);
  ExpectNeverStarted(Stored().end);
}

TEST_F(ShowRunTest, ANodeThatIsLostDuringThePushHasStartedNothing) {
  Script().start = ContentMissing();
  push_ = absl::UnavailableError("the link broke");
  when_pushed_ = [this] { Script().connect = absl::UnavailableError("no route to host"); };
  const auto code = Show(Launching());
  EXPECT_FALSE(code.ok());
  EXPECT_EQ(failures_, 1);
  ExpectNeverStarted(end_at_failure_);
  EXPECT_THAT(Script().stops, IsEmpty());
}

TEST_F(ShowRunTest, ARefusedJobIsRecordedAsNeverStartedBeforeTheFailureIsTold) {
  Script().start = absl::InvalidArgumentError("the job has no command");
  const auto code = Show(Launching());
  EXPECT_THAT(code,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the job has no command")));
  EXPECT_EQ(failures_, 1);
  ExpectNeverStarted(Stored().end);
  // Whoever gives the machine back looks whether anything was started.
  ExpectNeverStarted(end_at_failure_);
  EXPECT_EQ(Stored().end->exit_code, ExitCodeOf(code.status()));
  EXPECT_THAT(Stored().end->reason, HasSubstr("the job has no command"));
}

TEST_F(ShowRunTest, ARefusalIsNotCalledAFailureToReachTheNode) {
  Script().start = absl::InvalidArgumentError("the job has no command");
  const auto code = Show(Launching());
  ASSERT_FALSE(code.ok());
  EXPECT_THAT(std::string(code.status().message()), Not(HasSubstr("reach ")));
}

TEST_F(ShowRunTest, ARunForAHostThatIsNotReachedDoesNotStayInTheList) {
  Script().connect = absl::UnavailableError("no such host");
  ShowRunOptions options = Launching();
  options.start->on_failure = nullptr;  // that of the other tests reads the run's record
  const auto code = Show(std::move(options));
  EXPECT_THAT(code, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no such host")));
  const auto rows = store_->List();
  ASSERT_OK(rows);
  EXPECT_TRUE(rows->empty());
}

TEST_F(ShowRunTest, AStartWithoutAnAnswerIsTakenBack) {
  clock_.LetGo();  // it is tried again after a while
  Script().start = absl::UnavailableError("the server is being replaced");
  const auto code = Show(Launching());
  EXPECT_FALSE(code.ok());
  EXPECT_GT(Script().starts.size(), 1u);
  // The node may have the job nevertheless.
  ASSERT_EQ(Script().stops.size(), 1u);
  EXPECT_EQ(Script().stops[0].job_id(), "j-1");
  EXPECT_EQ(failures_, 1);
  ExpectNeverStarted(Stored().end);
}

TEST_F(ShowRunTest, CtrlCWhileTheNodeStartsTheJobTakesItBack) {
  Script().starts_hang = true;
  const auto code = Show(Launching(), [this] {
    EXPECT_TRUE(Becomes([this] { return Script().start_calls > 0; }));
    raise(SIGINT);
  });
  EXPECT_THAT(code, StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
  EXPECT_EQ(ExitCodeOf(code.status()), kExitInterrupted);
  // The node has it, though nobody has heard so.
  ASSERT_EQ(Script().stops.size(), 1u);
  EXPECT_THAT(HintOf(code.status()), HasSubstr("was told to stop"));
  EXPECT_EQ(failures_, 1);
  ExpectNeverStarted(Stored().end);
}

TEST_F(ShowRunTest, OutputThatTheNodeCouldNotStoreIsToldOnce) {
  {
    const auto mirror = Mirror::Open(MirrorDir(), row_.output_segment_bytes);
    ASSERT_OK(mirror);
    LifecycleEvent dropped;
    dropped.type = LifecycleEvent::Type::kDropped;
    dropped.output_size = 3;
    dropped.dropped_bytes = 2048;
    gpuctl::v1::Chunk chunk;
    chunk.set_stream(gpuctl::v1::STREAM_LIFECYCLE);
    chunk.set_data(FormatLifecycleEvent(dropped));
    ASSERT_OK((*mirror)->Apply(chunk));
  }
  row_.end.emplace();
  row_.end->state = gpuctl::v1::JOB_STATE_FINISHED;
  ASSERT_OK(Show({}, /*links=*/nullptr));
  EXPECT_THAT(told_, HasSubstr("of output are missing"));
  EXPECT_THAT(told_, HasSubstr("at byte 3)"));
  EXPECT_EQ(told_.find("are missing"), told_.rfind("are missing"));
}

TEST_F(ShowRunTest, ARunWhoseEndIsRecordedIsShownFromItsMirror) {
  Replies replies;
  Begins(replies);
  Prints(replies, "hello\n");
  Ends(replies, 3);
  {
    const auto mirror = Mirror::Open(MirrorDir(), row_.output_segment_bytes);
    ASSERT_OK(mirror);
    for (const gpuctl::v1::WatchReply& reply : replies) {
      for (const gpuctl::v1::Chunk& chunk : reply.chunks()) ASSERT_OK((*mirror)->Apply(chunk));
    }
  }
  row_.end.emplace();
  row_.end->state = gpuctl::v1::JOB_STATE_FINISHED;
  row_.end->exit_code = row_.end->job_code = 3;
  const auto code = Show({}, /*links=*/nullptr);
  ASSERT_OK(code);
  EXPECT_EQ(*code, 3);
  EXPECT_EQ(shown_, "hello\n");
  EXPECT_THAT(told_, HasSubstr("amber-fox-1 exited with code 3"));
  EXPECT_FALSE(world_.known(kBox));

  ShowRunOptions bytes;
  bytes.plain = true;
  bytes.begin = 2;
  over_ = false;
  ASSERT_OK(Show(std::move(bytes), /*links=*/nullptr));
  EXPECT_EQ(shown_, "llo\n");
  EXPECT_EQ(told_, "");
}

TEST_F(ShowRunTest, UntilRunningEndsWithTheStartedLineAndLeavesTheJob) {
  Heartbeat(Script().watch);  // accepted, not started
  RunsOn();
  ShowRunOptions options = Launching();
  options.until_running = true;
  const auto code = Show(std::move(options));
  ASSERT_OK(code);
  EXPECT_EQ(*code, 0);
  EXPECT_EQ(shown_, "");
  const auto lifecycle = ReadMirrorLifecycle(MirrorDir());
  ASSERT_OK(lifecycle);
  EXPECT_NE(LastStateEvent(*lifecycle), nullptr);
  EXPECT_GT(Stored().accepted_ms, 0);
  EXPECT_FALSE(Stored().end.has_value());
  EXPECT_THAT(Script().stops, IsEmpty());
}

TEST_F(ShowRunTest, CtrlCDetachesAtOnceAndSaysHowToReturn) {
  RunsOn();
  const auto code = Show(Launching(), [this] {
    EXPECT_TRUE(Says(kRunsOn));
    raise(SIGINT);
  });
  ASSERT_OK(code);
  EXPECT_EQ(*code, 0);
  EXPECT_THAT(told_, AllOf(HasSubstr("detached; amber-fox-1 goes on running on me@box:22"),
                           HasSubstr("HINT: gpuctl attach amber-fox-1 returns to it")));
  EXPECT_THAT(Script().stops, IsEmpty());
  EXPECT_FALSE(Stored().end.has_value());
  EXPECT_EQ(failures_, 0);
}

// The launch itself prints the name, or the JSON, and one hint.
TEST_F(ShowRunTest, WhoLeavesALaunchThatReturnsByItselfGetsNoSecondHint) {
  Heartbeat(Script().watch);  // accepted, not started
  ShowRunOptions options = Launching();
  options.until_running = true;
  // The show's own connection is for its thread.
  const auto other = RunStore::Open(world_.context.Paths()->database());
  ASSERT_OK(other);
  const auto code = Show(std::move(options), [&] {
    EXPECT_TRUE(Becomes([&] { return (*other)->Get("r-1")->accepted_ms > 0; }));
    raise(SIGINT);
  });
  ASSERT_OK(code);
  EXPECT_EQ(*code, 0);
  EXPECT_THAT(told_, AllOf(HasSubstr("detached; amber-fox-1 goes on"), Not(HasSubstr("HINT"))));
  EXPECT_EQ(shown_, "");
}

TEST_F(ShowRunTest, WithoutATerminalTwoSignalsDoNotStopTheJob) {
  world_.context.terminal.stderr_tty = false;
  RunsOn();
  const auto code = Show(Launching(), [this] {
    EXPECT_TRUE(Says(kRunsOn));
    raise(SIGINT);
    raise(SIGINT);
  });
  ASSERT_OK(code);
  EXPECT_EQ(*code, 0);
  EXPECT_THAT(Script().stops, IsEmpty());
  EXPECT_FALSE(Stored().end.has_value());
  EXPECT_THAT(told_, HasSubstr("detached; amber-fox-1 goes on running"));
}

// A node that is never reached. Meanwhile a line comes to the mirror.
class SilentLinks : public LinkFactory {
 public:
  explicit SilentLinks(std::string output) : output_(std::move(output)) {}
  absl::StatusOr<std::unique_ptr<Link>> Connect() override {
    auto writer = StreamWriter::Open(output_, StreamShape{1 << 20});
    EXPECT_OK(writer);
    EXPECT_OK(writer->Append("hello\n"));
    while (true) pause();
  }
  absl::StatusOr<std::unique_ptr<RemoteCommand>> Run(const std::string&) override {
    return absl::UnavailableError("silent");
  }
  absl::StatusOr<std::unique_ptr<AgentStream>> RunAgent(const std::string&) override {
    return absl::UnavailableError("silent");
  }

 private:
  const std::string output_;
};

// The output finds no room while the link's thread is inside a connection. It is no use to wait for
// that thread.
TEST_F(ShowRunTest, AnErrorEndsItAtOnceWhateverTheLinkDoes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ASSERT_OK(store_->SetAccepted("r-1", "n-1", 2));
  row_ = Stored();
  clock_.LetGo();
  // The other process, which has directories of its own, does not remove them.
  const char* const before = std::getenv("TMPDIR");
  setenv("TMPDIR", world_.dir.path().c_str(), 1);
  EXPECT_EXIT(
      {
        alarm(60);  // a show that hangs fails its test
        dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
        SilentLinks links(MirrorPaths(MirrorDir()).output);
        ShowRunOptions options;
        options.plain = true;
        (void)ShowRun(world_.context, *store_, row_, &links, std::move(options));
      },
      ::testing::ExitedWithCode(kExitFailed), "write the output: No space left");
  before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", before, 1);
}

TEST_F(ShowRunTest, CtrlCLeavesPlainOutputAtOnceAndSilently) {
  ASSERT_OK(store_->SetAccepted("r-1", "n-1", 2));
  row_ = Stored();
  RunsOn();
  ShowRunOptions options;
  options.plain = true;
  const auto code = Show(std::move(options), [this] {
    EXPECT_TRUE(Becomes([this] { return Script().watches > 0; }));
    raise(SIGINT);
  });
  ASSERT_OK(code);
  EXPECT_EQ(told_, "");
  EXPECT_THAT(Script().stops, IsEmpty());
}

}  // namespace
}  // namespace gpuctl
