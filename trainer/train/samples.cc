#include "trainer/train/samples.h"

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/data/corpus.h"
#include "trainer/data/training_data.h"
#include "trainer/train/generate.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kShownBytes = 40;

}  // namespace

Sampler::Sampler(const Config& config) : sample_(config.sample) {
  if (sample_.tokens == 0) return;
  const auto check = [&config](const std::string& text, size_t tokens) {
    const int64_t context = config.model.context;
    if (context == 0 || static_cast<int64_t>(tokens) <= context) return;
    throw ConfigError(Format("check sample: the prompt \"%s\" has %zu tokens, and model.context "
                             "is %lld",
                             Printable(text.substr(0, kShownBytes)).c_str(), tokens,
                             static_cast<long long>(context)),
                      "shorten it, or raise model.context");
  };
  if (!UsesPreparedData(config.data)) {
    for (const std::string& text : sample_.AllPrompts()) check(text, Encode(text).size());
    return;
  }
  encoded_ = FindPrompts(sample_, config.data.paths.front());
  for (const EncodedPrompt& prompt : encoded_->prompts) check(prompt.text, prompt.ids.size());
}

void Sampler::Run(const GptShape& shape, const GptWeights& weights,
                  const std::function<bool()>& stop,
                  const std::function<void(const SampleText&)>& take) const {
  if (sample_.tokens == 0) return;
  if (!encoded_) {
    for (const std::string& prompt : sample_.AllPrompts()) {
      const std::string text = GenerateText(
          shape, weights, sample_, prompt, [](char) {}, stop);
      if (stop()) return;
      take({prompt, text, false});
    }
    return;
  }
  GenerateRequest request;
  request.tokens = sample_.tokens;
  request.stop_tokens = encoded_->stop_ids;
  request.sampling.temperature = sample_.temperature;
  request.sampling.seed = sample_.seed;
  // A model may have more rows than its tokenizer has ids.
  request.sampling.choices = static_cast<int64_t>(encoded_->pieces.size());
  for (const EncodedPrompt& prompt : encoded_->prompts) {
    request.prompt = prompt.ids;
    const std::vector<int64_t> ids = GenerateTokens(
        shape, weights, request, [](int64_t) {}, stop);
    if (stop()) return;
    take({prompt.text, encoded_->TextOf(ids), encoded_->chat});
  }
}

}  // namespace gpuctl::trainer
