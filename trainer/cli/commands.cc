#include "trainer/cli/commands.h"

#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/describe_folder.h"
#include "trainer/cli/args.h"
#include "trainer/cli/run_config.h"
#include "trainer/config/config.h"
#include "trainer/linear/matmul.h"
#include "trainer/ranks/group.h"
#include "trainer/train/signals.h"
#include "trainer/train/trainer.h"

namespace gpuctl::trainer {
namespace {

// One of several processes. What is about the whole run is rank 0's.
int TrainTogether(RunOptions options, const Ranks& ranks) {
  if (ranks.rank > 0) {
    options.config.checkpoint.dir.clear();
    options.resume.clear();
    options.metrics_path.clear();
  }
  std::unique_ptr<Group> group = JoinRun(ranks, &options.config);
  options.group = group.get();
  try {
    const int signal = Trainer(std::move(options)).Train();
    group->Leave();
    return signal == 0 ? 0 : 128 + signal;
  } catch (const c10::Error& error) {
    group->Fail(error.what_without_backtrace());
    (void)group.release();  // operations of it may wait for ever
    throw;
  } catch (const std::exception& error) {
    group->Fail(error.what());
    (void)group.release();
    throw;
  }
}

}  // namespace

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::unique_ptr<Group> JoinRun(const Ranks& ranks, Config* config) {
  TrainConfig& train = config->train;
  train.processes = ranks.size;
  train.rank = ranks.rank;
  train.local_processes = ranks.local_size;
  train.local_rank = ranks.local_rank;
  CheckProcesses(*config);
  return Group::Join(
      ranks, static_cast<double>(train.peer_timeout),
      [](const std::string& line) {
        std::fputs((line + "\n").c_str(), stdout);
        std::fflush(stdout);
      },
      [] { return StopSignal() != 0; });
}

int RunTrain(const std::vector<std::string>& words) {
  const Args args(words, {"config", "set", "data", "init", "checkpoint-dir", "resume"},
                  {"set", "data"}, 0);
  RunOptions options;
  options.config = ConfigOfRun(args);
  if (options.config.checkpoint.dir.empty()) {
    options.config.checkpoint.dir = Environment("GPUCTL_CHECKPOINT_DIR");
  }
  options.config.checkpoint.dir = args.Get("checkpoint-dir", options.config.checkpoint.dir);
  CheckUtf8("--checkpoint-dir", options.config.checkpoint.dir);
  options.resume = args.Get("resume", Environment("GPUCTL_RESUME_FROM"));
  options.metrics_path = Environment("GPUCTL_METRICS");
  options.stop_signal = StopSignal;
  WatchSignals();
  ChooseMatMul(options.config.train.matmul);
  const Ranks ranks = ReadRanks(Environment);
  if (ranks.size > 1) return TrainTogether(std::move(options), ranks);
  const int signal = Trainer(std::move(options)).Train();
  return signal == 0 ? 0 : 128 + signal;
}

int RunInspect(const std::vector<std::string>& words) {
  const Args args(words, {}, {}, 1);
  if (args.positionals().empty()) {
    throw ConfigError("inspect: name the folder of a checkpoint, a model or an adapter");
  }
  std::fputs(FolderText(DescribeFolder(args.positionals().front())).c_str(), stdout);
  return 0;
}

void ThrowIfStopped() {
  if (const int signal = StopSignal(); signal != 0) throw Stopped{signal};
}

int RunCommand(const std::vector<std::string>& words) {
  const std::vector<std::string> known = {"train",  "prepare", "preflight", "eval",  "generate",
                                          "export", "merge",   "inspect",   "bench", "help"};
  const std::string command = words.empty() ? "" : words.front();
  const std::vector<std::string> rest(words.begin() + (words.empty() ? 0 : 1), words.end());
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h" || word == "help") {
      const bool put = std::fputs(HelpText().c_str(), stdout) >= 0;
      if (std::fflush(stdout) == 0 && put) return 0;
      throw Error(ExitCode::kIo, "help: standard output did not take all of it");
    }
  }
  if (command == "train") return RunTrain(rest);
  if (command == "prepare") return RunPrepare(rest);
  if (command == "preflight") return RunPreflight(rest);
  if (command == "eval") return RunEval(rest);
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
                       [--bad-rows refuse|skip] [--prompt TEXT]… [--show N] [--threads N]
  gpuctl-trainer preflight --config FILE [--data PATH]… [--set section.key=value]… [--init DIR]
                       [--gpu NAME[,NAME…]] [--processes N] [--as text|json]
  gpuctl-trainer generate --checkpoint DIR|--model DIR [--adapter DIR]
                       --prompt TEXT|--chat MESSAGE [--system TEXT]|--prompt-ids 1,2,…
                       [--tokens N] [--temperature T] [--top-k K] [--top-p P] [--seed S]
                       [--stop-ids 1,2,…] [--device cpu|cuda|mps|auto]
  gpuctl-trainer eval  --checkpoint DIR|--model DIR [--adapter DIR] --data FOLDER…
                       [--context N] [--windows N] [--device D] [--as text|json]
  gpuctl-trainer export --model DIR --to gguf --out FILE [--type f32|f16|bf16|q8_0] [--pre NAME]
  gpuctl-trainer export --adapter DIR [--model DIR] --to gguf-lora|mlx --out FILE|DIR
  gpuctl-trainer merge --model DIR --adapter DIR --out DIR [--shard-gb GB]
  gpuctl-trainer inspect DIR        verifies a checkpoint, and lists the tensors of it, of a model
                                    or of an adapter
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

  With WORLD_SIZE above 1, RANK, MASTER_ADDR and MASTER_PORT in the environment, as torchrun sets
  them, this is one of several processes, which share each batch (docs/commands.md).

  SIGTERM and SIGINT finish the micro-batch at hand, save a checkpoint, and leave with 143 or 130.

prepare
  --model DIR            the model folder whose tokenizer and chat template are used
  --data FILE            rows as JSON lines ("messages"; "prompt" and "completion";
                         "conversations"; "text"; "prompt", "chosen" and "rejected"), a *.txt that is
                         one document, or a directory of *.jsonl; may be several
  --out DIR              gets the tokens; a folder that prepare made is replaced when all is done
  --context N            tokens that a row may have; default: as many as the model takes
  --mask WHAT            what is learned of conversations: every turn of the assistant (default),
                         the last one, or all of the text
  --template FILE        a chat template instead of the model's
  --held-out SHARE|FILE  rows that are not trained on: a share of them (0.05), or those of a file
  --bad-rows skip        leaves out rows that cannot be used; else one of them ends the work
  --prompt TEXT          of a sample; its tokens are kept with the data; may be repeated
  --show N               shows N rows with what is learned of them; default 1

preflight                takes these flags as train does, and tries the run on a small part of it: the model
                         loads, batches are valid, the loss falls, a checkpoint saves and loads, tokens
                         are generated. Tells memory and time here and on a GPU.
  --gpu NAME[,NAME…]     plans for the first of these that fits; default: the smallest that fits
  --processes N          plans for so many processes, each on a GPU of its own
  --as json              prints one JSON object

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

eval
  --data FOLDER          prepared data, or text for a model of bytes; its held-out part is scored
  --context N            tokens in a window; default 1024, or what the model takes
  --windows N            score at most N windows, evenly spaced; default all
  --as json              prints one JSON object

exit codes
  0 done   64 bad configuration   65 bad data   70 a bug   74 input or output failed
  75 try again (out of memory, or another process of the run is gone)   143, 130 SIGTERM, SIGINT
  125 the loss or gradient is not finite, or does not fall in preflight: do not restart unchanged

configuration                  default
)" + DescribeConfig();
}

}  // namespace gpuctl::trainer
