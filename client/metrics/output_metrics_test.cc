#include "common/metrics/output_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client/metrics/progress.h"
#include "client/metrics/saved_numbers.h"
#include "client/metrics/test_printed_output.h"

namespace gpuctl {
namespace {

using Points = std::vector<std::pair<double, double>>;

Points PointsOf(const std::vector<PlotPoint>& points) {
  Points pairs;
  for (const PlotPoint& point : points) pairs.emplace_back(point.x, point.y);
  return pairs;
}

// Reads `output` in chunks of `size` bytes, and each chunk with an object that was stored and
// loaded.
TrainingProgress ReadInChunks(absl::string_view output, size_t size) {
  SavedNumbers numbers;
  std::string torn;
  const auto add = [&numbers](const MetricSample& sample) { numbers.progress.Add(sample); };
  for (size_t at = 0; at < output.size(); at += size) {
    numbers.metrics.Read(torn, add);
    numbers.metrics.Read(output.substr(at, size), add);
    const size_t end = std::min(output.size(), at + size);
    const auto unread = static_cast<size_t>(numbers.metrics.unread_bytes());
    torn = std::string(output.substr(end - unread, unread));
    if (end == output.size()) break;
    numbers = ParseSavedNumbers(FormatSavedNumbers(numbers)).value_or(SavedNumbers());
  }
  numbers.metrics.Look(add);
  return numbers.progress;
}

TrainingProgress Read(absl::string_view output) {
  OutputMetrics metrics;
  TrainingProgress progress;
  const auto add = [&progress](const MetricSample& sample) { progress.Add(sample); };
  metrics.Read(output, add);
  metrics.Look(add);
  return progress;
}

TEST(OutputMetricsTest, ReadsTrainersBarsAndDictLines) {
  const TrainingProgress progress = Read(kTrainer);
  EXPECT_EQ(progress.step(), 30);
  EXPECT_EQ(progress.total_steps(), 30);
  // The last line has the mean of all losses, 2.345.
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{10, 2.5}, {20, 2.0}, {30, 1.5}}));
  EXPECT_EQ(progress.loss(), 1.5);
  // The evaluation's own bar counts to 7.
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{15, 1.35}, {30, 1.2}}));
}

TEST(OutputMetricsTest, ShowsTheTrainingBarWhileAnotherRuns) {
  const size_t evaluation = kTrainer.find("4/7");
  const TrainingProgress progress = Read(kTrainer.substr(0, evaluation + 30));
  EXPECT_EQ(progress.step(), 15);
  EXPECT_EQ(progress.total_steps(), 30);
}

TEST(OutputMetricsTest, ReadsTheTimeThatABarExpects) {
  const TrainingProgress progress = Read(kAxolotl);
  EXPECT_EQ(progress.step(), 2);
  EXPECT_EQ(progress.total_steps(), 1500);
  ASSERT_TRUE(progress.Eta().has_value());
  EXPECT_EQ(*progress.Eta(), absl::Seconds(3600 + 44 * 60 + 30));
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{1, 1.4027}}));
}

TEST(OutputMetricsTest, ReadsABarOfEpochsAroundOthers) {
  const TrainingProgress progress = Read(kNestedBars);
  EXPECT_EQ(progress.step(), 8);
  EXPECT_EQ(progress.total_steps(), 8);
  ASSERT_EQ(progress.losses().size(), 9u);
  EXPECT_EQ(progress.losses()[3].y, 0.25);
  EXPECT_EQ(progress.losses()[8].y, 0.2);
}

TEST(OutputMetricsTest, ReadsTextBehindABar) {
  const TrainingProgress progress = Read(kGluedToBar);
  EXPECT_EQ(progress.step(), 3);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{0, 0.5}, {1, 0.5}, {2, 0.5}}));
}

TEST(OutputMetricsTest, ReadsLightning) {
  const TrainingProgress progress = Read(kLightning);
  EXPECT_EQ(progress.step(), 6);
  EXPECT_EQ(progress.epoch(), 1);
  EXPECT_EQ(progress.total_steps(), -1);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{2, 2.31}, {4, 2.1}, {6, 1.9}}));
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{4, 2.05}}));
  EXPECT_EQ(progress.EpochEta(), absl::Seconds(1));
}

TEST(OutputMetricsTest, ReadsKeras) {
  TrainingProgress progress = Read(kKeras);
  EXPECT_EQ(progress.step(), 250);
  EXPECT_EQ(progress.total_steps(), 250);
  // What evaluate() prints at the end is no training.
  EXPECT_EQ(PointsOf(progress.losses()),
            (Points{{1, 2.3841}, {61, 1.5}, {125, 0.62}, {250, 0.42}}));
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{125, 0.51}, {250, 0.31}}));
  progress = Read(kKerasTwo);
  EXPECT_EQ(progress.step(), 125);
  EXPECT_EQ(progress.total_steps(), 375);
  EXPECT_EQ(progress.loss(), 0.62);
}

TEST(OutputMetricsTest, ReadsFastai) {
  TrainingProgress progress = Read(kFastai);
  EXPECT_EQ(progress.total_steps(), 200);
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{100, 0.512345}, {125, 0.412345}}));
  EXPECT_EQ(progress.loss(), 0.6123);
  progress = Read(kFastaiTable);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{0, 0.89321}, {1, 0.6123}}));
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{0, 0.512345}, {1, 0.412345}}));
}

TEST(OutputMetricsTest, ReadsYolo) {
  const TrainingProgress progress = Read(kYolo);
  EXPECT_EQ(progress.step(), 12);
  EXPECT_EQ(progress.total_steps(), 24);
  ASSERT_EQ(progress.losses().size(), 3u);
  EXPECT_DOUBLE_EQ(progress.losses()[1].x, 8);
  EXPECT_DOUBLE_EQ(progress.losses()[1].y, 1.1 + 2.4 + 1.2);  // the sum of its parts
  EXPECT_DOUBLE_EQ(*progress.loss(), 4);
}

TEST(OutputMetricsTest, ReadsNanoGpt) {
  const TrainingProgress progress = Read(kNanoGpt);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{0, 4.2598}, {10, 3.1444}, {250, 1.95}}));
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{0, 4.2823}, {250, 2.06}}));
}

TEST(OutputMetricsTest, ReadsTorchtune) {
  const TrainingProgress progress = Read(kTorchtune);
  EXPECT_EQ(progress.step(), 4);
  EXPECT_EQ(progress.loss(), 2.2);
  EXPECT_EQ(progress.losses().back().x, 4);
  EXPECT_EQ(progress.losses()[0].y, 2.5);
}

TEST(OutputMetricsTest, ReadsDeepSpeedAndMegatron) {
  TrainingProgress progress = Read(kDeepSpeed);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{10, 2.1234}, {20, 2.0234}}));
  progress = Read(kMegatron);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{10, 10.56782}, {20, 9.956782}}));
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{10, 9.912345}}));
  EXPECT_EQ(progress.total_steps(), 1000);
  EXPECT_EQ(progress.learning_rate(), 3e-5);
  EXPECT_EQ(progress.grad_norm(), 4.012);
}

TEST(OutputMetricsTest, ReadsLlamaFactory) {
  const TrainingProgress progress = Read(kLlamaFactory);
  EXPECT_EQ(progress.step(), 150);
  EXPECT_EQ(progress.total_steps(), 150);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{10, 1.5021}}));
}

TEST(OutputMetricsTest, ReadsAccelerate) {
  const TrainingProgress progress = Read(kAccelerate);
  EXPECT_EQ(progress.step(), 200);
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{100, 3.1398}, {200, 3.0056}}));
}

TEST(OutputMetricsTest, ReadsCountsInBrackets) {
  TrainingProgress progress = Read(kTimm);
  EXPECT_EQ(progress.step(), 1301);
  EXPECT_EQ(PointsOf(progress.losses()),
            (Points{{0, 6.932}, {1250, 6.5}, {1251, 6.4}, {1301, 6.3}}));
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{1250, 6.4}}));  // the mean
  progress = Read(kTorchvision);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{0, 6.9123}, {40, 5.9123}, {50, 5.5}}));
  progress = Read(kPyTorchExample);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{0, 2.297471}, {640, 1.5}, {60000, 0.2}}));
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{640, 0.0533}}));
  progress = Read(kTutorial);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{100, 0.5}, {600, 0.4}, {700, 0.3}}));
  EXPECT_EQ(progress.total_steps(), 1200);
}

TEST(OutputMetricsTest, ReadsFlax) {
  TrainingProgress progress = Read(kFlax);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{100, 2.345}, {200, 1.345}}));
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{100, 2.2}}));
  progress = Read(kFlaxMnist);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{1, 0.2325}, {2, 0.06}}));
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{1, 0.0533}, {2, 0.0433}}));
}

TEST(OutputMetricsTest, ReadsColouredWords) {
  const TrainingProgress progress =
      Read("\x1b[32mstep\x1b[0m \x1b[1m7\x1b[0m: \x1b[33mloss\x1b[0m=\x1b[31m0.25\x1b[0m\n");
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{7, 0.25}}));
}

TEST(OutputMetricsTest, StepsThatBeginAgainDoNotEraseTheCurve) {
  std::string output;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int step = 0; step < 500; step += 100) {
      output += "step " + std::to_string(step) + " loss " + std::to_string(3 - epoch) + "\n";
    }
  }
  const TrainingProgress progress = Read(output);
  ASSERT_EQ(progress.losses().size(), 15u);
  EXPECT_EQ(progress.losses()[5].x, 500);
  EXPECT_EQ(progress.step(), 1400);
}

// Returns tqdm's bar at each `every`-th step of `total`, with a loss where `has_loss`.
std::string BarsOf(int total, int every, bool has_loss) {
  std::string bars;
  for (int step = 0; step <= total; step += every) {
    const std::string loss = has_loss ? ", loss=" + std::to_string(step + 1) : "";
    bars += "\r " + std::to_string(100 * step / total) + "%|##   | " + std::to_string(step) + "/" +
            std::to_string(total) + " [00:01<00:02, 9.5it/s" + loss + "]";
  }
  return bars;
}

TEST(OutputMetricsTest, OneLineWithAStepDoesNotStopTheBar) {
  TrainingProgress progress = Read("step 0: initial loss 10.82\n" + BarsOf(100, 10, true) + "\n");
  EXPECT_EQ(progress.step(), 100);
  EXPECT_EQ(progress.total_steps(), 100);
  EXPECT_EQ(progress.losses().size(), 11u);
  progress = Read("Resumed from step 500 with loss 2.31\n" + BarsOf(30, 10, false) +
                  "\n{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': 1.0}\n");
  EXPECT_EQ(progress.step(), 30);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{30, 1.5}}));
  // The same when the bar was drawn before the line.
  progress = Read(BarsOf(30, 10, true).substr(0, 100) + "\nstep 5: initial loss 10.82\n" +
                  BarsOf(30, 10, true));
  EXPECT_EQ(progress.step(), 30);
  EXPECT_EQ(progress.losses().size(), 4u);
}

TEST(OutputMetricsTest, AShorterBarBetweenTrainingBarsIsAnEvaluation) {
  std::string output;
  for (int epoch = 0; epoch < 3; ++epoch) {
    output += BarsOf(100, 1, true) + "\n" + BarsOf(20, 1, true) + "\n";
  }
  const TrainingProgress progress = Read(output);
  EXPECT_EQ(progress.step(), 300);
  EXPECT_EQ(progress.losses().size(), 301u);
  EXPECT_EQ(progress.loss(), 101);
  // Bars repeat their numbers: one that does not change tells nothing new.
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{200, 21}}));
  const TrainingProgress pieces = ReadInChunks(output, 1000);
  EXPECT_EQ(PointsOf(pieces.losses()), PointsOf(progress.losses()));
  EXPECT_EQ(pieces.step(), 300);
  // A shorter bar that comes last is more training.
  EXPECT_EQ(Read(BarsOf(100, 1, true) + "\n" + BarsOf(20, 1, true) + "\n").loss(), 21);
}

TEST(OutputMetricsTest, LinesWithDifferentStepsAreBetterThanABar) {
  std::string output;
  for (int step = 10; step <= 30; step += 10) {
    output += BarsOf(100, 10, step > 10) + "\nstep " + std::to_string(step) + " loss 2.5\n";
  }
  const TrainingProgress progress = Read(output + BarsOf(100, 10, true));
  EXPECT_EQ(progress.step(), 30);
  EXPECT_EQ(progress.losses().back().x, 30);
}

TEST(OutputMetricsTest, TheBestOfEarlierStepsChangesNothing) {
  std::string output;
  for (int step = 100; step <= 500; step += 100) {
    output += "step " + std::to_string(step) + "/500: train loss 2.5, val loss 2.6\n";
  }
  const TrainingProgress progress =
      Read(output + "Best val loss: 2.6 at step 200\nBest model: step 100, loss 2.5\n");
  EXPECT_EQ(progress.step(), 500);
  EXPECT_EQ(progress.losses().size(), 5u);
  EXPECT_EQ(progress.eval_losses().size(), 5u);
}

TEST(OutputMetricsTest, AnEvaluationCountsItsOwnSteps) {
  TrainingProgress progress = Read(
      "val step 2/2 loss 9.5\n"
      "step 150/300 loss 2.5\nval step 1/50 loss 2.8\nval step 50/50 loss 2.75\n"
      "step 300/300 loss 2.4\n[val] iter=1/50 loss=2.8\n[val] iter=50/50 loss=2.7\n");
  EXPECT_EQ(progress.step(), 300);
  EXPECT_EQ(progress.total_steps(), 300);
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{150, 2.75}, {300, 2.7}}));
  progress = Read("step 300: train loss 2.1, val loss 2.3\n");
  EXPECT_EQ(progress.step(), 300);
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{300, 2.3}}));
  progress = Read("val step 300 loss 2.3\nval step 600 loss 2.2\n");
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{300, 2.3}, {600, 2.2}}));
}

TEST(OutputMetricsTest, ReadsKerasLinesWithoutABar) {
  const TrainingProgress progress = Read(
      "Epoch 1/3\n1875/1875 - 2s - 1ms/step - accuracy: 0.9 - loss: 0.69 - val_loss: 0.5\n"
      "Epoch 2/3\n1875/1875 - 2s - loss: 0.59 - accuracy: 0.9 - 2s/epoch - 1ms/step\n"
      "313/313 - 0s - 1ms/step - accuracy: 0.97 - loss: 0.08\n");
  EXPECT_EQ(progress.step(), 3750);
  EXPECT_EQ(progress.total_steps(), 5625);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{1875, 0.69}, {3750, 0.59}}));
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{1875, 0.5}}));
}

TEST(OutputMetricsTest, ReadsScaledBars) {
  TrainingProgress progress = Read(
      "\r  0%|          | 5.00/10.0k [00:00<00:08, 900it/s, loss=3]"
      "\r 13%|█▎        | 1.28k/10.0k [00:01<00:08, 1.10kit/s, loss=2.5]");
  EXPECT_EQ(progress.step(), 1280);
  EXPECT_EQ(progress.total_steps(), 10000);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{5, 3}, {1280, 2.5}}));
  progress = Read("\r1.28Mit [00:01, 1.10kit/s, loss=2.5]\n");
  EXPECT_EQ(progress.step(), 1280000);
}

TEST(OutputMetricsTest, ReadsCountsBehindALoss) {
  std::string output;
  for (int epoch = 1; epoch <= 2; ++epoch) {
    output += "Epoch " + std::to_string(epoch) + "\n-------------------------------\n";
    output += "loss: 2.5  [   64/60000]\nloss: 2.25  [ 6464/60000]\nloss: 2.0  [57664/60000]\n";
    output += "Test Error: \n Accuracy: 44.7%, Avg loss: 1.875 \n\n";
  }
  const TrainingProgress progress = Read(output);
  EXPECT_EQ(progress.step(), 117664);
  EXPECT_EQ(progress.losses().size(), 6u);
  EXPECT_EQ(progress.loss(), 2.0);
  EXPECT_EQ(PointsOf(progress.eval_losses()), (Points{{57664, 1.875}, {117664, 1.875}}));
}

TEST(OutputMetricsTest, ANewAttemptReplacesTheStepsThatItRepeats) {
  OutputMetrics metrics;
  TrainingProgress progress;
  const auto add = [&progress](const MetricSample& sample) { progress.Add(sample); };
  metrics.BeginAttempt(1, add);
  metrics.Read("step 100 loss 3\nstep 200 loss 2\nstep 300 loss 1\nstep 4", add);
  metrics.BeginAttempt(2, add);
  metrics.Read("step 100 loss 2.5\n", add);
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{100, 2.5}}));
}

TEST(OutputMetricsTest, AnyPiecesGiveTheSameNumbers) {
  for (const absl::string_view output :
       {kTrainer, kNestedBars, kGluedToBar, kLightning, kKeras, kKerasTwo, kFastai, kYolo, kNanoGpt,
        kTorchtune, kAxolotl, kMegatron, kLlamaFactory, kTimm, kFlax, kOneLineAndBars}) {
    const TrainingProgress whole = Read(output);
    for (const size_t size : {size_t{1}, size_t{17}, size_t{100}}) {
      const TrainingProgress pieces = ReadInChunks(output, size);
      EXPECT_EQ(PointsOf(pieces.losses()), PointsOf(whole.losses())) << output.substr(0, 60);
      EXPECT_EQ(PointsOf(pieces.eval_losses()), PointsOf(whole.eval_losses()));
      EXPECT_EQ(pieces.step(), whole.step());
      EXPECT_EQ(pieces.total_steps(), whole.total_steps());
    }
  }
}

TEST(OutputMetricsTest, OfSeveralProcessesOnlyRankZeroCounts) {
  const std::string output =
      "step 1 loss 4\n1| step 1 loss 9\ngpuctl| step 1 loss 8\n0| step 2 loss 3\n2>+ step 7 loss "
      "7\n"
      "step 3 loss 2\n";
  for (const bool ranks : {true, false}) {
    TrainingProgress progress;
    OutputMetrics metrics;
    const auto take = [&progress](const MetricSample& sample) { progress.Add(sample); };
    metrics.BeginAttempt(1, take, ranks);
    metrics.Read(output, take);
    metrics.Look(take);
    EXPECT_EQ(PointsOf(progress.losses()) == (Points{{1, 4}, {2, 3}, {3, 2}}), ranks);
  }
}

TEST(OutputMetricsTest, AVeryLongLineIsSkipped) {
  const TrainingProgress progress =
      Read("step 1 loss 3\nloss=2 " + std::string(200'000, 'x') + " loss=9\nstep 2 loss 1\n");
  EXPECT_EQ(PointsOf(progress.losses()), (Points{{1, 3}, {2, 1}}));
}

TEST(SavedNumbersTest, DamagedBytesAreNotLoaded) {
  std::string bytes = FormatSavedNumbers({});
  EXPECT_TRUE(ParseSavedNumbers(bytes).has_value());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  EXPECT_FALSE(ParseSavedNumbers(bytes).has_value());
  EXPECT_FALSE(ParseSavedNumbers("").has_value());
}

}  // namespace
}  // namespace gpuctl
