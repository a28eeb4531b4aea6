#include "client/batch/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Entry Waiting(const std::string& id, int priority = 0) {
  Entry entry;
  entry.entry_id = id;
  entry.name = absl::StrCat("name-", id);
  entry.priority = priority;
  return entry;
}

BatchHost Host(const std::string& name) {
  BatchHost host;
  host.host = host.target_name = name;
  return host;
}

BatchView View(const std::string& id, int max_parallel, std::vector<BatchHost> hosts,
               std::vector<Entry> entries) {
  BatchView view;
  view.batch.batch_id = id;
  view.batch.max_parallel = max_parallel;
  view.batch.hosts = std::move(hosts);
  for (const BatchHost& host : view.batch.hosts) {
    view.batch.rents = view.batch.rents || host.target_name.empty();
  }
  for (Entry& entry : entries) view.entries.push_back(ViewOf(std::move(entry), std::nullopt));
  return view;
}

std::vector<std::string> Starts(const StartPlan& plan) {
  std::vector<std::string> starts;
  for (const StartPick& pick : plan.starts) {
    starts.push_back(absl::StrCat(pick.entry_id, "@", pick.host));
  }
  return starts;
}

StartInputs Busy(std::map<std::string, std::string> busy) {
  StartInputs inputs;
  inputs.busy = std::move(busy);
  return inputs;
}

StartInputs At(int64_t now_ms) {
  StartInputs inputs;
  inputs.now_ms = now_ms;
  return inputs;
}

// An entry whose run is live on a rented machine.
EntryView RunningOn(const std::string& id, const std::string& machine, int gpus) {
  Entry entry = Waiting(id);
  entry.state = EntryState::kStarted;
  entry.gpus = gpus;
  RunRow row;
  row.target.name = machine;
  return ViewOf(std::move(entry), std::move(row));
}

TEST(BatchPlan, OneRunForEachFreeMachineAndNoMoreAtOnceThanAllowed) {
  const BatchView three =
      View("b", 2, {Host("a"), Host("b"), Host("c")}, {Waiting("1"), Waiting("2"), Waiting("3")});
  const StartPlan plan = PlanStarts({three}, Busy({{"a", "other-1"}}));
  EXPECT_THAT(Starts(plan), ElementsAre("1@b", "2@c"));
  EXPECT_EQ(plan.waits.at("3"), "at most 2 run at once (--max-parallel)");
}

TEST(BatchPlan, TasksOfAnArrayStartTogetherAndASecondArrayWaitsForTheFirst) {
  BatchView view = View("b", 2, {BatchHost()}, {Waiting("1"), Waiting("2"), Waiting("3")});
  view.batch.array = true;
  StartPlan plan = PlanStarts({view}, {});
  EXPECT_THAT(Starts(plan), ElementsAre("1@", "2@", "3@"));
  for (const StartPick& pick : plan.starts) EXPECT_TRUE(pick.task) << pick.entry_id;
  // One that failed to start must not run beside two others.
  view.entries[0] = RunningOn("1", "slurm/17_0", -1);
  view.entries[1] = RunningOn("2", "slurm/17_1", -1);
  plan = PlanStarts({view}, {});
  EXPECT_THAT(plan.starts, IsEmpty());
  EXPECT_THAT(plan.waits.at("3"), HasSubstr("for the end of its array"));
  // Where all may run at once, it is a task of another array.
  view.batch.max_parallel = 3;
  EXPECT_THAT(Starts(PlanStarts({view}, {})), ElementsAre("3@"));
}

EntryView Failed(const std::string& id) {
  Entry entry = Waiting(id);
  entry.state = EntryState::kFailed;
  return ViewOf(std::move(entry), std::nullopt);
}

TEST(BatchPlan, AfterTooManyFailuresNoMoreStart) {
  BatchView view = View("b", 9, {Host("a"), Host("b")}, {Waiting("1"), Waiting("2")});
  view.entries.push_back(Failed("3"));
  const BatchView other = View("c", 9, {Host("b")}, {Waiting("4")});
  EXPECT_EQ(PlanStarts({view}, {}).starts.size(), 2u) << "no limit by default";
  view.batch.max_failures = 2;
  EXPECT_FALSE(view.gives_up());
  EXPECT_EQ(PlanStarts({view}, {}).starts.size(), 2u);
  view.entries.push_back(Failed("5"));
  EXPECT_TRUE(view.gives_up());
  EXPECT_EQ(WhyItGivesUp(view), "2 runs failed (--max-failures 2)");
  const StartPlan plan = PlanStarts({view, other}, {});
  EXPECT_THAT(Starts(plan), ElementsAre("4@b")) << "other batches go on";
  EXPECT_THAT(plan.cancels.at("1"), HasSubstr("--max-failures 2"));
  EXPECT_THAT(plan.cancels.at("2"), HasSubstr("--max-failures 2"));
}

TEST(BatchPlan, SharesGoToTheMachineOfAnotherBatchWhereTheyMay) {
  std::vector<Entry> entries;
  for (const char* id : {"1", "2", "3"}) {
    entries.push_back(Waiting(id));
    entries.back().gpus = 2;
  }
  BatchView other = View("a", 9, {BatchHost()}, {});
  other.entries.push_back(RunningOn("old", "vast/1", 4));
  const BatchView view = View("b", 9, {BatchHost()}, entries);
  StartInputs inputs;
  inputs.rented_gpus = [](const Entry&) { return 8; };
  inputs.shared = {{"a", "vast/1", "", 8}};
  // Nobody says that they may.
  StartPlan plan = PlanStarts({other, view}, inputs);
  ASSERT_EQ(plan.starts.size(), 1u);
  EXPECT_EQ(plan.starts[0].join, "");
  inputs.may_join = [](const Batch& batch, const Entry& entry, const SharedMachine& machine) {
    return batch.batch_id == "b" && machine.name == "vast/1" && entry.entry_id != "1";
  };
  plan = PlanStarts({other, view}, inputs);
  // The first one may not, and rents; the others share what it rents before they go to others.
  ASSERT_EQ(plan.starts.size(), 1u);
  EXPECT_THAT(plan.waits.at("2"), HasSubstr("rented for name-1"));
  inputs.may_join = [](const Batch&, const Entry&, const SharedMachine&) { return true; };
  plan = PlanStarts({other, view}, inputs);
  ASSERT_EQ(plan.starts.size(), 3u);
  EXPECT_EQ(plan.starts[0].join, "vast/1");
  EXPECT_EQ(plan.starts[1].join, "vast/1");
  EXPECT_EQ(plan.starts[2].join, "") << "its GPUs are taken";
  // One that failed to start there gets a machine of its own.
  BatchView failed = view;
  for (EntryView& one : failed.entries) one.entry.failures = 1;
  for (const StartPick& pick : PlanStarts({other, failed}, inputs).starts) {
    EXPECT_EQ(pick.join, "");
  }
}

TEST(BatchPlan, AMachineBelongsToOneRunOfAllBatches) {
  const BatchView first = View("b1", 9, {Host("a")}, {Waiting("1"), Waiting("2")}),
                  second = View("b2", 9, {Host("a")}, {Waiting("3", /*priority=*/5)});
  const StartPlan plan = PlanStarts({first, second}, {});
  EXPECT_THAT(Starts(plan), ElementsAre("3@a"));
  EXPECT_THAT(plan.waits.at("1"), HasSubstr("a has name-3"));
}

TEST(BatchPlan, SharesOfMachinesAreQueuedThereAtOnceWhereLeastIsToDo) {
  std::vector<Entry> entries;
  for (const char* id : {"1", "2", "3", "4"}) {
    entries.push_back(Waiting(id));
    entries.back().gpus = 1;
  }
  entries.push_back(Waiting("whole"));
  const BatchView view = View("b", 9, {Host("a"), Host("b")}, entries);
  StartPlan plan = PlanStarts({view}, Busy({{"a", "other-1"}}));
  EXPECT_THAT(Starts(plan), ElementsAre("1@a", "2@b", "3@a", "4@b"));
  EXPECT_THAT(plan.waits.at("whole"), HasSubstr("a has other-1"));
}

TEST(BatchPlan, RentedMachinesAreAsManyAsMayRunAtOnce) {
  const BatchView view = View("b", 2, {BatchHost()}, {Waiting("1"), Waiting("2"), Waiting("3")});
  EXPECT_THAT(Starts(PlanStarts({view}, {})), ElementsAre("1@", "2@"));
}

TEST(BatchPlan, SharesOfARentedMachineWaitForItInsteadOfRentingMore) {
  std::vector<Entry> entries;
  for (const char* id : {"1", "2", "3", "4", "5"}) {
    entries.push_back(Waiting(id));
    entries.back().gpus = 2;
  }
  StartInputs inputs;
  inputs.rented_gpus = [](const Entry&) { return 4; };
  const StartPlan plan = PlanStarts({View("b", 3, {BatchHost()}, entries)}, inputs);
  EXPECT_THAT(Starts(plan), ElementsAre("1@", "3@"));
  EXPECT_THAT(plan.waits.at("2"), HasSubstr("rented for name-1"));
  // One that waits for its machine is one of the three.
  EXPECT_THAT(plan.waits.at("4"), HasSubstr("--max-parallel"));
  EXPECT_THAT(plan.waits.at("5"), HasSubstr("--max-parallel"));
}

TEST(BatchPlan, SharesGoToARentedMachineWithFreeGpus) {
  std::vector<Entry> entries;
  for (const char* id : {"1", "2", "3"}) {
    entries.push_back(Waiting(id));
    entries.back().gpus = id[0] == '3' ? 0 : 2;
  }
  BatchView view = View("b", 9, {BatchHost()}, entries);
  view.entries.push_back(RunningOn("old", "vast/1", 3));
  StartInputs inputs;
  inputs.rented_gpus = [](const Entry&) { return 8; };
  inputs.shared = {{"b", "vast/1", "", 8}, {"other", "vast/2", "", 8}};
  StartPlan plan = PlanStarts({view}, inputs);
  ASSERT_EQ(plan.starts.size(), 3u);
  for (const StartPick& pick : plan.starts) EXPECT_EQ(pick.join, "vast/1") << pick.entry_id;
  // With one GPU less the last one, which needs processors, does not fit.
  inputs.shared[0].gpus = 7;
  plan = PlanStarts({view}, inputs);
  EXPECT_EQ(plan.starts.back().join, "");
  // What is there serves also while the markets have nothing.
  view.batch.hosts[0].not_before_ms = 5000;
  EXPECT_EQ(PlanStarts({view}, inputs).starts.size(), 2u);
  view.batch.hosts[0].not_before_ms = 0;
  // One that could not start on a machine of others gets its own.
  view.entries[0].entry.failures = 1;
  plan = PlanStarts({view}, inputs);
  EXPECT_EQ(plan.starts[0].join, "");
  EXPECT_EQ(plan.starts[1].join, "vast/1");
}

TEST(BatchPlan, AfterAFailureEntryAndMachineWait) {
  Entry late = Waiting("1");
  late.not_before_ms = 5000;
  late.why = "no room";
  BatchHost bad = Host("a");
  bad.not_before_ms = 5000;
  bad.why = "a does not answer";
  StartPlan plan = PlanStarts({View("b", 9, {bad}, {late, Waiting("2")})}, At(1000));
  EXPECT_THAT(plan.starts, IsEmpty());
  EXPECT_EQ(plan.waits.at("1"), "no room; tried again in 4s");
  EXPECT_EQ(plan.waits.at("2"), "a does not answer; tried again in 4s");
  plan = PlanStarts({View("b", 9, {bad, Host("b")}, {late, Waiting("2")})}, At(1000));
  EXPECT_THAT(Starts(plan), ElementsAre("2@b"));
  plan = PlanStarts({View("b", 9, {bad}, {late})}, At(5000));
  EXPECT_THAT(Starts(plan), ElementsAre("1@a"));
  // So does a clock that was set back by a day.
  plan = PlanStarts({View("b", 9, {bad}, {late})}, At(5000 - 86'400'000));
  EXPECT_THAT(Starts(plan), ElementsAre("1@a"));
}

TEST(BatchPlan, WhatComesAfterAnotherWaitsForItsSuccess) {
  Entry second = Waiting("2");
  second.after = {"entry:1"};
  const BatchView view = View("b", 9, {Host("a"), Host("b")}, {Waiting("1"), second});
  const auto after = [&](EntryOutcome outcome) {
    StartInputs inputs;
    inputs.dependencies = {{"entry:1", {outcome, "name-1"}}};
    return PlanStarts({view}, std::move(inputs));
  };
  EXPECT_THAT(Starts(after(EntryOutcome::kOpen)), ElementsAre("1@a"));
  EXPECT_EQ(after(EntryOutcome::kOpen).waits.at("2"), "after name-1");
  EXPECT_EQ(after(EntryOutcome::kSucceeded).starts.size(), 2u);
  EXPECT_THAT(after(EntryOutcome::kFailed).cancels.at("2"), HasSubstr("after name-1, which did"));
  EXPECT_THAT(PlanStarts({view}, {}).cancels.at("2"), HasSubstr("removed"));
}

TEST(BatchPlan, WhatComesAfterAWholeBatchNamesIt) {
  Entry last = Waiting("3");
  last.after = {"entry:1", "entry:2"};
  const auto why = [&](size_t of_batch) {
    StartInputs inputs;
    inputs.dependencies = {{"entry:1", {EntryOutcome::kSucceeded, "sw-1", "sw", of_batch}},
                           {"entry:2", {EntryOutcome::kOpen, "sw-2", "sw", of_batch}}};
    return PlanStarts({View("b", 9, {Host("a")}, {last})}, std::move(inputs)).waits.at("3");
  };
  EXPECT_EQ(why(2), "after sw: sw-2 is not over");
  EXPECT_EQ(why(3), "after sw-2") << "it does not come after all of it";
}

TEST(BatchPlan, TheFirstRunsGetTheMoneyThatIsLeft) {
  BatchView view = View("b", 9, {Host("a"), Host("b")}, {Waiting("1"), Waiting("2")});
  const auto after = [&] {
    std::vector<std::string> texts;
    for (const StartPick& pick : PlanStarts({view}, {}).starts) texts.push_back(pick.pays_after);
    return texts;
  };
  EXPECT_THAT(after(), ElementsAre("", ""));
  view.batch.max_cost_usd = 1;
  EXPECT_THAT(after(), ElementsAre("", "1"));
}

TEST(BatchPlan, AMachineGetsItsRunsInTheirOrder) {
  std::vector<Entry> entries;
  for (const char* id : {"1", "2", "3", "4"}) {
    entries.push_back(Waiting(id));
    entries.back().gpus = 1;
  }
  BatchView view = View("b", 9, {Host("a"), Host("b")}, entries);
  const auto behind = [&] {
    std::vector<std::string> texts;
    for (const StartPick& pick : PlanStarts({view}, {}).starts) {
      texts.push_back(absl::StrCat(pick.entry_id, "@", pick.host, " behind ", pick.behind));
    }
    return texts;
  };
  EXPECT_THAT(behind(), ElementsAre("1@a behind ", "2@b behind ", "3@a behind 1", "4@b behind 2"));
  // One that another pass is starting is the last one before them.
  Entry first = Waiting("0");
  first.gpus = 1;
  first.state = EntryState::kStarting;
  first.machine = "b";
  view.entries.insert(view.entries.begin(), ViewOf(first, std::nullopt));
  EXPECT_THAT(behind(), ElementsAre("1@a behind ", "2@a behind 1", "3@b behind 0", "4@a behind 2"));
}

RunRow Ended(gpuctl::v1::JobState state, int code, EndCause cause) {
  RunRow row;
  row.end.emplace();
  row.end->state = state;
  row.end->exit_code = row.end->job_code = code;
  row.end->cause = cause;
  return row;
}

TEST(BatchPlan, ThePhaseOfAStartedEntryIsThatOfItsRun) {
  Entry entry = Waiting("1");
  entry.state = EntryState::kStarted;
  const auto finished = gpuctl::v1::JOB_STATE_FINISHED;
  EXPECT_EQ(ViewOf(entry, RunRow()).phase, EntryPhase::kRunning);
  EXPECT_EQ(ViewOf(entry, std::nullopt).phase, EntryPhase::kFailed);
  Entry known = entry;
  known.outcome = "done";
  EXPECT_EQ(ViewOf(known, std::nullopt).phase, EntryPhase::kDone);
  EXPECT_EQ(ViewOf(entry, Ended(finished, 0, EndCause::kNone)).phase, EntryPhase::kDone);
  EXPECT_EQ(ViewOf(entry, Ended(finished, 3, EndCause::kNone)).phase, EntryPhase::kFailed);
  EXPECT_EQ(ViewOf(entry, Ended(finished, 143, EndCause::kUser)).phase, EntryPhase::kCancelled);
  const RunRow preempted = Ended(gpuctl::v1::JOB_STATE_LOST, 125, EndCause::kPreempted);
  EXPECT_EQ(ViewOf(entry, preempted).phase, EntryPhase::kFailed);
  entry.resumes = 2;
  entry.followed = 1;
  EXPECT_TRUE(ViewOf(entry, preempted).live());
  entry.followed = 2;
  EXPECT_TRUE(ViewOf(entry, preempted).over());
}

}  // namespace
}  // namespace gpuctl
