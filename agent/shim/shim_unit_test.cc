// Tests of the shim's parts that need no other process.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/base/environment.h"
#include "agent/capture/metrics.h"
#include "agent/capture/output.h"
#include "agent/shim/attempt.h"
#include "agent/shim/control.h"
#include "agent/shim/journal.h"
#include "agent/shim/secret_block.h"
#include "agent/shim/table.h"
#include "agent/shim/test_job.h"
#include "common/base/fake_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Pipe MakePipe() {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// --- the table ----------------------------------------------------------------------------------

constexpr State kAllStates[] = {State::kRunning,  State::kLingering, State::kTerminating,
                                State::kStopping, State::kKilling,   State::kRecording,
                                State::kDone};

TEST(TableTest, OnlyATreeThatIsGoneIsRecordedAndOnlyWhatIsRecordedIsDone) {
  for (const State state : kAllStates) {
    for (size_t i = 0; i < kInputs; ++i) {
      const Input input = static_cast<Input>(i);
      const Transition next = Lookup(state, input);
      if (state < State::kRecording) {
        EXPECT_EQ(next.next == State::kRecording, input == Input::kTreeGone);
      }
      EXPECT_EQ(next.next == State::kDone,
                state == State::kDone || (state == State::kRecording && input == Input::kRecorded));
      // Recording and the end never go back to an earlier state.
      if (state >= State::kRecording) {
        EXPECT_GE(next.next, state);
      }
    }
  }
}

TEST(TableTest, StopIsSigtermThenSigkill) {
  const Transition stop = Lookup(State::kRunning, Input::kStop);
  EXPECT_EQ(stop.action, Action::kStop);
  const Transition late = Lookup(stop.next, Input::kDeadline);
  EXPECT_EQ(late.action, Action::kKill);
  EXPECT_EQ(Lookup(late.next, Input::kDeadline).action, Action::kKill);
  EXPECT_EQ(Lookup(late.next, Input::kDeadline).next, late.next);
}

TEST(TableTest, ASecondStopChangesNothingUnlessItIsNow) {
  EXPECT_EQ(Lookup(State::kStopping, Input::kStop).action, Action::kNone);
  EXPECT_EQ(Lookup(State::kStopping, Input::kStop).next, State::kStopping);
  EXPECT_EQ(Lookup(State::kStopping, Input::kStopNow).action, Action::kKill);
  EXPECT_EQ(Lookup(State::kStopping, Input::kStopNow).next, State::kKilling);
}

TEST(TableTest, WhatIsLeftBehindGetsTimeThenSigtermThenSigkill) {
  const Transition ended = Lookup(State::kRunning, Input::kChildEnded);
  EXPECT_EQ(ended.action, Action::kLinger);
  const Transition grace_over = Lookup(ended.next, Input::kDeadline);
  EXPECT_EQ(grace_over.action, Action::kTerminate);
  EXPECT_EQ(Lookup(grace_over.next, Input::kDeadline).action, Action::kKill);
}

TEST(TableTest, TheDirectChildsEndWhileStoppingDoesNotEndTheGrace) {
  EXPECT_EQ(Lookup(State::kStopping, Input::kChildEnded).action, Action::kNone);
  EXPECT_EQ(Lookup(State::kStopping, Input::kChildEnded).next, State::kStopping);
}

// --- secrets ------------------------------------------------------------------------------------

absl::StatusOr<SecretBlock> ReadSecrets(const std::string& bytes) {
  Pipe pipe = MakePipe();
  fcntl(pipe.read_end.get(), F_SETFL, 0);
  EXPECT_OK(WriteAll(pipe.write_end.get(), bytes, "pipe"));
  pipe.write_end.reset();
  return SecretBlock::Read(pipe.read_end.get());
}

TEST(SecretBlockTest, ValuesComeOutAsEnvironmentEntries) {
  const auto secrets = ReadSecrets(EncodeForShim({{"A", "1=2"}, {"B_2", ""}}));
  ASSERT_OK(secrets);
  ASSERT_EQ(secrets->entries().size(), 2u);
  EXPECT_STREQ(secrets->entries()[0], "A=1=2");
  EXPECT_STREQ(secrets->entries()[1], "B_2=");
  EXPECT_EQ(SecretBlock::NameOf(secrets->entries()[0]), "A");
}

TEST(SecretBlockTest, TornAtEveryByteIsRefused) {
  const std::string whole = EncodeForShim({{"TOKEN", "value"}});
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(ReadSecrets(whole.substr(0, size)).status())) << size;
  }
  EXPECT_OK(ReadSecrets(whole));
  EXPECT_OK(ReadSecrets(EncodeForShim({})));
}

TEST(SecretBlockTest, WhatIsNoVariableIsRefused) {
  using namespace std::string_literals;
  for (const std::string& name : {""s, "A=B"s, "1A"s, "A B"s, "A\0B"s}) {
    EXPECT_FALSE(ReadSecrets(EncodeForShim({{name, "v"}})).ok());
  }
  EXPECT_FALSE(ReadSecrets(EncodeForShim({{"A", "x\0y"s}})).ok());
  EXPECT_FALSE(ReadSecrets("\xff\xff\xff\xffX").ok());
  EXPECT_FALSE(ReadSecrets("\xf0\xff\xff\xff").ok());
}

TEST(SecretBlockTest, MessagesDoNotQuote) {
  const auto torn = ReadSecrets(EncodeForShim({{"not a name canary", "canary"}}));
  EXPECT_FALSE(absl::StrContains(torn.status().message(), "canary"));
}

// --- environment --------------------------------------------------------------------------------

TEST(EnvironmentTest, BaseLessKeysPlusSpecPlusOurs) {
  gpuctl::v1::JobSpec spec;
  spec.set_job_id("j-1");
  spec.set_run_id("r-1");
  (*spec.mutable_env())["PATH"] = "/mine";
  (*spec.mutable_env())["GPUCTL_ATTEMPT"] = "99";
  const Environment base = {{"PATH", "/usr/bin"},
                            {"LD_LIBRARY_PATH", "/cuda"},
                            {"RUNPOD_API_KEY", "k"},
                            {"CONTAINER_API_KEY", "k"},
                            {"LAMBDA_API_KEY", "k"},
                            {"VAST_API_KEY", "k"},
                            {"VASTAI_API_KEY", "k"},
                            {"DIGITALOCEAN_API_KEY", "k"},
                            {"SHADEFORM_API_KEY", "k"},
                            {"LAMBDA_CLOUD_API_KEY", "k"},
                            {"OPENAI_API_KEY", "mine"},
                            {"GPUCTL_RESUME_FROM", "old"},
                            {"HOME", "/h"},
                            {"HUGGINGFACE_API_KEY", "k"},
                            {"GPUCTL_HUGGINGFACE_API_KEY", "k"}};
  const Environment job = JobEnvironment(base, spec, 2, JobPaths("/jobs/j-1"), "");
  EXPECT_EQ(job, (Environment{{"PATH", "/mine"},
                              {"LD_LIBRARY_PATH", "/cuda"},
                              {"OPENAI_API_KEY", "mine"},
                              {"HOME", "/h"},
                              {"PYTHONUNBUFFERED", "1"},
                              {"UV_CACHE_DIR", "/caches/uv"},
                              {"PIP_CACHE_DIR", "/caches/pip"},
                              {"CONDA_PKGS_DIRS", "/caches/conda"},
                              {"GPUCTL_RUN_ID", "r-1"},
                              {"GPUCTL_JOB_ID", "j-1"},
                              {"GPUCTL_ATTEMPT", "2"},
                              {"GPUCTL_CHECKPOINT_DIR", "/jobs/j-1/ckpt"},
                              {"GPUCTL_METRICS", "/jobs/j-1/metrics"},
                              {"GPUCTL_NODE_RANK", "0"},
                              {"GPUCTL_NODES", "1"}}));
}

TEST(EnvironmentTest, CachesThatAreThereStayInUse) {
  TempDir home;
  ASSERT_OK(MakeDirectories(home.Sub(".cache/uv")));
  const gpuctl::v1::JobSpec spec;
  const JobPaths paths("/root/jobs/j-1");
  const Environment own =
      JobEnvironment({{"HOME", home.path()}, {"CONDA_EXE", "/c"}}, spec, 1, paths, "");
  EXPECT_FALSE(own.contains("UV_CACHE_DIR"));
  EXPECT_FALSE(own.contains("CONDA_PKGS_DIRS"));
  EXPECT_EQ(own.at("PIP_CACHE_DIR"), "/root/caches/pip");
  const Environment given =
      JobEnvironment({{"HOME", "/h"}, {"PIP_CACHE_DIR", "/mine"}}, spec, 1, paths, "");
  EXPECT_EQ(given.at("PIP_CACHE_DIR"), "/mine");
  EXPECT_EQ(given.at("UV_CACHE_DIR"), "/root/caches/uv");
}

TEST(EnvironmentTest, DefaultsAndTheSpecsOwnChoices) {
  gpuctl::v1::JobSpec spec;
  (*spec.mutable_env())["PYTHONUNBUFFERED"] = "";
  const Environment job = JobEnvironment({}, spec, 1, JobPaths("/j"), "/j/ckpt/step-1");
  EXPECT_THAT(job.at("PATH"), HasSubstr("/usr/bin"));
  EXPECT_EQ(job.at("PYTHONUNBUFFERED"), "");
  EXPECT_EQ(job.at("GPUCTL_RESUME_FROM"), "/j/ckpt/step-1");
  EXPECT_FALSE(job.at("HOME").empty());
}

TEST(EnvironmentTest, AVolumeLiesBelowTheMountRoot) {
  gpuctl::v1::JobSpec spec;
  (*spec.mutable_env())["GPUCTL_VOLUME"] = "/workspace";
  EXPECT_EQ(JobEnvironment({}, spec, 1, JobPaths("/j"), "").at("GPUCTL_VOLUME"), "/workspace");
  setenv("GPUCTL_MOUNT_ROOT", "/mnt/other", 1);
  EXPECT_EQ(JobEnvironment({}, spec, 1, JobPaths("/j"), "").at("GPUCTL_VOLUME"),
            "/mnt/other/workspace");
  EXPECT_EQ(JobEnvironment({}, {}, 1, JobPaths("/j"), "").count("GPUCTL_VOLUME"), 0u);
  unsetenv("GPUCTL_MOUNT_ROOT");
}

TEST(EnvironmentTest, BlockOfTheKernel) {
  using namespace std::string_literals;
  EXPECT_EQ(ParseEnvironmentBlock("A=1\0B=x=y\0\0junk\0=z\0C="s),
            (Environment{{"A", "1"}, {"B", "x=y"}, {"C", ""}}));
}

// --- control ------------------------------------------------------------------------------------

TEST(ControlTest, CommandsAmongGarbageInPieces) {
  Pipe pipe = MakePipe();
  ControlReader reader(std::move(pipe.read_end));
  EXPECT_TRUE(reader.Read().empty());
  const std::string bytes =
      "\n\xff\nstop\nstop \nsignal x\nsignal 0\nsignal 999\nsignal -9\nSTOP user\n" +
      std::string(5000, 'z') + "\nsignal 10\nstop limit:time\nstop us";
  std::vector<ControlCommand> commands;
  for (const char byte : bytes) {
    ASSERT_EQ(write(pipe.write_end.get(), &byte, 1), 1);
    for (ControlCommand& command : reader.Read()) commands.push_back(std::move(command));
  }
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0].type, ControlCommand::Type::kSignal);
  EXPECT_EQ(commands[0].signal, 10);
  EXPECT_EQ(commands[1].type, ControlCommand::Type::kStop);
  EXPECT_EQ(commands[1].reason, "limit:time");
  ASSERT_EQ(write(pipe.write_end.get(), "er\n", 3), 3);
  EXPECT_EQ(reader.Read()[0].reason, "user");
  ASSERT_EQ(write(pipe.write_end.get(), "stop now\nstop nowhere\n", 22), 22);
  commands = reader.Read();
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0].type, ControlCommand::Type::kStopNow);
  EXPECT_EQ(commands[0].reason, "user");
  EXPECT_EQ(commands[1].type, ControlCommand::Type::kStop);
  EXPECT_EQ(commands[1].reason, "nowhere");
}

// --- lifecycle rules ----------------------------------------------------------------------------

Lifecycle PastOf(std::vector<LifecycleEvent> events) {
  Lifecycle past;
  past.events = std::move(events);
  return past;
}

TEST(CheckAttemptTest, OnlyWhatLifecycleAsksFor) {
  using Type = LifecycleEvent::Type;
  const auto event = [](Type type, int attempt) {
    LifecycleEvent result;
    result.type = type;
    result.attempt = attempt;
    return result;
  };
  EXPECT_OK(CheckAttempt({}, 1));
  EXPECT_FALSE(CheckAttempt({}, 2).ok());
  EXPECT_FALSE(CheckAttempt(PastOf({event(Type::kStarted, 1)}), 1).ok());
  EXPECT_FALSE(CheckAttempt(PastOf({event(Type::kStarted, 1)}), 2).ok());
  EXPECT_FALSE(CheckAttempt(PastOf({event(Type::kStarted, 1), event(Type::kExited, 1)}), 2).ok());
  const Lifecycle retry = PastOf({event(Type::kStarted, 1), event(Type::kLost, 1),
                                  event(Type::kRetry, 2), event(Type::kCut, 1)});
  EXPECT_OK(CheckAttempt(retry, 2));
  EXPECT_FALSE(CheckAttempt(retry, 1).ok());
  EXPECT_FALSE(CheckAttempt(retry, 3).ok());
}

class JournalTest : public ::testing::Test {
 protected:
  void TearDown() override { file_ops::SetFaultHook(nullptr); }
  std::string path() const { return dir_.Sub("lifecycle.jsonl"); }
  static LifecycleEvent Event(LifecycleEvent::Type type) {
    LifecycleEvent event;
    event.type = type;
    event.attempt = 1;
    return event;
  }
  TempDir dir_;
};

TEST_F(JournalTest, EndsATornLineAndReserves) {
  dir_.Write("lifecycle.jsonl",
             FormatLifecycleEvent(Event(LifecycleEvent::Type::kStarted)) + "{\"ev");
  auto journal = Journal::Open(path());
  ASSERT_OK(journal);
  EXPECT_EQ(journal->past().events.size(), 1u);
  EXPECT_EQ(journal->past().skipped_lines, 1);
  ASSERT_OK(journal->Append(Event(LifecycleEvent::Type::kExited)));
  const Lifecycle all = ParseLifecycle(*ReadFileToString(path()));
  EXPECT_EQ(all.events.size(), 2u);
#if defined(__linux__)
  struct stat info {};
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  if (journal->reserved()) {
    EXPECT_GE(info.st_blocks * 512, 64 << 10);
  }
#endif
}

// The n-th operation fails, for every n, once or a few times in a row. A later Flush completes the
// file, with each line once and whole.
TEST_F(JournalTest, EveryFailingOperationIsMadeUpFor) {
  for (const int failures : {1, 3, 1000}) {
    bool reached = true;
    for (int n = 0; reached; ++n) {
      ASSERT_OK(RemoveTree(path()));
      auto journal = Journal::Open(path());
      ASSERT_OK(journal);
      int count = 0;
      file_ops::SetFaultHook([&](file_ops::Op, const std::string&) {
        const int now = count++;
        return now >= n && now < n + failures ? EIO : 0;
      });
      journal->Append(Event(LifecycleEvent::Type::kStarted)).IgnoreError();
      journal->Append(Event(LifecycleEvent::Type::kStopping)).IgnoreError();
      journal->Append(Event(LifecycleEvent::Type::kExited)).IgnoreError();
      reached = count > n;
      file_ops::SetFaultHook(nullptr);
      ASSERT_OK(journal->Flush());
      EXPECT_FALSE(journal->pending());
      const Lifecycle all = ParseLifecycle(*ReadFileToString(path()));
      EXPECT_EQ(all.events.size(), 3u);
      EXPECT_EQ(all.skipped_lines, 0);
    }
  }
}

TEST_F(JournalTest, TwoEventsTogetherAreOneWrite) {
  auto journal = Journal::Open(path());
  ASSERT_OK(journal);
  int writes = 0;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string&) {
    return op == file_ops::Op::kWrite && writes++ > 0 ? EIO : 0;
  });
  EXPECT_OK(journal->AppendTogether(Event(LifecycleEvent::Type::kExited),
                                    Event(LifecycleEvent::Type::kRetry)));
  EXPECT_EQ(ParseLifecycle(*ReadFileToString(path())).events.size(), 2u);
}

TEST_F(JournalTest, AFailedSyncWritesTheBytesAgain) {
  auto journal = Journal::Open(path());
  ASSERT_OK(journal);
  bool failing = true;
  int writes = 0;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string&) {
    writes += op == file_ops::Op::kWrite ? 1 : 0;
    return failing && op == file_ops::Op::kSync ? EIO : 0;
  });
  EXPECT_FALSE(journal->Append(Event(LifecycleEvent::Type::kStarted)).ok());
  EXPECT_TRUE(journal->LastIsVisible());
  EXPECT_EQ(writes, 1);
  failing = false;
  EXPECT_OK(journal->Flush());
  EXPECT_EQ(writes, 2);
}

// --- output and metrics -------------------------------------------------------------------------

class DrainTest : public ::testing::Test {
 protected:
  void TearDown() override { file_ops::SetFaultHook(nullptr); }
  OutputDrain MakeOutput(UniqueFd pipe) {
    auto stream = StreamWriter::Open(dir_.Sub("output"), StreamShape{8192});
    EXPECT_OK(stream);
    return OutputDrain(std::move(pipe), *std::move(stream), clock_);
  }
  MetricsDrain MakeMetrics(UniqueFd pipe) {
    auto stream = StreamWriter::Open(dir_.Sub("metrics.jsonl"), StreamShape{0});
    EXPECT_OK(stream);
    return MetricsDrain(std::move(pipe), *std::move(stream), 1, clock_);
  }
  std::string Metrics() { return *ReadFileToString(dir_.Sub("metrics.jsonl")); }
  TempDir dir_;
  FakeClock clock_;
};

TEST_F(DrainTest, OutputCrossesSegmentsAndEnds) {
  Pipe pipe = MakePipe();
  OutputDrain output = MakeOutput(std::move(pipe.read_end));
  EXPECT_FALSE(output.Pump());
  ASSERT_OK(WriteAll(pipe.write_end.get(), std::string(20000, 'x'), "pipe"));
  output.PumpAll();
  EXPECT_EQ(output.size(), 20000);
  EXPECT_GE(output.fd(), 0);
  pipe.write_end.reset();
  output.PumpAll();
  EXPECT_EQ(output.fd(), -1);
  EXPECT_FALSE(output.TakeGap(true).has_value());
}

// A segment that cannot be created represents any disk that refuses bytes.
TEST_F(DrainTest, WhatTheDiskRefusesIsCountedAndToldOnceItTakesBytesAgain) {
  Pipe pipe = MakePipe();
  OutputDrain output = MakeOutput(std::move(pipe.read_end));
  ASSERT_OK(WriteAll(pipe.write_end.get(), std::string(8000, 'a'), "pipe"));
  output.PumpAll();
  file_ops::SetFaultHook(
      [](file_ops::Op op, const std::string&) { return op == file_ops::Op::kOpen ? ENOSPC : 0; });
  ASSERT_OK(WriteAll(pipe.write_end.get(), std::string(1192, 'b'), "pipe"));
  output.PumpAll();
  EXPECT_FALSE(output.trouble().ok());
  EXPECT_FALSE(output.TakeGap(false).has_value());
  file_ops::SetFaultHook(nullptr);
  // Too soon after the refusal: still dropped.
  ASSERT_OK(WriteAll(pipe.write_end.get(), std::string(500, 'c'), "pipe"));
  output.PumpAll();
  clock_.Advance(absl::Seconds(1));
  ASSERT_OK(WriteAll(pipe.write_end.get(), "later", "pipe"));
  output.PumpAll();
  EXPECT_OK(output.trouble());
  const auto gap = output.TakeGap(false);
  ASSERT_TRUE(gap.has_value());
  EXPECT_EQ(gap->offset, 8192);
  EXPECT_EQ(gap->bytes, 1500);
  EXPECT_EQ(output.size(), 8192 + 5);
}

TEST_F(DrainTest, AGapThatIsOpenAtTheEndIsTold) {
  Pipe pipe = MakePipe();
  OutputDrain output = MakeOutput(std::move(pipe.read_end));
  ASSERT_OK(WriteAll(pipe.write_end.get(), std::string(8000, 'a'), "pipe"));
  output.PumpAll();
  file_ops::SetFaultHook(
      [](file_ops::Op op, const std::string&) { return op == file_ops::Op::kOpen ? EIO : 0; });
  ASSERT_OK(WriteAll(pipe.write_end.get(), std::string(192 + 4, 'b'), "pipe"));
  output.PumpAll();
  const auto gap = output.TakeGap(true);
  ASSERT_TRUE(gap.has_value());
  EXPECT_EQ(gap->bytes, 4);
  EXPECT_FALSE(output.TakeGap(true).has_value());
}

TEST(MetricLineTest, ObjectsKeepTheirMembersOthersBecomeText) {
  const std::string ours = "{\"gpuctl\":{\"attempt\":2,\"output_offset\":7,\"time_ms\":9}";
  EXPECT_EQ(FormatMetricLine("{\"loss\":1.50}", 2, 7, 9), ours + ",\"loss\":1.50}\n");
  EXPECT_EQ(FormatMetricLine(" { \"a\" : {} } \r", 2, 7, 9), ours + ",\"a\" : {}}\n");
  EXPECT_EQ(FormatMetricLine("{}", 2, 7, 9), ours + "}\n");
  for (const char* text : {"loss 3", "[1]", "{\"a\":NaN}", "{not json}", "{\"a\":1}}", "{"}) {
    const std::string line = FormatMetricLine(text, 2, 7, 9);
    EXPECT_EQ(line, absl::StrCat(ours, ",\"text\":\"",
                                 std::string(text) == "{\"a\":NaN}"  ? "{\\\"a\\\":NaN}"
                                 : std::string(text) == "{\"a\":1}}" ? "{\\\"a\\\":1}}"
                                                                     : text,
                                 "\"}\n"));
  }
  EXPECT_THAT(FormatMetricLine("\xff\x01", 1, 0, 0), HasSubstr("\\u0001"));
}

TEST_F(DrainTest, MetricLinesInPiecesAndTheLastWithoutNewline) {
  Pipe pipe = MakePipe();
  MetricsDrain metrics = MakeMetrics(std::move(pipe.read_end));
  for (const char* piece : {"{\"a\"", ":1}\n\n{\"b\":2}\n{\"c\"", ":3}"}) {
    ASSERT_OK(WriteAll(pipe.write_end.get(), piece, "fifo"));
    metrics.Pump(10);
  }
  std::string stored = Metrics();
  EXPECT_EQ(std::count(stored.begin(), stored.end(), '\n'), 2);
  metrics.PumpAll(20);
  stored = Metrics();
  EXPECT_EQ(std::count(stored.begin(), stored.end(), '\n'), 3);
  EXPECT_THAT(stored, HasSubstr("\"output_offset\":20,"));
  EXPECT_THAT(stored, HasSubstr("\"c\":3}\n"));
  EXPECT_EQ(metrics.TakeDroppedLines(), 0);
}

TEST_F(DrainTest, LinesTo64KiBAreKeptLongerOnesCounted) {
  Pipe pipe = MakePipe();
  fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK);
  MetricsDrain metrics = MakeMetrics(std::move(pipe.read_end));
  const auto send = [&](absl::string_view data) {
    while (!data.empty()) {
      const ssize_t sent =
          write(pipe.write_end.get(), data.data(), std::min<size_t>(data.size(), 4096));
      if (sent > 0) data.remove_prefix(static_cast<size_t>(sent));
      metrics.Pump(0);
    }
  };
  const std::string longest = "{\"a\":\"" + std::string((64 << 10) - 8, 'x') + "\"}";
  ASSERT_EQ(longest.size(), size_t{64} << 10);
  send(longest + "\n");
  send(std::string(200000, 'y') + "\n");
  send("{\"b\":1}\n");
  EXPECT_EQ(metrics.TakeDroppedLines(), 1);
  const std::string stored = Metrics();
  EXPECT_EQ(std::count(stored.begin(), stored.end(), '\n'), 2);
  EXPECT_THAT(stored, HasSubstr(longest.substr(1)));
}

TEST_F(DrainTest, MetricsWaitForTheDiskUpToALimit) {
  Pipe pipe = MakePipe();
  MetricsDrain metrics = MakeMetrics(std::move(pipe.read_end));
  file_ops::SetFaultHook(
      [](file_ops::Op op, const std::string&) { return op == file_ops::Op::kWrite ? ENOSPC : 0; });
  const std::string line = "{\"a\":\"" + std::string(30000, 'x') + "\"}\n";
  const auto send = [&](const std::string& data) {
    ASSERT_EQ(write(pipe.write_end.get(), data.data(), data.size()),
              static_cast<ssize_t>(data.size()));
    metrics.Pump(0);
  };
  for (int i = 0; i < 100; ++i) send(line);
  EXPECT_TRUE(metrics.pending());
  const int64_t dropped = metrics.TakeDroppedLines();
  EXPECT_GT(dropped, 50);
  file_ops::SetFaultHook(nullptr);
  ASSERT_OK(metrics.Flush());
  const std::string stored = Metrics();
  EXPECT_EQ(std::count(stored.begin(), stored.end(), '\n') + dropped, 100);
}

TEST_F(DrainTest, EveryFailingMetricWriteIsMadeUpFor) {
  for (int n = 0; n < 12; ++n) {
    ASSERT_OK(RemoveTree(dir_.Sub("metrics.jsonl")));
    Pipe pipe = MakePipe();
    MetricsDrain metrics = MakeMetrics(std::move(pipe.read_end));
    int count = 0;
    file_ops::SetFaultHook(
        [&](file_ops::Op, const std::string&) { return count++ == n ? EIO : 0; });
    for (int i = 0; i < 10; ++i) {
      const std::string line = absl::StrCat("{\"i\":", i, "}\n");
      ASSERT_EQ(write(pipe.write_end.get(), line.data(), line.size()),
                static_cast<ssize_t>(line.size()));
      metrics.Pump(0);
    }
    metrics.PumpAll(0);
    file_ops::SetFaultHook(nullptr);
    ASSERT_OK(metrics.Flush());
    std::string stored = Metrics();
    for (int i = 0; i < 10; ++i) {
      EXPECT_THAT(stored, HasSubstr(absl::StrCat("\"i\":", i, "}\n")));
    }
    EXPECT_EQ(std::count(stored.begin(), stored.end(), '\n'), 10);
  }
}

}  // namespace
}  // namespace gpuctl
