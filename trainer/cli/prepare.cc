#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "trainer/base/error.h"
#include "trainer/cli/args.h"
#include "trainer/cli/commands.h"
#include "trainer/prepare/prepare_flags.h"
#include "trainer/train/signals.h"

namespace gpuctl::trainer {
namespace {

PrepareFlags FlagsOf(const Args& args) {
  PrepareFlags flags;
  flags.model = args.Require("model");
  args.Require("data");
  flags.data = args.All("data");
  // --data takes several files, as shells expand *.
  flags.data.insert(flags.data.end(), args.positionals().begin(), args.positionals().end());
  flags.out = args.Require("out");
  flags.context = args.Integer("context", 0, 1, 1 << 24);
  flags.mask = args.Get("mask");
  flags.held_out = args.Get("held-out");
  if (args.Has("held-out") && flags.held_out.empty()) {
    throw ConfigError("read the command line: --held-out names no file");
  }
  flags.template_file = args.Get("template");
  flags.bad_rows = args.Get("bad-rows");
  flags.samples = args.Integer("show", 1, 0, 1000);
  flags.prompts = args.All("prompt");
  flags.threads = args.Integer("threads", 0, 1, 1024);
  return flags;
}

}  // namespace

int RunPrepare(const std::vector<std::string>& words) {
  const Args args(words,
                  {"model", "data", "out", "context", "mask", "template", "held-out", "bad-rows",
                   "show", "threads", "prompt"},
                  {"data", "prompt"}, words.size());
  PrepareOptions options = OptionsOf(FlagsOf(args));
  options.stop = [] { return StopSignal() != 0; };
  WatchSignals();
  const auto begin = std::chrono::steady_clock::now();
  const std::optional<PrepareReport> report = Prepare(options);
  if (!report) return 128 + StopSignal();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const bool terminal = isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  if (!report->samples.empty()) {
    const Tokenizer tokenizer = Tokenizer::Load(options.model + "/tokenizer.json");
    for (const std::vector<uint32_t>& sample : report->samples) {
      std::printf("%s\n\n", ShownSample(sample, tokenizer, terminal).c_str());
    }
  }
  std::fputs(ReportText(*report, took.count()).c_str(), stdout);
  return 0;
}

}  // namespace gpuctl::trainer
