#include "trainer/train/generate.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/cli/args.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/loaded_model.h"
#include "trainer/cli/text_codec.h"
#include "trainer/config/families.h"
#include "trainer/data/corpus.h"
#include "trainer/train/signals.h"

namespace gpuctl::trainer {
namespace {

// Reads "1,2,3".
std::vector<int64_t> ReadIds(const std::string& flag, const std::string& text) {
  std::vector<int64_t> ids;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, comma - at);
    if (word.empty() || word.size() > 12 ||
        word.find_first_not_of("0123456789") != std::string::npos) {
      throw ConfigError("read the command line: --" + flag + " " + text +
                        ": must be whole numbers with commas between them");
    }
    ids.push_back(std::stoll(word));
    at = comma + 1;
  }
  return ids;
}

// Whether the texts of the model are its tokens. Models that were trained here on bytes have no
// tokenizer.
bool TakesBytes(const ModelFolder& folder) {
  return !Exists(folder.path + "/tokenizer.json") && !Exists(folder.path + "/tokenizer.model");
}

// What is to be generated, and how it is shown.
struct Generation {
  GenerateRequest request;
  bool shows_prompt = true;
  std::unique_ptr<TextCodec> codec;  // null: bytes or tokens are shown

  std::string Shown(int64_t token, bool bytes) const {
    if (codec != nullptr) return codec->Push(token);
    return bytes ? std::string(1, static_cast<char>(token)) : std::to_string(token) + " ";
  }
};

Generation GenerationOf(const Args& args, const ModelFolder& folder) {
  Generation made;
  GenerateRequest& request = made.request;
  request.tokens = args.Integer("tokens", 200, 0, 1e6);
  request.sampling.temperature = args.Number("temperature", 0.8, 0, 100);
  request.sampling.top_k = args.Integer("top-k", 0, 0, 1e9);
  request.sampling.top_p = args.Number("top-p", 1, 0, 1);
  request.sampling.seed = args.Integer("seed", 1, 0, 9e15);
  if (args.Has("prompt") && TakesBytes(folder)) {
    const TokenStream prompt = Encode(args.Get("prompt"));
    request.prompt.assign(prompt.begin(), prompt.end());
    request.sampling.choices = kBos;  // bytes
    return made;
  }
  request.stop_tokens = args.Has("stop-ids")
                            ? ReadIds("stop-ids", args.Get("stop-ids"))
                            : StopTokens(folder.config, folder.generation_config, folder.path);
  if (args.Has("prompt-ids")) {
    request.prompt = ReadIds("prompt-ids", args.Get("prompt-ids"));
    return made;
  }
  made.codec = OpenTextCodec(folder.path);
  made.shows_prompt = args.Has("prompt");
  request.prompt = made.shows_prompt ? made.codec->Encode(args.Get("prompt"))
                                     : made.codec->EncodeChat(args.Get("system"), args.Get("chat"));
  return made;
}

}  // namespace

int RunGenerate(const std::vector<std::string>& words) {
  const Args args(words,
                  {"checkpoint", "model", "adapter", "prompt", "chat", "system", "prompt-ids",
                   "tokens", "temperature", "top-k", "top-p", "stop-ids", "seed", "device"},
                  {}, 0);
  const int prompts =
      (args.Has("prompt") ? 1 : 0) + (args.Has("chat") ? 1 : 0) + (args.Has("prompt-ids") ? 1 : 0);
  if (prompts != 1) {
    throw ConfigError("generate: give one of --prompt, --chat and --prompt-ids");
  }
  if (args.Has("system") && !args.Has("chat")) {
    throw ConfigError("generate: --system belongs to --chat");
  }
  WatchSignals();
  const ModelPaths paths = PathsOf(args, "generate");
  const ModelFolder folder = ReadModelFolder(paths.model);
  const Generation generation = GenerationOf(args, folder);
  const GenerateRequest& request = generation.request;
  const auto prompt_size = static_cast<int64_t>(request.prompt.size());
  if (prompt_size > folder.model.context) {
    throw ConfigError(
        Format("generate: the prompt has %lld tokens, and the model reads %lld",
               static_cast<long long>(prompt_size), static_cast<long long>(folder.model.context)),
        "shorten it");
  }
  const int64_t context = prompt_size + request.tokens;
  const LoadedModel loaded = LoadModel(paths, folder, context, args.Get("device", "cpu"));
  const bool bytes = request.sampling.choices == kBos;
  // A terminal would act on some characters.
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  const auto print = [&](int64_t token) {
    const std::string shown = generation.Shown(token, bytes);
    const std::string text = terminal ? Printable(shown) : shown;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  if (generation.shows_prompt) {
    for (size_t i = bytes ? 1 : 0; i < request.prompt.size(); ++i) print(request.prompt[i]);
  }
  const std::vector<int64_t> generated = GenerateTokens(loaded.shape, loaded.weights, request,
                                                        print, [] { return StopSignal() != 0; });
  if (generation.codec != nullptr) {
    const std::string rest = generation.codec->Finish();
    std::fputs((terminal ? Printable(rest) : rest).c_str(), stdout);
  }
  std::fputc('\n', stdout);
  const int64_t unread =
      prompt_size + static_cast<int64_t>(generated.size()) - 1 - folder.model.context;
  if (unread > 0 && !bytes) {
    std::fflush(stdout);
    std::fprintf(stderr,
                 "gpuctl-trainer: note: the model reads %lld tokens; the last %lld were generated "
                 "without the beginning of the text\n",
                 static_cast<long long>(folder.model.context), static_cast<long long>(unread));
  }
  return StopSignal() == 0 ? 0 : 128 + StopSignal();
}

}  // namespace gpuctl::trainer
