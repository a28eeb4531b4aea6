#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/cli/args.h"
#include "trainer/cli/commands.h"
#include "trainer/prepare/prepare.h"
#include "trainer/train/signals.h"

namespace gpuctl::trainer {
namespace {

// Returns the value, which must be one of `known`.
std::string OneOf(const Args& args, const std::string& flag,
                  const std::vector<std::string>& known) {
  const std::string value = args.Get(flag, known.front());
  for (const std::string& each : known) {
    if (value == each) return value;
  }
  std::string all;
  for (const std::string& each : known) all += (all.empty() ? "" : ", ") + each;
  throw ConfigError("read the command line: --" + flag + " " + value + ": must be one of " + all +
                    DidYouMean(value, known));
}

// A number is a share, all else a file.
void ReadHeldOut(const Args& args, PrepareOptions* options) {
  if (!args.Has("held-out")) return;
  const std::string text = args.Get("held-out");
  char* end = nullptr;
  const double share = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') {
    options->held_out_file = text;
    if (text.empty()) throw ConfigError("read the command line: --held-out names no file");
    return;
  }
  if (!(share > 0 && share < 1)) {
    throw ConfigError("read the command line: --held-out " + text +
                      ": must be above 0 and below 1, or a file");
  }
  options->held_out = share;
}

PrepareOptions OptionsOf(const Args& args) {
  PrepareOptions options;
  options.model = args.Require("model");
  args.Require("data");
  options.data = args.All("data");
  // --data takes several files, as shells expand *.
  options.data.insert(options.data.end(), args.positionals().begin(), args.positionals().end());
  options.out = args.Require("out");
  if (options.out.empty()) throw ConfigError("read the command line: --out names no folder");
  options.context = static_cast<int64_t>(args.Number("context", 0, 1, 1 << 24));
  const std::string mask = OneOf(args, "mask", {"assistant", "last", "all"});
  options.mask = mask == "all" ? Mask::kAll : mask == "last" ? Mask::kLast : Mask::kAssistant;
  options.template_file = args.Get("template");
  ReadHeldOut(args, &options);
  options.skip_bad_rows = OneOf(args, "bad-rows", {"refuse", "skip"}) == "skip";
  options.samples = static_cast<int64_t>(args.Number("show", 1, 0, 1000));
  options.threads = static_cast<int64_t>(args.Number("threads", 0, 1, 1024));
  options.stop = [] { return StopSignal() != 0; };
  return options;
}

}  // namespace

int RunPrepare(const std::vector<std::string>& words) {
  const Args args(words,
                  {"model", "data", "out", "context", "mask", "template", "held-out", "bad-rows",
                   "show", "threads"},
                  {"data"}, words.size());
  const PrepareOptions options = OptionsOf(args);
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
