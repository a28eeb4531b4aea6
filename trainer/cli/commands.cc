#include "trainer/cli/commands.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_folder.h"
#include "trainer/cli/args.h"
#include "trainer/cli/text_codec.h"
#include "trainer/config/config.h"
#include "trainer/config/families.h"
#include "trainer/data/corpus.h"
#include "trainer/linear/matmul.h"
#include "trainer/lora/adapter_files.h"
#include "trainer/lora/adapters.h"
#include "trainer/lora/base_digest.h"
#include "trainer/lora/layout.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pretrained.h"
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

// Reads "1,2,3".
std::vector<int64_t> ReadIds(const std::string& flag, const std::string& text) {
  std::vector<int64_t> ids;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, comma - at);
    if (word.empty() || word.size() > 12 ||
        word.find_first_not_of("0123456789") != std::string::npos) {
      throw ConfigError("read the command line: --" + flag + " " + text +
                        ": must be whole numbers with commas between them");
    }
    ids.push_back(std::stoll(word));
    at = comma + 1;
  }
  return ids;
}

// Whether the texts of the model are its tokens. Models that were trained here on bytes have no
// tokenizer.
bool TakesBytes(const ModelFolder& folder) {
  return !Exists(folder.path + "/tokenizer.json") && !Exists(folder.path + "/tokenizer.model");
}

// What is to be generated, and how it is shown.
struct Generation {
  GenerateRequest request;
  bool shows_prompt = true;
  std::unique_ptr<TextCodec> codec;  // null: bytes or tokens are shown

  std::string Shown(int64_t token, bool bytes) const {
    if (codec != nullptr) return codec->Push(token);
    return bytes ? std::string(1, static_cast<char>(token)) : std::to_string(token) + " ";
  }
};

Generation GenerationOf(const Args& args, const ModelFolder& folder) {
  Generation made;
  GenerateRequest& request = made.request;
  request.tokens = static_cast<int64_t>(args.Number("tokens", 200, 0, 1e6));
  request.sampling.temperature = args.Number("temperature", 0.8, 0, 100);
  request.sampling.top_k = static_cast<int64_t>(args.Number("top-k", 0, 0, 1e9));
  request.sampling.top_p = args.Number("top-p", 1, 0, 1);
  request.sampling.seed = static_cast<int64_t>(args.Number("seed", 1, 0, 9e15));
  if (args.Has("prompt") && TakesBytes(folder)) {
    const TokenStream prompt = Encode(args.Get("prompt"));
    request.prompt.assign(prompt.begin(), prompt.end());
    request.sampling.choices = kBos;  // bytes
    return made;
  }
  request.stop_tokens = args.Has("stop-ids")
                            ? ReadIds("stop-ids", args.Get("stop-ids"))
                            : StopTokens(folder.config, folder.generation_config, folder.path);
  if (args.Has("prompt-ids")) {
    request.prompt = ReadIds("prompt-ids", args.Get("prompt-ids"));
    return made;
  }
  made.codec = OpenTextCodec(folder.path);
  made.shows_prompt = args.Has("prompt");
  request.prompt = made.shows_prompt ? made.codec->Encode(args.Get("prompt"))
                                     : made.codec->EncodeChat(args.Get("system"), args.Get("chat"));
  return made;
}

// Where the weights of a generation are.
struct ModelPaths {
  std::string model;
  std::string adapter;  // merged into the model's, or ""
};

// Verifies a checkpoint, and that the model of its adapters is the one that is given.
ModelPaths PathsOf(const Args& args) {
  const std::string checkpoint = args.Get("checkpoint");
  const bool adapted = args.Has("checkpoint") && HoldsAdapter(checkpoint);
  if (args.Has("checkpoint") && args.Has("adapter")) {
    throw ConfigError("generate: --adapter belongs to --model, not to --checkpoint");
  }
  if (args.Has("adapter") && args.Get("adapter").empty()) {
    throw ConfigError("generate: --adapter names no folder");
  }
  if (adapted && !args.Has("model")) {
    throw ConfigError("generate: " + checkpoint + " holds adapters and not their model",
                      "give the model's folder as --model, too");
  }
  if (args.Has("checkpoint") == args.Has("model") && !adapted) {
    throw ConfigError("generate: give one of --checkpoint and --model");
  }
  if (args.Has("checkpoint")) VerifyCheckpoint(checkpoint);
  if (!adapted) return {args.Get("model", checkpoint), args.Get("adapter")};
  CheckBase(checkpoint, args.Get("model"), BaseDigest(args.Get("model")));
  return {args.Get("model"), checkpoint};
}

// Returns the weights of the model with the adapter's merged into them.
std::vector<at::Tensor> ReadMerged(const ModelPaths& paths, const ModelConfig& model,
                                   const at::TensorOptions& options) {
  if (paths.adapter.empty()) return ReadPretrained(paths.model, model, options);
  Config config;
  config.model = model;
  config.lora = ReadAdapterConfig(paths.adapter, model);
  const AdapterLayout layout = MakeAdapterLayout(config);
  std::vector<at::Tensor> flat = ReadPretrained(paths.model, model, options);
  AppendInitialAdapters(layout, 1, &flat);
  ReadAdapterInto(paths.adapter, layout, flat);
  MergeAdapters(layout, &flat);
  return flat;
}

}  // namespace

int RunTrain(const std::vector<std::string>& words) {
  const Args args(words, {"config", "set", "data", "init", "checkpoint-dir", "resume"},
                  {"set", "data"}, 0);
  RunOptions options;
  std::vector<std::string> overrides = args.All("set");
  if (args.Has("init")) {
    overrides.push_back("model.init=" + nlohmann::json(args.Get("init")).dump());
  }
  options.config = LoadConfig(args.Require("config"), overrides);
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
  const Args args(words,
                  {"checkpoint", "model", "adapter", "prompt", "chat", "system", "prompt-ids",
                   "tokens", "temperature", "top-k", "top-p", "stop-ids", "seed", "device"},
                  {}, 0);
  const int prompts =
      (args.Has("prompt") ? 1 : 0) + (args.Has("chat") ? 1 : 0) + (args.Has("prompt-ids") ? 1 : 0);
  if (prompts != 1) {
    throw ConfigError("generate: give one of --prompt, --chat and --prompt-ids");
  }
  if (args.Has("system") && !args.Has("chat")) {
    throw ConfigError("generate: --system belongs to --chat");
  }
  WatchSignals();
  const ModelPaths paths = PathsOf(args);
  const ModelFolder folder = ReadModelFolder(paths.model);
  const Generation generation = GenerationOf(args, folder);
  const GenerateRequest& request = generation.request;
  ModelConfig model = folder.model;
  model.context =
      std::min(model.context, static_cast<int64_t>(request.prompt.size()) + request.tokens);
  TrainConfig where;
  where.device = args.Get("device", "cpu");
  const Placement placement = ChoosePlacement(where);
  at::set_num_threads(1);
  const auto options = at::TensorOptions(placement.device);
  const GptWeights weights =
      ArrangeWeights(ReadMerged(paths, model, options.dtype(placement.dtype)), model);
  const GptShape shape = MakeGptShape(model, options.dtype(at::kFloat));
  const bool bytes = request.sampling.choices == kBos;
  const auto print = [&](int64_t token) {
    const std::string text = generation.Shown(token, bytes);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  if (generation.shows_prompt) {
    for (size_t i = bytes ? 1 : 0; i < request.prompt.size(); ++i) print(request.prompt[i]);
  }
  GenerateTokens(shape, weights, request, print, [] { return StopSignal() != 0; });
  if (generation.codec != nullptr) std::fputs(generation.codec->Finish().c_str(), stdout);
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

void ThrowIfStopped() {
  if (const int signal = StopSignal(); signal != 0) throw Stopped{signal};
}

int RunCommand(const std::vector<std::string>& words) {
  const std::vector<std::string> known = {"train", "prepare", "generate", "export",
                                          "merge", "inspect", "bench",    "help"};
  const std::string command = words.empty() ? "" : words.front();
  const std::vector<std::string> rest(words.begin() + (words.empty() ? 0 : 1), words.end());
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h" || word == "help") {
      std::fputs(HelpText().c_str(), stdout);
      return 0;
    }
  }
  if (command == "train") return RunTrain(rest);
  if (command == "prepare") return RunPrepare(rest);
  if (command == "generate") return RunGenerate(rest);
  if (command == "export" || command == "merge") {
    WatchSignals();
    try {
      return command == "export" ? RunExport(rest) : RunMerge(rest);
    } catch (const Stopped& stopped) {
      std::fputs("gpuctl-trainer: stopped; nothing was written\n", stderr);
      return 128 + stopped.signal;
    }
  }
  if (command == "inspect") return RunInspect(rest);
  if (command == "bench") return RunBench(rest);
  throw ConfigError(command.empty() ? "read the command line: no command"
                                    : "read the command line: unknown command \"" + command + "\"" +
                                          DidYouMean(command, known),
                    "gpuctl-trainer --help");
}

std::string HelpText() {
  return R"(gpuctl-trainer: trains language models with LibTorch, from scratch or from a model folder.

  gpuctl-trainer train --config FILE [--data PATH]… [--set section.key=value]…
                       [--init DIR] [--checkpoint-dir DIR] [--resume DIR|auto]
  gpuctl-trainer prepare --model DIR --data FILE… --out DIR [--context N]
                       [--mask assistant|last|all] [--template FILE] [--held-out SHARE|FILE]
                       [--bad-rows refuse|skip] [--show N] [--threads N]
  gpuctl-trainer generate --checkpoint DIR|--model DIR [--adapter DIR]
                       --prompt TEXT|--chat MESSAGE [--system TEXT]|--prompt-ids 1,2,…
                       [--tokens N] [--temperature T] [--top-k K] [--top-p P] [--seed S]
                       [--stop-ids 1,2,…] [--device cpu|cuda|mps|auto]
  gpuctl-trainer export --model DIR --to gguf --out FILE [--type f32|f16|bf16|q8_0] [--pre NAME]
  gpuctl-trainer export --adapter DIR [--model DIR] --to gguf-lora|mlx --out FILE|DIR
  gpuctl-trainer merge --model DIR --adapter DIR --out DIR [--shard-gb GB]
  gpuctl-trainer inspect DIR        verifies a checkpoint and lists its tensors
  gpuctl-trainer bench [--set section.key=value]… [--steps N] [--warmup N]
                       times optimizer steps on random tokens; prints one JSON line

train
  --config FILE          JSON; keys below. Unknown keys are refused.
  --data PATH            file or directory of text; may be repeated; replaces data.paths
  --set KEY=VALUE        overrides one key of the file; may be repeated
  --init DIR             a model folder to start from; the same as --set model.init=DIR
  --checkpoint-dir DIR   default: checkpoint.dir, then $GPUCTL_CHECKPOINT_DIR
  --resume DIR|auto      a checkpoint, or the newest whole one; default $GPUCTL_RESUME_FROM
  $GPUCTL_METRICS        a FIFO or file that gets one JSON object a line

  SIGTERM and SIGINT finish the micro-batch at hand, save a checkpoint, and leave with 143 or 130.

prepare
  --model DIR            the model folder whose tokenizer and chat template are used
  --data FILE            rows as JSON lines ("messages"; "prompt" and "completion";
                         "conversations"; "text"), a *.txt that is one document, or a directory of
                         *.jsonl; may be several
  --out DIR              gets the tokens; a folder that prepare made is replaced when all is done
  --context N            tokens that a row may have; default: as many as the model takes
  --mask WHAT            what is learned of conversations: every turn of the assistant (default),
                         the last one, or all of the text
  --template FILE        a chat template instead of the model's
  --held-out SHARE|FILE  rows that are not trained on: a share of them (0.05), or those of a file
  --bad-rows skip        leaves out rows that cannot be used; else one of them ends the work
  --show N               shows N rows with what is learned of them; default 1

generate
  --checkpoint DIR       a checkpoint; it is verified first
  --model DIR            any other folder with config.json and model.safetensors, or shards; also
                         the model of a checkpoint that holds adapters
  --adapter DIR          a PEFT adapter for that model
  --prompt TEXT          continues the text, and prints both
  --chat MESSAGE         answers the message, by the model's chat template; prints the answer
  --system TEXT          what the model is told before the message
  --prompt-ids LIST      tokens; prints tokens
  --temperature T        0 takes the likeliest token; default 0.8
  --top-k K, --top-p P   draw only from the K likeliest; from the likeliest that have P together
  --stop-ids LIST        tokens that end the text; default eos_token_id of the model; "" is none

export
  --to gguf              the whole model as one file for llama.cpp, with tokenizer and chat template
  --type TYPE            of the matrices; default: as they are stored. Norms and biases are f32.
  --pre NAME             llama.cpp's way to split texts, where export does not find it
  --to gguf-lora         an adapter of PEFT's as a file for llama.cpp
  --to mlx               an adapter of PEFT's as a folder for mlx_lm
  --model DIR            the base model of an adapter; default: as adapter_config.json says

merge
  --adapter DIR          an adapter of PEFT's; its product is added to the weights in fp32
  --out DIR              a new model folder, in files of at most 4 GB (--shard-gb)

exit codes
  0 done   64 bad configuration   65 bad data   70 a bug   74 input or output failed
  75 try again (out of memory)   125 the loss or gradient is not finite: do not restart unchanged

configuration                  default
)" + DescribeConfig();
}

}  // namespace gpuctl::trainer
