// Text of a model that has a tokenizer.

#ifndef TRAINER_CLI_TEXT_CODEC_H_
#define TRAINER_CLI_TEXT_CODEC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpuctl::trainer {

// Not thread-safe.
class TextCodec {
 public:
  virtual ~TextCodec() = default;
  // Returns the tokens of a text, with those that begin one.
  virtual std::vector<int64_t> Encode(const std::string& text) const = 0;
  // Returns the tokens of a conversation that waits for the model's answer, by the model's chat
  // template. `system` may be "". Throws Error(kBadData) if the model has none.
  virtual std::vector<int64_t> EncodeChat(const std::string& system,
                                          const std::string& message) const = 0;
  // Returns the text that is certain with this token: whole characters, possibly none.
  virtual std::string Push(int64_t token) = 0;
  // Returns what was held back, at the end.
  virtual std::string Finish() = 0;
};

// Opens tokenizer.json of a model folder. Throws Error(kBadData) when it is missing or not
// supported, Error(kBadConfig) when this program was built without tokenizers, as on nodes.
std::unique_ptr<TextCodec> OpenTextCodec(const std::string& folder);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CLI_TEXT_CODEC_H_
