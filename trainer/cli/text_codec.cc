#include "trainer/cli/text_codec.h"

#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/chat/chat_template.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gpuctl::trainer {
namespace {

class TokenizerCodec : public TextCodec {
 public:
  TokenizerCodec(std::string folder, Tokenizer tokenizer)
      : folder_(std::move(folder)),
        tokenizer_(std::move(tokenizer)),
        decoder_(tokenizer_, /*skip_special=*/true) {}

  std::vector<int64_t> Encode(const std::string& text) const override {
    return Widened(tokenizer_.Encode(text, /*add_special=*/true));
  }

  std::vector<int64_t> EncodeChat(const std::string& system,
                                  const std::string& message) const override {
    Conversation conversation;
    if (!system.empty()) {
      conversation.messages.push_back({{"role", "system"}, {"content", system}});
    }
    conversation.messages.push_back({{"role", "user"}, {"content", message}});
    const std::string text =
        ChatTemplate::Load(folder_).Render(conversation, /*add_generation_prompt=*/true);
    // The template writes the tokens that begin a text.
    return Widened(tokenizer_.Encode(text, /*add_special=*/false));
  }

  std::string Push(int64_t token) override { return decoder_.Push(static_cast<int32_t>(token)); }
  std::string Finish() override { return decoder_.Finish(); }

 private:
  static std::vector<int64_t> Widened(const std::vector<int32_t>& ids) {
    return std::vector<int64_t>(ids.begin(), ids.end());
  }

  const std::string folder_;
  const Tokenizer tokenizer_;
  StreamDecoder decoder_;
};

}  // namespace

std::unique_ptr<TextCodec> OpenTextCodec(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  if (!Exists(path)) {
    throw DataError("generate: there is no " + path, "give the prompt's tokens with --prompt-ids");
  }
  return std::make_unique<TokenizerCodec>(folder, Tokenizer::Load(path));
}

}  // namespace gpuctl::trainer
