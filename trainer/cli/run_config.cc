#include "trainer/cli/run_config.h"

#include "trainer/base/error.h"

namespace gpuctl::trainer {

Config ConfigOfRun(const Args& args) {
  std::vector<std::string> overrides = args.All("set");
  for (const char* flag : {"init", "data"}) {
    for (const std::string& value : args.All(flag)) CheckUtf8(std::string("--") + flag, value);
  }
  if (args.Has("init")) {
    for (const std::string& each : overrides) {
      if (each.rfind("model.init=", 0) != 0) continue;
      throw ConfigError("read the command line: --init and --set " + each + " are both given",
                        "leave one of them out");
    }
    overrides.push_back("model.init=" + nlohmann::json(args.Get("init")).dump());
  }
  Config config = LoadConfig(args.Require("config"), overrides);
  if (args.Has("data")) config.data.paths = args.All("data");
  return config;
}

}  // namespace gpuctl::trainer
