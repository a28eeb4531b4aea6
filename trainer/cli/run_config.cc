#include "trainer/cli/run_config.h"

namespace gpuctl::trainer {

Config ConfigOfRun(const Args& args) {
  std::vector<std::string> overrides = args.All("set");
  if (args.Has("init")) {
    overrides.push_back("model.init=" + nlohmann::json(args.Get("init")).dump());
  }
  Config config = LoadConfig(args.Require("config"), overrides);
  if (args.Has("data")) config.data.paths = args.All("data");
  return config;
}

}  // namespace gpuctl::trainer
