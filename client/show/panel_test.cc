#include "client/show/panel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/safe_text.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

PanelState Running() {
  PanelState state;
  state.run_name = "amber-fox-3";
  state.node_name = "ada@gpu.example:22";
  state.phase = RunPhase::kRunning;
  state.running_for = absl::Seconds(200);
  state.linked = state.ever_linked = true;
  state.silence = absl::Seconds(1);
  state.hint = "Ctrl-C detaches";
  for (int i = 1; i <= 60; ++i) {
    MetricSample sample;
    sample.step = i;
    sample.total_steps = 120;
    sample.loss = 4.0 / i;
    sample.learning_rate = 3e-4;
    sample.tokens_per_s = 1234;
    sample.time_ms = 1000 * i;
    state.progress.Add(sample);
  }
  TelemetrySample telemetry;
  telemetry.cpu_percent = 85;
  telemetry.memory_used_bytes = 2.1e9;
  telemetry.memory_total_bytes = 8e9;
  telemetry.gpus.push_back({97.0, 70.1e9, 80e9, 512.0, 61.0});
  state.telemetry = telemetry;
  return state;
}

std::string Joined(const PanelState& state, int columns, int rows) {
  return absl::StrJoin(RenderPanel(state, columns, rows, PanelStyle{false, false}), "\n");
}

TEST(RenderPanelTest, ShowsEverythingIn80x24) {
  EXPECT_EQ(Joined(Running(), 80, 24),
            "-- amber-fox-3 - running on ada@gpu.example:22 - 3m 20s ------ Ctrl-C detaches \n"
            "step 60/120 ####################....................  50%  ETA 1m 00s\n"
            "loss 0.06667  @-...______________  lr 0.0003  1234 tokens/s\n"
            "CPU 85% - 2.1/8.0 GB   GPU 97% - 70.1/80.0 GB - 512 W - 61 C");
}

TEST(RenderPanelTest, LeavesOutWhatANarrowTerminalCannotShowWhole) {
  PanelState state = Running();
  EXPECT_EQ(Joined(state, 40, 24),
            "-- amber-fox-3 - running on ada@gpu.ex>\n"
            "step 60/120 #####.....  50%  ETA 1m 00s\n"
            "loss 0.06667  @-.______  lr 0.0003\n"
            "GPU 97% - 70.1/80.0 GB - 512 W - 61 C");
  state.telemetry->gpus.clear();
  state.money = "$2.00/h, $1.20 of $20.00 spent, stops in 10m 00s";
  EXPECT_THAT(Joined(state, 40, 24), HasSubstr("\n$2.00/h, $1.20 of $20.00 spent\nstep 60/120"));
  state.money += ", then idle for 10m 00s";
  EXPECT_THAT(
      Joined(state, 80, 24),
      HasSubstr("\n$2.00/h, $1.20 of $20.00 spent, stops in 10m 00s, then idle for 10m 00s\n"));
  EXPECT_THAT(Joined(state, 60, 24),
              HasSubstr("\n$2.00/h, $1.20 of $20.00 spent, stops in 10m 00s\nstep 60/120"));
  EXPECT_THAT(Joined(state, 40, 8), HasSubstr("\n$2.00/h, $1.20 of $20.00 spent"));
  EXPECT_THAT(Joined(state, 40, 24), HasSubstr("\nCPU 85% - 2.1/8.0 GB"));
}

TEST(RenderPanelTest, TheJobsOwnNumbersComeLastAndOnlyWhereThereIsRoom) {
  PanelState state = Running();
  const std::string narrow = Joined(state, 40, 24);
  state.own = {{"accuracy\x1b[2J", 0.75}, {"f1", 0.5}, {"bleu", 31}};
  EXPECT_THAT(Joined(state, 120, 24), HasSubstr("1234 tokens/s  accuracy\\x1b[2J 0.75  f1 0.5\n"));
  EXPECT_THAT(Joined(state, 80, 24), HasSubstr("1234 tokens/s  f1 0.5\n"));
  EXPECT_EQ(Joined(state, 40, 24), narrow);
  state.progress = TrainingProgress();
  EXPECT_THAT(Joined(state, 80, 24), HasSubstr("\naccuracy\\x1b[2J 0.75  f1 0.5\n"));
  state.own = {{std::string(25, 'n'), 1}};
  EXPECT_THAT(Joined(state, 200, 24), Not(HasSubstr("nnn")));
}

TEST(RenderPanelTest, AGpuHasTheMemoryThatItIsSoldWith) {
  PanelState state = Running();
  const double mib = 1 << 20;
  state.telemetry->gpus[0].memory_used_bytes = 23'654 * mib;
  state.telemetry->gpus[0].memory_total_bytes = 24'564 * mib;  // a 24 GB card
  EXPECT_THAT(Joined(state, 80, 24), HasSubstr("23.1/24.0 GB"));
}

TEST(RenderPanelTest, ShowsTheEpochWhereTheWholeLengthIsNotKnown) {
  PanelState state;
  MetricSample sample;
  sample.step = 250;
  sample.total_steps = -1;
  sample.epoch = 3;
  sample.remaining_s = 12;
  sample.remaining_is_of_epoch = true;
  state.progress.Add(sample);
  EXPECT_THAT(Joined(state, 80, 24), HasSubstr("step 250  epoch 3  epoch ends in 12s"));
}

TEST(RenderPanelTest, ShowsWhatARentedMachineCosts) {
  PanelState state = Running();
  state.money = "$2.00/h, $1.20 of $20.00 spent";
  EXPECT_THAT(Joined(state, 80, 24), HasSubstr("\n$2.00/h, $1.20 of $20.00 spent\nstep 60/120"));
}

TEST(RenderPanelTest, NeverWrapsAndNeverFills) {
  for (int columns = 20; columns <= 200; columns += 7) {
    for (int rows = 4; rows <= 30; ++rows) {
      const auto lines = RenderPanel(Running(), columns, rows, PanelStyle{true, true});
      EXPECT_LE(lines.size(), static_cast<size_t>(rows < 10 ? 3 : rows < 20 ? 7 : 9));
      for (const std::string& line : lines) EXPECT_LT(DisplayWidth(line), columns);
    }
  }
  EXPECT_TRUE(RenderPanel(Running(), 80, 3, PanelStyle{}).empty());
  EXPECT_TRUE(RenderPanel(Running(), 10, 24, PanelStyle{}).empty());
}

TEST(RenderPanelTest, ShowsHostileFieldsAsText) {
  const std::string hostile = "x\ngpuctl: forged\x1b[2J\u202E\u009b";
  const std::string shown = "x\\ngpuctl: forged\\x1b[2J\\u202e\\u009b";
  PanelState state = Running();
  state.run_name = hostile;
  state.node_name = hostile;
  state.hint = hostile;
  state.linked = false;
  state.link_error = hostile;
  const std::string text = Joined(state, 300, 24);
  EXPECT_THAT(text, HasSubstr(absl::StrCat("-- ", shown, " - running on ", shown, " - 3m 20s")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("3m 20s  ", shown, " \n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("retrying (", shown, ")")));
  for (const std::string& line : RenderPanel(state, 300, 24, PanelStyle{false, true})) {
    EXPECT_EQ(MakeSafe(line), line);
  }
}

TEST(SilenceTextTest, IsHonest) {
  PanelState state = Running();
  EXPECT_EQ(SilenceText(state), "");
  state.silence = absl::Seconds(12);
  EXPECT_EQ(SilenceText(state), "last heard 12s ago: the job runs on without us; retrying");
  state.linked = false;
  state.link_error = "connection refused";
  EXPECT_EQ(SilenceText(state),
            "last heard 12s ago: the job runs on without us; retrying (connection refused)");
  state.ever_linked = false;
  EXPECT_EQ(SilenceText(state), "not connected: connection refused; retrying");
}

TEST(SilenceTextTest, ReturningToARunIsNoLossYet) {
  PanelState state = Running();
  state.linked = false;
  state.silence.reset();
  EXPECT_EQ(SilenceText(state), "connecting …");
  state.link_error = "connection refused";
  EXPECT_EQ(SilenceText(state), "the job runs on without us; retrying (connection refused)");
}

TEST(SilenceTextTest, SaysOfAnotherGpuctlsLinkOnlyWhatIsKnown) {
  PanelState state = Running();
  state.linked = false;
  state.ever_linked = false;
  state.by_other = true;
  EXPECT_EQ(SilenceText(state), "");
  state.silence = absl::Seconds(30);
  EXPECT_EQ(SilenceText(state), "nothing new for 30s; another gpuctl here follows it");
}

TEST(RenderPanelTest, KeepsSilenceOnALowTerminal) {
  PanelState state = Running();
  state.silence = absl::Seconds(12);
  EXPECT_THAT(Joined(state, 80, 6), HasSubstr("last heard 12s ago"));
}

TEST(RenderPanelTest, ShowsAWholeReasonWhereThereIsRoom) {
  PanelState state = Running();
  state.linked = false;
  state.link_error = "reach ada@gpu-box:22: its ProxyCommand said \"no such pod\": it closed";
  const std::vector<std::string> lines = RenderPanel(state, 80, 24, PanelStyle{false, true});
  const std::string text = absl::StrJoin(lines, " ");
  EXPECT_THAT(absl::StrReplaceAll(text, {{"   ", " "}}), HasSubstr(state.link_error));
  for (const std::string& line : lines) EXPECT_LT(DisplayWidth(line), 80) << line;
}

TEST(RenderPanelTest, ShowsColoursOnlyWhenTheyAreWanted) {
  EXPECT_THAT(Joined(Running(), 80, 24), Not(HasSubstr("\x1b")));
  EXPECT_THAT(absl::StrJoin(RenderPanel(Running(), 80, 24, PanelStyle{true, true}), "\n"),
              HasSubstr("\x1b[32m"));
}

}  // namespace
}  // namespace gpuctl
