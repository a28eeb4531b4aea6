#include "agent/slots/queue_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

WaitingJob Job(const std::string& id, int gpus, int64_t ticket, int waited_min = 0) {
  WaitingJob job;
  job.job_id = id;
  job.gpus = gpus;
  job.ticket = ticket;
  job.waited = absl::Minutes(waited_min);
  return job;
}

HeldGpus Held(std::set<std::string> gpus) { return {std::move(gpus), false, ""}; }

const std::vector<std::string> kFour = {"a", "b", "c", "d"};

TEST(QueuePlan, StartsInTheOrderOfArrival) {
  const QueuePlan plan =
      PlanQueue(kFour, Held({"b"}), {Job("j-3", 1, 3), Job("j-1", 1, 1), Job("j-2", 2, 2)});
  EXPECT_THAT(plan.starts,
              ElementsAre(Pair("j-1", ElementsAre("a")), Pair("j-2", ElementsAre("c", "d"))));
  EXPECT_EQ(plan.free_gpus, 0);
  EXPECT_EQ(plan.waits.at("j-3").place(), 1);
}

TEST(QueuePlan, LetsSmallerOnesPassForTenMinutes) {
  const QueuePlan passed =
      PlanQueue(kFour, Held({"a"}), {Job("big", 4, 1, 9), Job("small", 1, 2), Job("two", 3, 3)});
  EXPECT_THAT(passed.starts, ElementsAre(Pair("small", ElementsAre("b"))));
  EXPECT_EQ(passed.waits.at("big").place(), 1);
  EXPECT_EQ(passed.waits.at("big").gpus(), 4);
  EXPECT_EQ(passed.waits.at("big").free_gpus(), 2);
  EXPECT_EQ(passed.waits.at("two").place(), 2);

  const QueuePlan kept = PlanQueue(kFour, Held({"a"}), {Job("big", 4, 1, 10), Job("small", 1, 2)});
  EXPECT_THAT(kept.starts, IsEmpty());
  EXPECT_EQ(kept.waits.at("small").place(), 2);
  EXPECT_EQ(kept.waits.at("small").free_gpus(), 3);
}

TEST(QueuePlan, NobodyPassesWhileTheDriverListsItsGpus) {
  WaitingJob secret = Job("secret", 1, 1);
  secret.needs_secrets = true;
  const std::vector<WaitingJob> waiting = {secret, Job("one", 1, 2), Job("two", 2, 3),
                                           Job("small", 1, 4)};
  const QueuePlan plan = PlanQueue({"a", "b"}, Held({}), waiting, /*listing=*/true);
  EXPECT_THAT(plan.starts, ElementsAre(Pair("one", ElementsAre("a"))));
  EXPECT_EQ(plan.waits.at("small").place(), 3);
  EXPECT_THAT(PlanQueue({"a", "b"}, Held({}), waiting).starts,
              ElementsAre(Pair("one", ElementsAre("a")), Pair("small", ElementsAre("b"))));
}

TEST(QueuePlan, KeepsWhatIsFreeForALaterOneThatHasWaitedLong) {
  const QueuePlan plan =
      PlanQueue(kFour, Held({"a"}), {Job("first", 1, 1, 20), Job("big", 3, 2, 15), Job("s", 1, 3)});
  EXPECT_THAT(plan.starts, ElementsAre(Pair("first", ElementsAre("b"))));
}

TEST(QueuePlan, StartsNothingWhileAJobHasAll) {
  const QueuePlan plan = PlanQueue(kFour, {{}, true, "j-9"}, {Job("j-1", 1, 1)});
  EXPECT_THAT(plan.starts, IsEmpty());
  EXPECT_EQ(plan.waits.at("j-1").held_by(), "j-9");
  EXPECT_EQ(plan.waits.at("j-1").free_gpus(), 0);
}

TEST(QueuePlan, KeepsNobodyWaitingForWhatCannotStart) {
  WaitingJob secret = Job("secret", 4, 1, 60);
  secret.needs_secrets = true;
  const QueuePlan plan =
      PlanQueue(kFour, Held({}), {secret, Job("huge", 5, 2, 60), Job("j", 4, 3)});
  EXPECT_THAT(plan.starts, ElementsAre(Pair("j", kFour)));
  EXPECT_TRUE(plan.waits.at("secret").needs_secrets());
  EXPECT_EQ(plan.waits.at("huge").place(), 2);
}

TEST(QueuePlan, PutsJobsWithoutATicketLast) {
  const QueuePlan plan = PlanQueue({"a"}, Held({}), {Job("j-1", 1, 0), Job("j-2", 1, 7)});
  EXPECT_THAT(plan.starts, ElementsAre(Pair("j-2", ElementsAre("a"))));
}

TEST(QueuePlan, IgnoresGpusThatAreGone) {
  const QueuePlan plan = PlanQueue({"b"}, Held({"a", "z"}), {Job("j-1", 1, 1)});
  EXPECT_THAT(plan.starts, ElementsAre(Pair("j-1", ElementsAre("b"))));
}

}  // namespace
}  // namespace gpuctl
