// Where the trainer is compiled without CMake: see text_codec_none.cc.

#include "trainer/base/error.h"
#include "trainer/cli/commands.h"

namespace gpuctl::trainer {

int RunPrepare(const std::vector<std::string>&) {
  throw ConfigError("prepare: this program was built without tokenizers",
                    "prepare the data where gpuctl was installed");
}

}  // namespace gpuctl::trainer
