#include "trainer/train/report.h"

#include <cstdio>

#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::ordered_json;

long long Long(int64_t value) { return static_cast<long long>(value); }

// Adds the means over pairs to a line, and returns words for them; of none, nothing.
std::string DescribePairs(const PairSums& sums, ordered_json* line) {
  if (sums.pairs == 0) return "";
  const auto count = static_cast<double>(sums.pairs);
  (*line)["pairs"] = sums.pairs;
  (*line)["accuracy"] = sums.right / count;
  (*line)["margin"] = sums.margin / count;
  return Format("  accuracy %.1f %%  margin %.4f", 100 * sums.right / count, sums.margin / count);
}

// Returns the text with U+FFFD in the place of what is no valid UTF-8: bytes that were generated,
// or a character whose end was not.
std::string ValidText(const std::string& text) {
  return ordered_json::parse(
             ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace))
      .get<std::string>();
}

}  // namespace

Reporter::Reporter(const std::string& metrics_path, bool quiet)
    : metrics_(metrics_path), quiet_(quiet) {
  const std::string why = metrics_.WhyNot();
  if (!why.empty()) Warn("warning: no metrics are written to " + metrics_path + ": " + why);
}

void Reporter::Step(const StepEvent& e) {
  ordered_json line = {{"type", "step"},
                       {"step", e.step},
                       {"total_steps", e.total_steps},
                       {"loss", e.loss},
                       {"lr", e.lr},
                       {"grad_norm", e.grad_norm},
                       {"tokens_per_s", e.tokens_per_s},
                       {"tokens", e.tokens},
                       {"memory_bytes", e.memory_bytes}};
  std::string mfu;
  if (e.mfu) {
    line["mfu"] = *e.mfu;
    mfu = Format("  mfu %.0f %%", *e.mfu * 100);
  }
  const std::string pairs = DescribePairs(e.pairs, &line);
  metrics_.Write(line);
  Say(Format("step %lld/%lld  loss %.4f%s  lr %.2e  grad norm %.3f  %.0f tokens/s%s", Long(e.step),
             Long(e.total_steps), e.loss, pairs.c_str(), e.lr, e.grad_norm, e.tokens_per_s,
             mfu.c_str()));
}

void Reporter::Eval(const EvalEvent& e) {
  ordered_json line = {{"type", "eval"}, {"step", e.step}, {"loss", e.loss}};
  std::string compared;
  if (e.bigram_entropy) {
    line["bigram_entropy"] = *e.bigram_entropy;
    compared = Format("  (bigram entropy %.4f, %s it)", *e.bigram_entropy,
                      e.loss < *e.bigram_entropy ? "below" : "not below");
  }
  compared += DescribePairs(e.pairs, &line);
  line["tokens"] = e.tokens;
  metrics_.Write(line);
  Say(Format("eval at step %lld  held-out loss %.4f%s", Long(e.step), e.loss, compared.c_str()));
}

void Reporter::Checkpoint(const CheckpointReport& r) {
  for (const std::string& problem : r.problems) Warn("warning: remove old checkpoint: " + problem);
  if (!r.failure.empty()) {
    metrics_.Write({{"type", "checkpoint_failed"}, {"step", r.step}, {"message", r.failure}});
    Warn("warning: " + r.failure);
    return;
  }
  metrics_.Write({{"type", "checkpoint"},
                  {"step", r.step},
                  {"path", r.path},
                  {"seconds", r.seconds},
                  {"stall_seconds", r.stall_seconds}});
  Say(Format("checkpoint %s  written in %.2f s, training waited %.3f s", r.path.c_str(), r.seconds,
             r.stall_seconds));
}

void Reporter::Sample(const SampleText& sample, int64_t step) {
  metrics_.Write(
      {{"type", "sample"}, {"step", step}, {"prompt", sample.prompt}, {"text", sample.text}});
  Say("sample  " + Printable(ValidText(sample.prompt + (sample.chat ? " → " : "") + sample.text)));
}

void Reporter::Done(const DoneEvent& e) {
  ordered_json line = {{"type", "done"},
                       {"outcome", e.outcome},
                       {"step", e.step},
                       {"loss", e.loss},
                       {"tokens", e.tokens},
                       {"seconds", e.seconds},
                       {"lost_lines", metrics_.lost()}};
  if (e.held_out_loss) {
    line["held_out_loss"] = *e.held_out_loss;
    if (e.bigram_entropy) line["bigram_entropy"] = *e.bigram_entropy;
  }
  if (!e.checkpoint.empty()) line["checkpoint"] = e.checkpoint;
  if (e.best_loss) line["best"] = {{"held_out_loss", *e.best_loss}, {"step", e.best_step}};
  metrics_.Write(line);
  std::string held_out;
  if (e.held_out_loss) {
    held_out = Format("  held-out loss %.4f", *e.held_out_loss);
    if (e.bigram_entropy) held_out += Format(", bigram entropy %.4f", *e.bigram_entropy);
  }
  if (e.best_loss && e.best_step != e.step) {
    held_out += Format("; the best was %.4f at step %lld", *e.best_loss, Long(e.best_step));
  }
  Say(Format("%s at step %lld  %.1f s%s", e.outcome.c_str(), Long(e.step), e.seconds,
             held_out.c_str()));
}

void Reporter::Say(const std::string& line) {
  if (quiet_) return;
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void Reporter::Warn(const std::string& line) {
  if (quiet_) return;
  std::fputs((line + "\n").c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace gpuctl::trainer
