// Where the trainer is compiled without CMake: nodes lack the libraries that tokenizers need.

#include "trainer/base/error.h"
#include "trainer/cli/text_codec.h"

namespace gpuctl::trainer {

std::unique_ptr<TextCodec> OpenTextCodec(const std::string&) {
  throw ConfigError("generate: this program was built without tokenizers",
                    "give the prompt's tokens with --prompt-ids");
}

}  // namespace gpuctl::trainer
