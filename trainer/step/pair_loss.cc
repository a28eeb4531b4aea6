#include "trainer/step/pair_loss.h"

#include <algorithm>
#include <cmath>

namespace gpuctl::trainer {
namespace {

// log sigmoid(x), without an overflow.
double LogSigmoid(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }

}  // namespace

void PairSums::Add(const PairSums& other) {
  loss += other.loss;
  right += other.right;
  margin += other.margin;
  pairs += other.pairs;
}

std::vector<double> AddPairs(const DpoConfig& config, const std::vector<float>& pi,
                             const float* ref, PairSums* sums) {
  const double share = config.label_smoothing;
  const auto gain = [&](size_t i) { return static_cast<double>(pi[i]) - ref[i]; };
  std::vector<double> factors(pi.size());
  for (size_t i = 0; i + 1 < pi.size(); i += 2) {
    const double margin = config.beta * (gain(i) - gain(i + 1));
    const double right = LogSigmoid(margin), wrong = LogSigmoid(-margin);
    // The derivative of log sigmoid(x) is sigmoid(-x).
    const double slope = config.beta * ((1 - share) * std::exp(wrong) - share * std::exp(right));
    factors[i] = slope;
    factors[i + 1] = -slope;
    sums->Add({-(1 - share) * right - share * wrong,
               margin > 0    ? 1.0
               : margin == 0 ? 0.5
                             : 0.0,
               margin, 1});
  }
  return factors;
}

}  // namespace gpuctl::trainer
