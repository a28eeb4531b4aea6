#include "trainer/preflight/preflight.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/cli/args.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/run_config.h"
#include "trainer/linear/matmul.h"
#include "trainer/train/signals.h"

namespace gpuctl::trainer {
namespace {

std::string TemporaryDirectory() {
  const char* const named = std::getenv("TMPDIR");
  return named == nullptr || *named == '\0' ? "/tmp" : named;
}

// A directory that is there until the end of the command.
class Scratch {
 public:
  Scratch() : path_(TemporaryDirectory() + "/gpuctl-preflight-" + std::to_string(getpid())) {
    RemoveTree(path_);
    MakeDirectories(path_);
  }
  ~Scratch() {
    try {
      RemoveTree(path_);
    } catch (const Error&) {  // it lies in a temporary directory
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;

// Reads "H100,A100".
std::vector<Gpu> GpusOf(const std::string& names) {
  std::vector<Gpu> gpus;
  for (size_t at = 0; at < names.size();) {
    const size_t comma = std::min(names.find(',', at), names.size());
    gpus.push_back(FindGpu(names.substr(at, comma - at)));
    at = comma + 1;
  }
  return gpus;
}

}  // namespace

int RunPreflight(const std::vector<std::string>& words) {
  const Args args(words, {"config", "set", "data", "init", "gpu", "processes", "as"},
                  {"set", "data"}, 0);
  PreflightRequest request;
  request.config = ConfigOfRun(args);
  request.processes = args.Integer("processes", 1, 1, 4096);
  request.gpus = GpusOf(args.Get("gpu"));
  const std::string as = args.Get("as", "text");
  if (as != "text" && as != "json") throw ConfigError("preflight: --as is text or json");
  nlohmann::ordered_json report = {{"type", "preflight"}};
  request.report = &report;
  request.stop_signal = StopSignal;
  request.say = [json = as == "json"](const std::string& line) {
    if (json) return;
    std::fputs((line + "\n").c_str(), stdout);
    std::fflush(stdout);
  };
  WatchSignals();
  ChooseMatMul(request.config.train.matmul);
  const Scratch scratch;
  request.scratch = scratch.path();
  const int signal = Preflight(request);
  if (signal == 0 && as == "json") {
    std::printf("%s\n", report.dump(-1, ' ', false, kReplace).c_str());
  }
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace gpuctl::trainer
