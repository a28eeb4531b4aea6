#include "client/keep/keep_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/runs/run_end.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kEndedMs = 1'000'000'000;

std::vector<std::string> VerbsFor(const KeptRun& run, int64_t now_ms) {
  std::vector<std::string> verbs;
  for (const KeepDeed& deed : DeedsFor(run, now_ms)) verbs.push_back(deed.verb);
  return verbs;
}

KeptRun PreemptedRun() {
  KeptRun run;
  run.row.run_id = "r-1";
  run.row.name = "fox-1";
  run.row.accepted_ms = kEndedMs - 1000;
  run.row.end =
      RunEnd{gpuctl::v1::JOB_STATE_LOST, 117,     -1, EndSource::kGpuctl, EndCause::kPreempted,
             "preempted: outbid",        kEndedMs};
  run.record.spec.max_retries = 2;
  run.record.spec.retry_on = {kOnPreempted};
  run.machine_gone = true;
  run.machine = "vast/7";
  run.usd_per_hour = 0.24991;
  run.cost_left_usd = 3.00009;
  run.saved = true;
  return run;
}

TEST(KeepPlan, APreemptedRunIsResumedWithinItsRetries) {
  const int64_t later_ms = kEndedMs + 3'600'000;
  const KeptRun run = PreemptedRun();
  ASSERT_EQ(DeedsFor(run, later_ms).size(), 1u);
  EXPECT_THAT(DeedsFor(run, later_ms)[0].args,
              ElementsAre("resume", "r-1", "-d", "-y", "--as-before", "--anew", "--max-price",
                          "0.2500", "--cost", "3.0000"));
  EXPECT_THAT(DeedsFor(run, kEndedMs + 60'000), IsEmpty()) << "a launch that shows it goes first";
  KeptRun other = run;
  other.machine_gone = false;
  EXPECT_THAT(VerbsFor(other, later_ms), ElementsAre("ask-resume", "end-disk", "resume"));
  EXPECT_EQ(DeedsFor(other, later_ms)[0].args.back(), "--dry-run");
  // The machine, not the run: that would give the run up.
  EXPECT_THAT(DeedsFor(other, later_ms)[1].args, ElementsAre("down", "vast/7", "-y", "--force"));
  other.saved = false;
  ASSERT_EQ(DeedsFor(other, later_ms).size(), 1u) << "its only checkpoints may be on that disk";
  EXPECT_THAT(DeedsFor(other, later_ms)[0].why_not, HasSubstr("vast/7 still has its disk"));
  other = run;
  other.cost_left_usd = 0;
  ASSERT_EQ(DeedsFor(other, later_ms).size(), 1u);
  EXPECT_THAT(DeedsFor(other, later_ms)[0].why_not, HasSubstr("cost limit is used up"));
  other = run;
  other.given_up = true;
  EXPECT_THAT(DeedsFor(other, later_ms), IsEmpty()) << "its user ended it";
  other = run;
  other.goes_on = true;
  EXPECT_THAT(DeedsFor(other, later_ms), IsEmpty());
  other = run;
  other.attempts = 2;
  EXPECT_THAT(VerbsFor(other, later_ms), ElementsAre("resume"));
  other.attempts = 3;
  EXPECT_THAT(DeedsFor(other, later_ms), IsEmpty()) << "two retries were made";
  other = run;
  other.record.spec.retry_on = {"lost"};
  EXPECT_THAT(DeedsFor(other, later_ms), IsEmpty());
  other = run;
  other.row.end->cause = EndCause::kNone;
  EXPECT_THAT(DeedsFor(other, later_ms), IsEmpty());
}

TEST(KeepPlan, ResultsComeHomeUntilAllAreThere) {
  KeptRun run;
  run.row.run_id = "r-1";
  run.row.name = "fox-1";
  run.row.accepted_ms = 5;
  run.record.pull_dir = "/home/me/runs";
  ASSERT_EQ(DeedsFor(run, 10).size(), 1u);
  EXPECT_THAT(DeedsFor(run, 10)[0].args, ElementsAre("pull", "r-1", "--to", "/home/me/runs/fox-1"));
  run.row.end =
      RunEnd{gpuctl::v1::JOB_STATE_FINISHED, 0, 0, EndSource::kJob, EndCause::kNone, "", kEndedMs};
  EXPECT_THAT(VerbsFor(run, kEndedMs + 1000), ElementsAre("pull"));
  const int64_t much_later_ms = kEndedMs + absl::ToInt64Milliseconds(kFetchWithin);
  EXPECT_THAT(DeedsFor(run, much_later_ms), IsEmpty());
  run.home = true;
  EXPECT_THAT(DeedsFor(run, kEndedMs + 1000), IsEmpty());
  run.home = false;
  run.machine_gone = true;
  EXPECT_THAT(DeedsFor(run, kEndedMs + 1000), IsEmpty());
  run.row.target.provider = "slurm";
  EXPECT_THAT(VerbsFor(run, kEndedMs + 1000), ElementsAre("pull")) << "the login node has a copy";
  run.row.target.provider = "";
  run.machine_gone = false;
  run.machine_has_later = true;
  EXPECT_THAT(VerbsFor(run, kEndedMs + 1000), ElementsAre("pull")) << "it still has the files";
  run.machine_has_later = false;
  run.row.accepted_ms = 0;
  EXPECT_THAT(DeedsFor(run, kEndedMs + 1000), IsEmpty()) << "no node has it";
  run.row.accepted_ms = 5;
  run.record.pull_dir = "";
  EXPECT_THAT(DeedsFor(run, kEndedMs + 1000), IsEmpty()) << "nobody asked for it";
}

TEST(KeepPlan, WhatWasAskedForIsDoneAtItsTime) {
  KeptRun run;
  run.row.run_id = "r-1";
  run.row.name = "fox-1";
  run.wishes = {{"w-1", "r-1", "/w", false, 0, true}};
  EXPECT_THAT(DeedsFor(run, 10), IsEmpty()) << "it waits for the end";
  run.wishes[0].pull = true;
  EXPECT_THAT(DeedsFor(run, 10), IsEmpty()) << "no node has it";
  run.row.accepted_ms = 5;
  ASSERT_EQ(DeedsFor(run, 10).size(), 1u);
  EXPECT_THAT(DeedsFor(run, 10)[0].args, ElementsAre("keep", "--wish", "w-1"));
  EXPECT_EQ(DeedsFor(run, 10)[0].what, "bring checkpoints to /w/fox-1");
  run.row.end =
      RunEnd{gpuctl::v1::JOB_STATE_FINISHED, 0, 0, EndSource::kJob, EndCause::kNone, "", kEndedMs};
  EXPECT_EQ(DeedsFor(run, kEndedMs)[0].what, "bring results to /w/fox-1 and give its machine back");
  // A run that goes on takes it along.
  KeptRun taken = PreemptedRun();
  taken.wishes = run.wishes;
  EXPECT_THAT(DeedsFor(taken, kEndedMs + 60'000), IsEmpty());
  EXPECT_THAT(VerbsFor(taken, kEndedMs + 3'600'000), ElementsAre("resume"));
  taken.given_up = true;
  EXPECT_THAT(VerbsFor(taken, kEndedMs + 60'000), ElementsAre("wish"));
}

TEST(KeepPlan, APriceRiseIsAnsweredByTheRule) {
  KeptRun run;
  run.row.run_id = "r-1";
  run.rise_waits = true;
  EXPECT_THAT(DeedsFor(run, 10), IsEmpty()) << "ps tells it";
  run.record.spec.on_price_rise = "accept";
  EXPECT_THAT(DeedsFor(run, 10)[0].args, ElementsAre("price", "r-1", "--accept", "-y"));
  run.record.spec.on_price_rise = "refuse";
  EXPECT_THAT(DeedsFor(run, 10)[0].args, ElementsAre("price", "r-1", "--refuse", "-y"));
  run.record.spec.on_price_rise = "stop";
  EXPECT_THAT(DeedsFor(run, 10)[0].args, ElementsAre("stop", "r-1"));
  run.rise_waits = false;
  EXPECT_THAT(DeedsFor(run, 10), IsEmpty());
}

}  // namespace
}  // namespace gpuctl
