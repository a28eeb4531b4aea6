// Reports the events of a run: each as a JSON line and as a line for people.

#ifndef TRAINER_TRAIN_REPORT_H_
#define TRAINER_TRAIN_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/checkpoint/checkpointer.h"
#include "trainer/step/pair_loss.h"
#include "trainer/train/metrics.h"
#include "trainer/train/samples.h"

namespace gpuctl::trainer {

struct StepEvent {
  int64_t step = 0;  // 1 after the first
  int64_t total_steps = 0;
  double loss = 0;  // nats per scored token, or per pair, mean over the step
  double lr = 0;
  double grad_norm = 0;  // before clipping
  double tokens_per_s = 0;
  int64_t tokens = 0;  // scored since the run began
  int64_t memory_bytes = 0;
  std::optional<double> mfu;  // 0 .. 1
  PairSums pairs;             // of pairs
};

struct EvalEvent {
  int64_t step = 0;
  double loss = 0;                       // nats per scored token, or per pair
  std::optional<double> bigram_entropy;  // nats per byte, over the same bytes
  int64_t tokens = 0;                    // scored
  PairSums pairs;                        // of pairs
};

struct DoneEvent {
  int64_t step = 0;
  std::string outcome;  // "finished", "early_stop" or "stopped"
  double loss = 0;      // of the last step; 0 if none ran
  std::optional<double> held_out_loss;
  std::optional<double> bigram_entropy;
  int64_t tokens = 0;
  double seconds = 0;
  std::string checkpoint;           // "" if none was written
  std::optional<double> best_loss;  // the lowest held-out loss
  int64_t best_step = 0;
};

// Not thread-safe. Standard output is flushed after each line.
class Reporter {
 public:
  // A quiet one reports nothing: of several processes rank 0 speaks for all.
  // Warns when nothing can be written to the path.
  explicit Reporter(const std::string& metrics_path, bool quiet = false);

  void Step(const StepEvent& event);
  void Eval(const EvalEvent& event);
  void Checkpoint(const CheckpointReport& report);
  void Sample(const SampleText& sample, int64_t step);
  void Done(const DoneEvent& event);
  void Say(const std::string& line);   // standard output only
  void Warn(const std::string& line);  // standard error only

 private:
  Metrics metrics_;
  const bool quiet_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_REPORT_H_
