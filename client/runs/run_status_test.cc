#include "client/runs/run_status.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/base/exit_codes.h"

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

TEST(DeriveStatusTest, FollowsTheLifecycle) {
  RunRow row;
  EXPECT_EQ(DeriveStatus(row, {}).word, "launching");
  row.accepted_ms = 1;
  EXPECT_EQ(DeriveStatus(row, {}).word, "pending");
  EXPECT_EQ(DeriveStatus(row, Of({Event(Type::kStarted, 1)})).word, "running");
  EXPECT_EQ(DeriveStatus(row, Of({Event(Type::kStarted, 1), Event(Type::kStopping, 1)})).word,
            "stopping");
  EXPECT_EQ(DeriveStatus(
                row, Of({Event(Type::kStarted, 1), Event(Type::kLost, 1), Event(Type::kRetry, 2)}))
                .word,
            "retrying");
  const RunStatus done = DeriveStatus(row, Of({Event(Type::kStarted, 1), Exited(0)}));
  EXPECT_EQ(done.word, "succeeded");
  EXPECT_TRUE(done.over);
}

TEST(EndOfTest, PassesTheJobsCodeThrough) {
  EXPECT_EQ(EndOf(Exited(3)).exit_code, 3);
  EXPECT_EQ(EndOf(Exited(3)).source, "job");
  EXPECT_EQ(EndOf(Exited(0, 9)).exit_code, 137);
  EXPECT_EQ(EndOf(Exited(0, 15, "user")).exit_code, 143);
  EXPECT_EQ(EndOf(Exited(0, 15, "user")).source, "job");
}

TEST(EndOfTest, LimitsAndLossBeatTheJobsCode) {
  const RunEnd limit = EndOf(Exited(0, 15, "limit:time"));
  EXPECT_EQ(limit.exit_code, kExitLimit);
  EXPECT_EQ(limit.job_code, 143);
  EXPECT_EQ(limit.source, "gpuctl");
  EXPECT_EQ(EndOf(Event(Type::kLost, 1)).exit_code, kExitLost);
  LifecycleEvent missing = Exited(127);
  missing.error = "exec nosuch: no such file or directory";
  EXPECT_EQ(EndOf(missing).exit_code, kExitNotFound);
  EXPECT_EQ(EndOf(missing).source, "gpuctl");
}

TEST(DescribeEndTest, ReadsAsASentence) {
  EXPECT_EQ(DescribeEnd(EndOf(Exited(3))), "exited with code 3");
  EXPECT_EQ(DescribeEnd(EndOf(Exited(0, 9))), "ended by SIGKILL (code 137)");
  EXPECT_EQ(DescribeEnd(EndOf(Exited(0, 15, "limit:time"))),
            "reached its time limit; ended by SIGTERM (code 143)");
}

TEST(RunToJsonTest, HasBothCodes) {
  RunRow row;
  row.run_id = "r-1";
  row.name = "fox";
  row.command = "bad \xff bytes";
  const RunStatus status = DeriveStatus(row, Of({Exited(0, 15, "limit:time")}));
  const nlohmann::json json = nlohmann::json::parse(RunToJson(row, status));
  EXPECT_EQ(json["exit_code"], 119);
  EXPECT_EQ(json["job_exit_code"], 143);
  EXPECT_EQ(json["source"], "gpuctl");
  EXPECT_EQ(json["state"], "JOB_STATE_FINISHED");
  EXPECT_TRUE(json["loss"].is_null());
}

}  // namespace
}  // namespace gpuctl
