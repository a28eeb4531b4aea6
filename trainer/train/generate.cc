#include "trainer/train/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer/base/error.h"
#include "trainer/base/philox.h"
#include "trainer/data/corpus.h"
#include "trainer/linear/frozen_matrix.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kBytes = 256;  // the beginning of a document is never generated

// Returns the tokens that may be drawn, in their order; with limits, the likeliest first.
std::vector<int64_t> Candidates(const float* logits, int64_t count, const Sampling& sampling) {
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  if (sampling.top_k == 0 && sampling.top_p >= 1) return tokens;
  const int64_t kept = sampling.top_k > 0 ? std::min(sampling.top_k, count) : count;
  std::partial_sort(tokens.begin(), tokens.begin() + kept, tokens.end(), [&](int64_t a, int64_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
  tokens.resize(static_cast<size_t>(kept));
  return tokens;
}

int64_t Draw(const float* logits, int64_t count, const Sampling& sampling, double uniform) {
  const float largest = *std::max_element(logits, logits + count);
  const std::vector<int64_t> tokens = Candidates(logits, count, sampling);
  std::vector<double> cumulative;
  double total = 0;
  for (const int64_t token : tokens) {
    total += std::exp(static_cast<double>(logits[token] - largest) / sampling.temperature);
    cumulative.push_back(total);
  }
  if (sampling.top_p < 1) {
    const auto last =
        std::lower_bound(cumulative.begin(), cumulative.end(), sampling.top_p * total);
    total = last == cumulative.end() ? total : *last;
  }
  const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * total);
  const auto index =
      std::min<size_t>(tokens.size() - 1, static_cast<size_t>(found - cumulative.begin()));
  return tokens[index];
}

void CheckPrompt(const std::vector<int64_t>& prompt, int64_t vocabulary) {
  if (prompt.empty()) throw ConfigError("generate: the prompt has no token");
  for (const int64_t token : prompt) {
    if (token < 0 || token >= vocabulary) {
      throw ConfigError("generate: token " + std::to_string(token) + " is not one of the model's " +
                        std::to_string(vocabulary));
    }
  }
}

}  // namespace

at::Tensor NextToken::Logits(const std::vector<int64_t>& tokens) {
  const at::NoGradGuard no_grad;
  const auto size = static_cast<int64_t>(tokens.size());
  const bool fits = size <= shape_.config.context;
  const int64_t first = fits ? cache_.tokens : size - shape_.config.context;
  const at::Tensor tokens_1t = at::empty({1, size - first}, at::kLong);
  std::copy(tokens.begin() + first, tokens.end(), tokens_1t.data_ptr<int64_t>());
  const at::Tensor hidden_td = Hidden(
      shape_, weights_, tokens_1t.to(weights_.embedding_vd.device()), {}, fits ? &cache_ : nullptr);
  const at::Tensor last_1d = hidden_td.narrow(0, hidden_td.size(0) - 1, 1);
  const FrozenMatrix head(weights_.head_vd, last_1d.size(1));
  const at::Tensor logits_1v = at::empty({1, head.rows()}, last_1d.options());
  head.TimesTransposed(last_1d, 0, head.rows(), /*add=*/false, logits_1v);
  const at::Tensor logits_v = logits_1v.to(at::kCPU, at::kFloat).view({-1});
  const float* logits = logits_v.data_ptr<float>();
  if (!std::all_of(logits, logits + logits_v.numel(), [](float x) { return std::isfinite(x); })) {
    throw DataError("generate: the model's output is not finite");
  }
  return logits_v;
}

int64_t ChooseToken(const at::Tensor& logits_v, const Sampling& sampling, uint64_t number) {
  const float* logits = logits_v.data_ptr<float>();
  const int64_t count =
      sampling.choices > 0 ? std::min(sampling.choices, logits_v.numel()) : logits_v.numel();
  if (sampling.temperature == 0) return std::max_element(logits, logits + count) - logits;
  const double uniform =
      RandomUniform(static_cast<uint64_t>(sampling.seed), RandomStream::kSample, 0, number);
  return Draw(logits, count, sampling, uniform);
}

std::vector<int64_t> GenerateTokens(const GptShape& shape, const GptWeights& weights,
                                    const GenerateRequest& request,
                                    const std::function<void(int64_t)>& emit,
                                    const std::function<bool()>& stop) {
  CheckPrompt(request.prompt, shape.config.vocab_size);
  NextToken next(shape, weights);
  std::vector<int64_t> tokens = request.prompt, generated;
  for (int64_t i = 0; i < request.tokens && !stop(); ++i) {
    const int64_t token =
        ChooseToken(next.Logits(tokens), request.sampling, static_cast<uint64_t>(i));
    const std::vector<int64_t>& stops = request.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
    tokens.push_back(token);
    generated.push_back(token);
    emit(token);
  }
  return generated;
}

std::string GenerateText(const GptShape& shape, const GptWeights& weights,
                         const SampleConfig& sample, const std::string& text_before,
                         const std::function<void(char)>& emit, const std::function<bool()>& stop) {
  GenerateRequest request;
  const TokenStream prompt = Encode(text_before);
  request.prompt.assign(prompt.begin(), prompt.end());
  request.tokens = sample.tokens;
  request.sampling.temperature = sample.temperature;
  request.sampling.seed = sample.seed;
  request.sampling.choices = kBytes;
  std::string text;
  GenerateTokens(
      shape, weights, request,
      [&](int64_t token) {
        text += static_cast<char>(token);
        emit(text.back());
      },
      stop);
  return text;
}

}  // namespace gpuctl::trainer
