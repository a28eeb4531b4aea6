#include <algorithm>
#include <cmath>
#include <cstdio>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/cli/args.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/loaded_model.h"
#include "trainer/data/training_data.h"
#include "trainer/linear/matmul.h"
#include "trainer/step/team.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/run_plan.h"
#include "trainer/train/signals.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kWindowsAtOnce = 4;
constexpr int64_t kAllWindows = 1'000'000'000;
constexpr int64_t kContext = 1024;

Config ConfigOf(const Args& args, const ModelFolder& folder) {
  Config config;
  config.model = folder.model;
  config.data.paths = args.All("data");
  config.train.eval_windows = args.Integer("windows", kAllWindows, 1, kAllWindows);
  const int64_t longest = folder.model.context;
  config.model.context =
      args.Integer("context", std::min(kContext, longest), 2, static_cast<double>(longest));
  return config;
}

void Report(const HeldOutLoss& loss, const std::string& unit, bool json) {
  if (!std::isfinite(loss.mean)) throw DataError("eval: the loss is not finite");
  if (json) {
    const nlohmann::ordered_json line = {{"type", "eval"},
                                         {"loss", loss.mean},
                                         {"perplexity", std::exp(loss.mean)},
                                         {"tokens", loss.tokens}};
    std::printf("%s\n", line.dump().c_str());
    return;
  }
  std::printf("held-out loss %.4f nats a %s, perplexity %.2f, over %lld scored %ss\n", loss.mean,
              unit.c_str(), std::exp(loss.mean), static_cast<long long>(loss.tokens), unit.c_str());
}

}  // namespace

int RunEval(const std::vector<std::string>& words) {
  const Args args(words,
                  {"checkpoint", "model", "adapter", "data", "context", "windows", "device", "as"},
                  {"data"}, 0);
  const std::string as = args.Get("as", "text");
  if (as != "text" && as != "json") throw ConfigError("eval: --as is text or json");
  WatchSignals();
  ChooseMatMul("auto");
  args.Require("data");
  for (const std::string& path : args.All("data")) {
    if (!Exists(path)) throw DataError("eval: there is no " + path);
  }
  const ModelPaths paths = PathsOf(args, "eval");
  const ModelFolder folder = ReadModelFolder(paths.model);
  const Config config = ConfigOf(args, folder);
  const std::string tokenizer = TokenizerDigest(ReadKeptFiles(paths.model));
  if (!tokenizer.empty() && !UsesPreparedData(config.data)) {
    throw ConfigError("eval: " + paths.model + " has a tokenizer, and " +
                          config.data.paths.front() + " is not a folder that prepare made",
                      "gpuctl-trainer prepare makes one");
  }
  const auto data = OpenTrainingData(config, tokenizer);
  if (data->pairs()) {
    throw ConfigError(
        "eval: the data has pairs of answers, whose loss is that of a run: it depends on the model "
        "that the run began with",
        "the run's metrics have it; or prepare the chosen answers as \"completion\"");
  }
  const LoadedModel loaded =
      LoadModel(paths, folder, config.model.context, args.Get("device", "auto"));
  Team team(loaded.placement.workers, loaded.placement.threads);
  const HeldOutLoss loss = MeanHeldOutLoss(
      *data, config.model.context,
      [&](const Batch& batch) {
        return SummedLossOfBatch(
            team, loaded.shape, [&](int) -> const GptWeights& { return loaded.weights; }, batch,
            kWindowsAtOnce);
      },
      [] { return StopSignal() != 0; });
  if (!loss.finished) return 128 + StopSignal();
  Report(loss, data->unit(), as == "json");
  return 0;
}

}  // namespace gpuctl::trainer
