#include "trainer/train/preflight.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "trainer/base/files.h"
#include "trainer/cli/args.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/run_config.h"
#include "trainer/linear/matmul.h"
#include "trainer/train/signals.h"

namespace gpuctl::trainer {
namespace {

// A directory that is there until the end of the command.
class Scratch {
 public:
  Scratch()
      : path_(std::filesystem::temp_directory_path().string() + "/gpuctl-preflight-" +
              std::to_string(getpid())) {
    RemoveTree(path_);
    MakeDirectories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace

int RunPreflight(const std::vector<std::string>& words) {
  const Args args(words, {"config", "set", "data", "init", "gpu"}, {"set", "data"}, 0);
  PreflightRequest request;
  request.config = ConfigOfRun(args);
  request.gpu = args.Get("gpu");
  if (!request.gpu.empty()) FindGpu(request.gpu);
  request.stop_signal = StopSignal;
  request.say = [](const std::string& line) {
    std::fputs((line + "\n").c_str(), stdout);
    std::fflush(stdout);
  };
  WatchSignals();
  ChooseMatMul(request.config.train.matmul);
  const Scratch scratch;
  request.scratch = scratch.path();
  const int signal = Preflight(request);
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace gpuctl::trainer
