#include "trainer/cli/commands.h"

#include <cstdio>
#include <cstdlib>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/cli/args.h"
#include "trainer/config/config.h"
#include "trainer/model/matmul.h"
#include "trainer/model/parameters.h"
#include "trainer/train/generate.h"
#include "trainer/train/signals.h"
#include "trainer/train/trainer.h"

namespace gpuctl::trainer {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Prints the shape of every parameter of `weights`, for `inspect`.
void PrintTensors(const std::map<std::string, at::Tensor>& tensors) {
  int64_t total = 0;
  for (const auto& [name, tensor] : tensors) {
    std::string shape;
    for (const int64_t extent : tensor.sizes()) {
      shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
    }
    std::printf("  %-56s %-9s [%s]\n", name.c_str(), c10::toString(tensor.scalar_type()),
                shape.c_str());
    total += tensor.numel();
  }
  std::printf("%zu tensors, %lld elements\n", tensors.size(), static_cast<long long>(total));
}

}  // namespace

int RunTrain(const std::vector<std::string>& words) {
  const Args args(words, {"config", "set", "data", "checkpoint-dir", "resume"}, {"set", "data"}, 0);
  RunOptions options;
  options.config = LoadConfig(args.Require("config"), args.All("set"));
  if (args.Has("data")) options.config.data.paths = args.All("data");
  if (options.config.checkpoint.dir.empty()) {
    options.config.checkpoint.dir = Environment("GPUCTL_CHECKPOINT_DIR");
  }
  options.config.checkpoint.dir = args.Get("checkpoint-dir", options.config.checkpoint.dir);
  options.resume = args.Get("resume", Environment("GPUCTL_RESUME_FROM"));
  options.metrics_path = Environment("GPUCTL_METRICS");
  options.stop_signal = StopSignal;
  WatchSignals();
  ChooseMatMul(options.config.train.matmul);
  const int signal = Trainer(std::move(options)).Train();
  return signal == 0 ? 0 : 128 + signal;
}

int RunGenerate(const std::vector<std::string>& words) {
  const Args args(words, {"checkpoint", "prompt", "tokens", "temperature", "seed", "device"}, {},
                  0);
  WatchSignals();
  const LoadedCheckpoint checkpoint = LoadModelOnly(args.Require("checkpoint"));
  Config config;
  config.model = ModelFromHuggingFace(checkpoint.model_config, checkpoint.path + "/config.json");
  config.sample.prompt = args.Require("prompt");
  config.sample.tokens = static_cast<int64_t>(args.Number("tokens", 200, 0, 1e6));
  config.sample.temperature = args.Number("temperature", 0.8, 0, 100);
  config.sample.seed = static_cast<int64_t>(args.Number("seed", 1, 0, 9e15));
  config.train.device = args.Get("device", "cpu");
  config.train.threads = 1;
  Stepper stepper(config, ChoosePlacement(config.train), InitializeWeights(config.model, 0));
  stepper.Load(checkpoint.weights, {}, checkpoint.path);
  std::fputs(config.sample.prompt.c_str(), stdout);
  Generate(
      stepper, config.model, config.sample,
      [](char c) {
        std::fputc(c, stdout);
        std::fflush(stdout);
      },
      [] { return StopSignal() != 0; });
  std::fputc('\n', stdout);
  return StopSignal() == 0 ? 0 : 128 + StopSignal();
}

int RunInspect(const std::vector<std::string>& words) {
  const Args args(words, {}, {}, 1);
  if (args.positionals().empty()) throw ConfigError("inspect: name a checkpoint directory");
  const std::string& path = args.positionals().front();
  const std::vector<ManifestEntry> entries = VerifyCheckpoint(path);
  for (const ManifestEntry& entry : entries) {
    std::printf("%-24s %12llu bytes  sha256 %s\n", entry.path.c_str(),
                static_cast<unsigned long long>(entry.size), entry.sha256.c_str());
  }
  const LoadedCheckpoint checkpoint = LoadCheckpoint(path);
  std::printf("step %lld, every file matches the manifest\n",
              static_cast<long long>(checkpoint.step));
  PrintTensors(checkpoint.weights);
  return 0;
}

int RunCommand(const std::vector<std::string>& words) {
  const std::vector<std::string> known = {"train", "generate", "inspect", "bench", "help"};
  const std::string command = words.empty() ? "" : words.front();
  const std::vector<std::string> rest(words.begin() + (words.empty() ? 0 : 1), words.end());
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h" || word == "help") {
      std::fputs(HelpText().c_str(), stdout);
      return 0;
    }
  }
  if (command == "train") return RunTrain(rest);
  if (command == "generate") return RunGenerate(rest);
  if (command == "inspect") return RunInspect(rest);
  if (command == "bench") return RunBench(rest);
  throw ConfigError(command.empty() ? "read the command line: no command"
                                    : "read the command line: unknown command \"" + command + "\"" +
                                          DidYouMean(command, known),
                    "gpuctl-trainer --help");
}

std::string HelpText() {
  return R"(gpuctl-trainer: trains small language models from scratch with LibTorch.

  gpuctl-trainer train --config FILE [--data PATH]… [--set section.key=value]…
                       [--checkpoint-dir DIR] [--resume DIR|auto]
  gpuctl-trainer generate --checkpoint DIR --prompt TEXT [--tokens N] [--temperature T] [--seed S]
                       [--device cpu|cuda|mps|auto]
  gpuctl-trainer inspect DIR        verifies a checkpoint and lists its tensors
  gpuctl-trainer bench [--set section.key=value]… [--steps N] [--warmup N]
                       times optimizer steps on random tokens; prints one JSON line

train
  --config FILE          JSON; keys below. Unknown keys are refused.
  --data PATH            file or directory of text; may be repeated; replaces data.paths
  --set KEY=VALUE        overrides one key of the file; may be repeated
  --checkpoint-dir DIR   default: checkpoint.dir, then $GPUCTL_CHECKPOINT_DIR
  --resume DIR|auto      a checkpoint, or the newest whole one; default $GPUCTL_RESUME_FROM
  $GPUCTL_METRICS        a FIFO or file that gets one JSON object a line

  SIGTERM and SIGINT finish the micro-batch at hand, save a checkpoint, and leave with 143 or 130.

exit codes
  0 done   64 bad configuration   65 bad data   70 a bug   74 input or output failed
  75 try again (out of memory)   125 the loss or gradient is not finite: do not restart unchanged

configuration                  default
)" + DescribeConfig();
}

}  // namespace gpuctl::trainer
