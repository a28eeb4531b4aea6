#include "trainer/prepare/prepare_flags.h"

#include <cstdlib>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {

const std::vector<std::string> kMasks = {"assistant", "last", "all"};

namespace {

constexpr char kCommandLine[] = "read the command line: ";

// Returns the value, which must be one of `known`; the first one if it is "".
std::string OneOf(const std::string& value, const std::vector<std::string>& known,
                  const std::string& name) {
  if (value.empty()) return known.front();
  std::string all;
  for (const std::string& each : known) {
    if (value == each) return value;
    all += (all.empty() ? "" : ", ") + each;
  }
  throw ConfigError(name + " " + value + ": must be one of " + all + DidYouMean(value, known));
}

// A number is a share, all else a file.
void ReadHeldOut(const std::string& text, PrepareOptions* options) {
  if (text.empty()) return;
  char* end = nullptr;
  const double share = std::strtod(text.c_str(), &end);
  if (*end != '\0') {
    options->held_out_file = text;
    return;
  }
  if (!(share > 0 && share < 1)) {
    throw ConfigError(kCommandLine + std::string("--held-out ") + text +
                      ": must be above 0 and below 1, or a file");
  }
  options->held_out = share;
}

}  // namespace

Mask MaskOf(const std::string& word, const std::string& name) {
  const std::string mask = OneOf(word, kMasks, name);
  return mask == "all" ? Mask::kAll : mask == "last" ? Mask::kLast : Mask::kAssistant;
}

PrepareOptions OptionsOf(const PrepareFlags& flags) {
  const std::string where = kCommandLine;
  PrepareOptions options;
  if (flags.model.empty()) throw ConfigError(where + "--model names no folder");
  if (flags.data.empty()) throw ConfigError(where + "--data names no file");
  if (flags.out.empty()) throw ConfigError(where + "--out names no folder");
  options.model = flags.model;
  options.data = flags.data;
  options.out = flags.out;
  options.context = flags.context;
  options.mask = MaskOf(flags.mask, where + "--mask");
  options.template_file = flags.template_file;
  ReadHeldOut(flags.held_out, &options);
  options.skip_bad_rows = OneOf(flags.bad_rows, {"refuse", "skip"}, where + "--bad-rows") == "skip";
  options.samples = flags.samples;
  for (const std::string& prompt : flags.prompts) {
    if (prompt.empty()) throw ConfigError(where + "--prompt has no text");
  }
  options.prompts = flags.prompts;
  options.threads = flags.threads;
  return options;
}

}  // namespace gpuctl::trainer
