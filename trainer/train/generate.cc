#include "trainer/train/generate.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "trainer/base/philox.h"
#include "trainer/data/corpus.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kBytes = 256;  // the beginning of a document is never generated

int64_t Likeliest(const float* logits) {
  return std::max_element(logits, logits + kBytes) - logits;
}

int64_t Draw(const float* logits, double temperature, double uniform) {
  const float largest = logits[Likeliest(logits)];
  std::vector<double> cumulative(kBytes);
  double total = 0;
  for (int64_t b = 0; b < kBytes; ++b) {
    total += std::exp(static_cast<double>(logits[b] - largest) / temperature);
    cumulative[static_cast<size_t>(b)] = total;
  }
  const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * total);
  return std::min<int64_t>(kBytes - 1, found - cumulative.begin());
}

at::Tensor LastWindow(const TokenStream& tokens, int64_t context) {
  const auto size = static_cast<int64_t>(tokens.size());
  const int64_t length = std::min(size, context);
  at::Tensor window_t = at::empty({length}, at::kLong);
  for (int64_t i = 0; i < length; ++i) {
    window_t.data_ptr<int64_t>()[i] = tokens[static_cast<size_t>(size - length + i)];
  }
  return window_t;
}

}  // namespace

std::string Generate(Stepper& stepper, const ModelConfig& model, const SampleConfig& sample,
                     const std::function<void(char)>& emit, const std::function<bool()>& stop) {
  TokenStream tokens = Encode(sample.prompt);
  std::string text;
  for (int64_t i = 0; i < sample.tokens && !stop(); ++i) {
    const at::Tensor logits_v = stepper.NextLogits(LastWindow(tokens, model.context));
    const float* logits = logits_v.data_ptr<float>();
    const double uniform = RandomUniform(static_cast<uint64_t>(sample.seed), RandomStream::kSample,
                                         0, static_cast<uint64_t>(i));
    const int64_t next =
        sample.temperature == 0 ? Likeliest(logits) : Draw(logits, sample.temperature, uniform);
    tokens.push_back(static_cast<uint16_t>(next));
    text += static_cast<char>(next);
    emit(text.back());
  }
  return text;
}

}  // namespace gpuctl::trainer
