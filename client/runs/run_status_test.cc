#include "client/runs/run_status.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "client/base/exit_codes.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using Type = LifecycleEvent::Type;

LifecycleEvent Event(Type type, int attempt) {
  LifecycleEvent event;
  event.type = type;
  event.attempt = attempt;
  event.time_ms = 1000 * attempt;
  return event;
}

Lifecycle Of(std::vector<LifecycleEvent> events) {
  Lifecycle lifecycle;
  lifecycle.events = std::move(events);
  return lifecycle;
}

LifecycleEvent Exited(int code, int signal = 0, const std::string& reason = "") {
  LifecycleEvent event = Event(Type::kExited, 1);
  event.exit_code = signal == 0 ? code : -1;
  event.signal = signal;
  event.reason = reason;
  return event;
}

TEST(RestartsOfTest, OnlyAttemptsAfterAnAllocationsEndCount) {
  TempDir dir;
  EXPECT_EQ(RestartsOf(dir.path()), 0);
  std::string lines;
  const auto add = [&lines](LifecycleEvent event, Type type, int attempt) {
    event.type = type;
    event.attempt = attempt;
    lines += FormatLifecycleEvent(event);
  };
  add(Event(Type::kStarted, 1), Type::kStarted, 1);
  add(Exited(75), Type::kExited, 1);
  add(Event(Type::kRetry, 2), Type::kRetry, 2);
  add(Event(Type::kStarted, 2), Type::kStarted, 2);
  dir.Write("lifecycle.jsonl", lines);
  EXPECT_EQ(RestartsOf(dir.path()), 0);
  add(Exited(0, 0, "the allocation ends"), Type::kExited, 2);
  add(Event(Type::kRetry, 3), Type::kRetry, 3);
  dir.Write("lifecycle.jsonl", lines);
  EXPECT_EQ(RestartsOf(dir.path()), 0);
  add(Event(Type::kStarted, 3), Type::kStarted, 3);
  LifecycleEvent lost = Event(Type::kLost, 3);
  lost.reason = "the node failed, requeued by Slurm";
  add(lost, Type::kLost, 3);
  add(Event(Type::kStarted, 4), Type::kStarted, 4);
  dir.Write("lifecycle.jsonl", lines);
  EXPECT_EQ(RestartsOf(dir.path()), 2);
  // Those of an earlier run count, too, when the next one ends.
  TempDir next;
  EXPECT_EQ(RetriesUsed({dir.path()}), 3);
  EXPECT_EQ(RetriesUsed({next.path(), dir.path()}), 4);
}

TEST(DeriveStatusTest, FollowsTheLifecycle) {
  RunRow row;
  const auto word = [&row](const Lifecycle& lifecycle) {
    return std::string(WordOf(DeriveStatus(row, lifecycle).phase));
  };
  EXPECT_EQ(word({}), "launching");
  row.accepted_ms = 1;
  EXPECT_EQ(word({}), "pending");
  EXPECT_EQ(word(Of({Event(Type::kStarted, 1)})), "running");
  EXPECT_EQ(word(Of({Event(Type::kStarted, 1), Event(Type::kStopping, 1)})), "stopping");
  EXPECT_EQ(word(Of({Event(Type::kStarted, 1), Event(Type::kLost, 1), Event(Type::kRetry, 2)})),
            "retrying");
  const RunStatus done = DeriveStatus(row, Of({Event(Type::kStarted, 1), Exited(0)}));
  EXPECT_EQ(done.phase, RunPhase::kSucceeded);
  EXPECT_TRUE(done.over);
}

TEST(EndOfTest, PassesTheJobsCodeThrough) {
  EXPECT_EQ(EndOf(Exited(3)).exit_code, 3);
  EXPECT_EQ(EndOf(Exited(3)).source, EndSource::kJob);
  EXPECT_EQ(EndOf(Exited(0, 9)).exit_code, 137);
  EXPECT_EQ(EndOf(Exited(0, 15, "user")).exit_code, 143);
  EXPECT_EQ(EndOf(Exited(0, 15, "user")).source, EndSource::kJob);
  EXPECT_EQ(EndOf(Exited(0, 15, "user")).cause, EndCause::kUser);
}

TEST(EndOfTest, LimitsAndLossBeatTheJobsCode) {
  const RunEnd limit = EndOf(Exited(0, 15, "limit:time"));
  EXPECT_EQ(limit.exit_code, kExitLimit);
  EXPECT_EQ(limit.job_code, 143);
  EXPECT_EQ(limit.source, EndSource::kGpuctl);
  EXPECT_EQ(limit.cause, EndCause::kLimit);
  EXPECT_EQ(EndOf(Event(Type::kLost, 1)).exit_code, kExitLost);
  LifecycleEvent missing = Exited(127);
  missing.error = "exec nosuch: no such file or directory";
  EXPECT_EQ(EndOf(missing).exit_code, kExitNotFound);
  EXPECT_EQ(EndOf(missing).source, EndSource::kGpuctl);
  EXPECT_EQ(EndOf(missing).cause, EndCause::kCannotRun);
}

// Its machine was taken away, so whoever resumes such runs resumes this one.
TEST(EndOfTest, ARunThatCouldNotBeStartedAgainWasPreempted) {
  LifecycleEvent lost = Event(Type::kLost, 2);
  lost.reason = "not started again: no space left on device";
  EXPECT_TRUE(IsPreempted(EndOf(lost)));
  EXPECT_EQ(EndOf(lost).exit_code, kExitLost);
  EXPECT_EQ(DescribeEnd(EndOf(lost)), "lost: not started again: no space left on device");
}

// The cause decides where it was known; the reason is for people.
TEST(EndOfTest, TheSameWordsElsewhereDecideNothing) {
  LifecycleEvent lost = Event(Type::kLost, 1);
  for (const char* words : {"preempted: outbid", "limit:time", "user"}) {
    lost.reason = words;
    EXPECT_FALSE(IsPreempted(EndOf(lost))) << words;
    EXPECT_EQ(EndOf(lost).cause, EndCause::kNone) << words;
    EXPECT_EQ(EndOf(lost).reason, words);
  }
  EXPECT_FALSE(IsPreempted(EndOf(Exited(1, 0, "preempted: outbid"))));
  // A command of that name could not be run.
  LifecycleEvent missing = Exited(127);
  missing.error = "limit:time";
  EXPECT_EQ(EndOf(missing).cause, EndCause::kCannotRun);
  EXPECT_EQ(EndOf(missing).exit_code, kExitNotFound);
  EXPECT_EQ(DescribeEnd(EndOf(missing)), "could not run: limit:time");
  RunRow row;
  row.end = EndOf(missing);
  EXPECT_EQ(StatusOfEnded(row).phase, RunPhase::kFailed);
  RunEnd abandoned;
  abandoned.exit_code = 1;
  abandoned.reason = "user";
  row.end = abandoned;
  EXPECT_EQ(StatusOfEnded(row).phase, RunPhase::kFailed);
  EXPECT_EQ(DescribeEnd(abandoned), "never started: user");
}

TEST(DescribeEndTest, ReadsAsASentence) {
  EXPECT_EQ(DescribeEnd(EndOf(Exited(3))), "exited with code 3");
  EXPECT_EQ(DescribeEnd(EndOf(Exited(0, 9))), "ended by SIGKILL (code 137)");
  EXPECT_EQ(DescribeEnd(EndOf(Exited(0, 15, "limit:time"))),
            "reached its time limit; ended by SIGTERM (code 143)");
}

TEST(EndOfTest, AnAlertIsAStopWithTheJobsOwnCode) {
  const RunEnd end = EndOf(Exited(3, 0, "alert:loss is nan at step 7"));
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_EQ(end.source, EndSource::kJob);
  EXPECT_EQ(end.cause, EndCause::kAlert);
  EXPECT_EQ(CauseOfWord(CauseWord(end.cause)), EndCause::kAlert);
  EXPECT_EQ(DescribeEnd(end), "stopped because loss is nan at step 7; exited with code 3");
  RunRow row;
  row.end = end;
  EXPECT_EQ(StatusOfEnded(row).phase, RunPhase::kStopped);
}

TEST(RunToJsonTest, HasBothCodes) {
  RunRow row;
  row.run_id = "r-1";
  row.name = "fox";
  row.command = "bad \xff bytes";
  const RunStatus status = DeriveStatus(row, Of({Exited(0, 15, "limit:time")}));
  const nlohmann::json json = RunToJson(row, status);
  EXPECT_EQ(json["exit_code"], 119);
  EXPECT_EQ(json["job_exit_code"], 143);
  EXPECT_EQ(json["source"], "gpuctl");
  EXPECT_EQ(json["state"], "JOB_STATE_FINISHED");
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_EQ(json["status"], "limit");
  EXPECT_EQ(json["reason"], "limit:time");
}

TEST(RunStatusTest, WhatACommandLeftRunningIsToldUntilItIsGone) {
  LifecycleEvent started, lingering, exited;
  started.attempt = lingering.attempt = exited.attempt = 1;
  lingering.type = LifecycleEvent::Type::kLingering;
  lingering.exit_code = 2;
  lingering.not_before_ms = 30'000;
  exited.type = LifecycleEvent::Type::kExited;
  exited.exit_code = 2;
  const Lifecycle left = Of({started, lingering});
  ASSERT_NE(LingeringEvent(left), nullptr);
  EXPECT_EQ(DescribeLingering(*LingeringEvent(left), 5'000),
            "its command has ended with code 2; what it left running is told to end in 25s");
  EXPECT_EQ(LingeringEvent(Of({started, lingering, exited})), nullptr);
  EXPECT_EQ(DeriveStatus(RunRow(), left).phase, RunPhase::kRunning);
}

TEST(RunStatusTest, ARunThatWaitsForGpusIsQueued) {
  const TempDir dir;
  RunRow row;
  row.accepted_ms = 1;
  LifecycleEvent queued;
  queued.type = LifecycleEvent::Type::kQueued;
  queued.attempt = 1;
  queued.time_ms = 5000;
  RunStatus status = DeriveStatus(row, Of({queued}));
  EXPECT_EQ(status.phase, RunPhase::kQueued);
  EXPECT_EQ(DescribeQueue(*status.queue), "waits for GPUs");
  AddQueueState(dir.path(), status);
  EXPECT_TRUE(RunToJson(row, status)["queue"]["place"].is_null());

  QueueState told;
  told.gpus = 2;
  told.free_gpus = 1;
  told.place = 3;
  EXPECT_OK(StoreQueueState(dir.path(), told));
  AddQueueState(dir.path(), status);
  EXPECT_EQ(DescribeQueue(*status.queue), "waits for 2 GPUs, 1 free, 3rd");
  const nlohmann::ordered_json json = RunToJson(row, status);
  EXPECT_EQ(json["state"], "JOB_STATE_QUEUED");
  EXPECT_EQ(json["status"], "queued");
  EXPECT_EQ(json["queue"].dump(),
            "{\"gpus\":2,\"free\":1,\"place\":3,\"since\":\"1970-01-01T00:00:05.000Z\","
            "\"needs_secrets\":false,\"held_by\":null,\"scheduler\":null}");
  // What the lifecycle says of secrets counts.
  queued.reason = kSecretsReason;
  status = DeriveStatus(row, Of({queued}));
  AddQueueState(dir.path(), status);
  EXPECT_TRUE(RunToJson(row, status)["queue"]["needs_secrets"]);
  // And of the start of its machine.
  queued.reason = kSchedulerReason;
  status = DeriveStatus(row, Of({queued}));
  AddQueueState(dir.path(), status);
  EXPECT_EQ(DescribeQueue(*status.queue), "waits in Slurm's queue");
  EXPECT_EQ(RunToJson(row, status)["queue"]["scheduler"], "Slurm");

  LifecycleEvent started;
  started.attempt = 1;
  started.gpus = std::vector<std::string>{"GPU-1"};
  status = DeriveStatus(row, Of({queued, started}));
  AddQueueState(dir.path(), status);
  EXPECT_EQ(status.phase, RunPhase::kRunning);
  EXPECT_TRUE(RunToJson(row, status)["queue"].is_null());
  EXPECT_EQ(RunToJson(row, status)["gpu_ids"].dump(), "[\"GPU-1\"]");
}

TEST(QueueStateTest, TakesNothingAbsurdFromANode) {
  gpuctl::v1::JobQueue queue;
  queue.set_gpus(-5);
  queue.set_free_gpus(2'000'000'000);
  queue.set_place(-1);
  queue.set_since_ms(-7);
  queue.set_held_by("\x1b[31m; rm -rf /");
  queue.set_scheduler("\x1b[31mSlurm");
  const QueueState state = QueueStateOf(queue);
  EXPECT_EQ(state.gpus, 0);
  EXPECT_LE(state.free_gpus, 1'000'000);
  EXPECT_EQ(state.place, 0);
  EXPECT_EQ(state.since_ms, 0);
  EXPECT_EQ(state.held_by, "");
  EXPECT_EQ(state.scheduler, "");
  queue.set_scheduler("Slurm");
  EXPECT_EQ(DescribeQueue(QueueStateOf(queue)), "waits in Slurm's queue");
  EXPECT_EQ(DescribeQueue(state), "waits for GPUs");
}

TEST(QueueStateTest, DamagedFilesAreNothing) {
  const TempDir dir;
  EXPECT_FALSE(ReadQueueState(dir.path()).has_value());
  for (const char* text : {"", "[]", "{", "7"}) {
    dir.Write("queue.json", text);
    EXPECT_FALSE(ReadQueueState(dir.path()).has_value()) << text;
  }
  dir.Write("queue.json", R"({"gpus":"x","place":-3,"free":99999999999999,"since_ms":1.5})");
  EXPECT_EQ(DescribeQueue(*ReadQueueState(dir.path())), "waits for GPUs");
}

TEST(QueueStateTest, CountsAsPeopleDo) {
  QueueState state;
  state.gpus = 1;
  for (const auto& [place, word] : std::vector<std::pair<int, std::string>>{{1, "1st"},
                                                                            {2, "2nd"},
                                                                            {3, "3rd"},
                                                                            {4, "4th"},
                                                                            {11, "11th"},
                                                                            {12, "12th"},
                                                                            {13, "13th"},
                                                                            {21, "21st"},
                                                                            {112, "112th"},
                                                                            {122, "122nd"}}) {
    state.place = place;
    EXPECT_EQ(DescribeQueue(state), "waits for 1 GPU, 0 free, " + word);
  }
}

TEST(RunToJsonTest, SaysThatALossIsNotFinite) {
  RunRow row;
  const RunStatus status = DeriveStatus(row, Of({Exited(0, 0, "")}));
  row.loss = 0.5;
  EXPECT_EQ(RunToJson(row, status)["loss"], 0.5);
  row.loss = std::nan("");
  EXPECT_EQ(RunToJson(row, status)["loss"], "NaN");
  row.loss = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(RunToJson(row, status)["loss"], "-Infinity");
}

TEST(RunToJsonTest, HasTheWordsOfEveryEnd) {
  RunRow row;
  row.end = RunEnd{gpuctl::v1::JOB_STATE_LOST, kExitLost,           -1,  EndSource::kGpuctl,
                   EndCause::kPreempted,       "preempted: outbid", 1000};
  nlohmann::ordered_json json = RunToJson(row, StatusOfEnded(row));
  EXPECT_EQ(json["state"], "JOB_STATE_LOST");
  EXPECT_EQ(json["status"], "lost");
  EXPECT_EQ(json["source"], "gpuctl");
  EXPECT_EQ(json["reason"], "preempted: outbid");
  row.end = EndOf(Exited(3));
  json = RunToJson(row, StatusOfEnded(row));
  EXPECT_EQ(json["source"], "job");
  EXPECT_EQ(json["status"], "failed");
  EXPECT_TRUE(json["reason"].is_null());
  row.end = RunEnd();
  json = RunToJson(row, StatusOfEnded(row));
  EXPECT_EQ(json["state"], "JOB_STATE_UNSPECIFIED");
}

}  // namespace
}  // namespace gpuctl
