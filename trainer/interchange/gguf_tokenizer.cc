#include "trainer/interchange/gguf_tokenizer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_at.h"
#include "trainer/base/text.h"
#include "trainer/config/families.h"
#include "trainer/interchange/documents.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestTokenizer = 256 << 20;
constexpr uint64_t kLargestSetting = 64 << 20;
constexpr char kSpace[] = "\xe2\x96\x81";  // U+2581, which stands for a space
constexpr int64_t kByteRows = 257;  // the trainer's own vocabulary: bytes, and what begins one

// llama.cpp's types of tokens.
enum TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// GPT-2's expression, which ByteLevel has, too.
constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The steps of a pre_tokenizer, and llama.cpp's name for them. A step is an expression, or "digit".
struct KnownSplit {
  const char* name;
  int ignore_merges;  // -1: does not matter
  std::vector<std::string> steps;
};

const std::vector<KnownSplit>& KnownSplits() {
  static const std::string kLlama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::string kQwen2 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::string kUpper =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)";
  static const std::string kLower =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)";
  static const std::string kRest = R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::vector<KnownSplit> kKnown = {
      {"gpt-2", -1, {kGpt2}},
      {"smollm", -1, {"digit", kGpt2}},
      {"llama-bpe", 1, {kLlama3}},
      {"smaug-bpe", 0, {kLlama3}},
      {"qwen2", -1, {kQwen2}},
      {"tekken", -1, {kUpper + "|" + kLower + R"(|\p{N})" + kRest}},
      {"deepseek-v3",
       -1,
       {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
  };
  return kKnown;
}

// Returns `text` with all `from` replaced.
std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// What is known about the tokens.
struct Tokens {
  bool byte_level = false;
  std::vector<std::string> texts;  // by id
  std::vector<int32_t> types;
  std::map<std::string, int32_t> added;
  std::unordered_map<std::string, int32_t> ids;
  std::optional<int32_t> unknown;
  std::optional<int32_t> before;  // what a text begins with
  std::optional<int32_t> behind;
};

// Calls `visit` for a part of the tokenizer, or for all parts of a Sequence, whose list is `list`.
template <typename Visit>
void ForSteps(const std::optional<JsonAt>& part, const char* list, const Visit& visit,
              int depth = 0) {
  if (!part) return;
  if (depth > 8) part->Refuse("is nested too deeply");
  if (part->At("type").Text() != "Sequence") return visit(*part);
  const JsonAt steps = part->At(list);
  for (size_t i = 0; i < steps.Size(); ++i) {
    ForSteps(std::optional<JsonAt>(steps.At(i)), list, visit, depth + 1);
  }
}

[[noreturn]] void RefuseStep(const JsonAt& step, const std::string& why) {
  step.At("type").Refuse(step.At("type").Text() + why + " is not done by llama.cpp");
}

bool IsByteLevel(const JsonAt& root) {
  bool found = false;
  ForSteps(root.Find("pre_tokenizer"), "pretokenizers",
           [&](const JsonAt& step) { found |= step.At("type").Text() == "ByteLevel"; });
  return found;
}

void SetToken(const JsonAt& place, int64_t id, const std::string& text, TokenType type,
              Tokens* tokens) {
  if (id >= static_cast<int64_t>(tokens->texts.size())) {
    place.Refuse("token " + std::to_string(id) + " has no row in the embedding, which has " +
                 std::to_string(tokens->texts.size()));
  }
  const auto at = static_cast<size_t>(id);
  if (tokens->types[at] != kUnused && tokens->texts[at] != text) {
    place.Refuse("two tokens have the id " + std::to_string(id));
  }
  tokens->texts[at] = text;
  tokens->types[at] = type;
  tokens->ids[text] = static_cast<int32_t>(id);
}

bool IsByteToken(const std::string& text) {
  return text.size() == 6 && text.compare(0, 3, "<0x") == 0 && text[5] == '>' &&
         text.find_first_not_of("0123456789ABCDEF", 3) == 5;
}

// Reads "vocab" and "added_tokens".
Tokens ReadTokens(const JsonAt& root, int64_t rows) {
  Tokens tokens;
  tokens.byte_level = IsByteLevel(root);
  tokens.texts.resize(static_cast<size_t>(rows));
  tokens.types.resize(static_cast<size_t>(rows), kUnused);
  const JsonAt model = root.At("model");
  const JsonAt vocabulary = model.At("vocab");
  if (!vocabulary.value().is_object()) vocabulary.Refuse("must be an object");
  for (const auto& [text, id] : vocabulary.value().items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
      vocabulary.Refuse("the id of \"" + text + "\" is no whole number");
    }
    const bool byte = !tokens.byte_level && IsByteToken(text);
    SetToken(vocabulary, id.get<int64_t>(), text, byte ? kByte : kNormal, &tokens);
  }
  if (const std::string name = model.TextOr("unk_token", ""); !name.empty()) {
    const auto found = tokens.ids.find(name);
    if (found == tokens.ids.end()) model.At("unk_token").Refuse("is not in the vocabulary");
    tokens.unknown = found->second;
    tokens.types[static_cast<size_t>(found->second)] = kUnknown;
  }
  const std::optional<JsonAt> added = root.Find("added_tokens");
  for (size_t i = 0; added && i < added->Size(); ++i) {
    const JsonAt token = added->At(i);
    const int64_t id = token.At("id").Number(INT32_MAX);
    const std::string text = token.At("content").Text();
    const bool unknown = tokens.unknown == std::optional<int32_t>(static_cast<int32_t>(id));
    SetToken(token, id, text,
             unknown                          ? kUnknown
             : token.BoolOr("special", false) ? kControl
                                              : kUserDefined,
             &tokens);
    tokens.added[text] = static_cast<int32_t>(id);
  }
  return tokens;
}

// Reads the tokens around a text.
void ReadSurroundings(const JsonAt& root, Tokens* tokens) {
  ForSteps(root.Find("post_processor"), "processors", [&](const JsonAt& step) {
    const std::string type = step.At("type").Text();
    if (type == "ByteLevel") return;
    if (type != "TemplateProcessing") RefuseStep(step, "");
    const JsonAt single = step.At("single");
    bool behind = false;
    for (size_t i = 0; i < single.Size(); ++i) {
      const JsonAt piece = single.At(i);
      if (piece.Find("Sequence")) {
        behind = true;
        continue;
      }
      const std::string name = piece.At("SpecialToken").At("id").Text();
      const JsonAt ids = step.At("special_tokens").At(name).At("ids");
      std::optional<int32_t>& place = behind ? tokens->behind : tokens->before;
      if (ids.Size() != 1 || place) single.Refuse("llama.cpp adds one token at each end at most");
      place = static_cast<int32_t>(ids.At(size_t{0}).Number(INT32_MAX));
    }
  });
}

// --- byte-level BPE

std::string SplitStep(const JsonAt& step) {
  const JsonAt pattern = step.At("pattern");
  if (!pattern.Find("Regex")) RefuseStep(step, " at a text");
  const std::string behavior = step.At("behavior").Text();
  const bool invert = step.BoolOr("invert", false);
  if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert)) {
    RefuseStep(step, " with " + behavior);
  }
  // Some files have line ends as they are.
  return Replaced(Replaced(pattern.At("Regex").Text(), "\r", "\\r"), "\n", "\\n");
}

// Returns the steps of the pre_tokenizer as KnownSplit has them.
std::vector<std::string> StepsOf(const JsonAt& root) {
  std::vector<std::string> steps;
  ForSteps(root.Find("pre_tokenizer"), "pretokenizers", [&](const JsonAt& step) {
    const std::string type = step.At("type").Text();
    if (type == "Split") {
      steps.push_back(SplitStep(step));
    } else if (type == "Digits" && step.BoolOr("individual_digits", false)) {
      steps.push_back("digit");
    } else if (type == "ByteLevel") {
      if (step.BoolOr("add_prefix_space", true)) RefuseStep(step, " with add_prefix_space");
      if (step.BoolOr("use_regex", true)) steps.push_back(kGpt2);
    } else {
      RefuseStep(step, "");
    }
  });
  return steps;
}

std::string FindSplit(const JsonAt& root) {
  const std::vector<std::string> steps = StepsOf(root);
  const int ignores = root.At("model").BoolOr("ignore_merges", false) ? 1 : 0;
  std::string names;
  for (const KnownSplit& known : KnownSplits()) {
    const bool fits = known.ignore_merges < 0 || known.ignore_merges == ignores;
    if (fits && known.steps == steps) return known.name;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  root.At("pre_tokenizer")
      .Refuse("llama.cpp's name for it is not known here",
              "--pre NAME names what llama.cpp has for it; known here are " + names);
}

bool IsKnownSplit(const std::string& name) {
  const std::vector<KnownSplit>& all = KnownSplits();
  return std::any_of(all.begin(), all.end(),
                     [&name](const KnownSplit& known) { return name == known.name; });
}

using Pair = std::pair<std::string, std::string>;

// Reads "a b" or ["a", "b"].
Pair ReadMerge(const JsonAt& merge) {
  if (merge.value().is_array()) {
    if (merge.Size() != 2) merge.Refuse("must be two tokens");
    return {merge.At(size_t{0}).Text(), merge.At(size_t{1}).Text()};
  }
  const std::string text = merge.Text();
  const size_t space = text.find(' ');
  if (space == std::string::npos) merge.Refuse("must be two tokens");
  return {text.substr(0, space), text.substr(space + 1)};
}

void AddMerges(const JsonAt& model, GgufMetadata* metadata) {
  std::vector<std::string> merges;
  const JsonAt list = model.At("merges");
  merges.reserve(list.Size());
  for (size_t i = 0; i < list.Size(); ++i) {
    const JsonAt merge = list.At(i);
    const auto [left, right] = ReadMerge(merge);
    if (left.empty() || right.empty() || left.find(' ') != std::string::npos ||
        right.find(' ') != std::string::npos) {
      merge.Refuse("must be two tokens without spaces in them");
    }
    merges.push_back(left + " " + right);
  }
  metadata->AddTexts("tokenizer.ggml.merges", merges);
}

void AddByteLevel(const JsonAt& root, const std::string& pre, GgufMetadata* metadata,
                  std::vector<std::string>* notes) {
  ForSteps(root.Find("normalizer"), "normalizers", [&](const JsonAt& step) {
    if (step.At("type").Text() != "NFC") RefuseStep(step, "");
    notes->push_back("llama.cpp does not bring texts into the normal form NFC; most texts have it");
  });
  const std::string name = pre.empty() ? FindSplit(root) : pre;
  if (!pre.empty() && !IsKnownSplit(pre)) {
    notes->push_back("\"" + pre + "\" is not known here; llama.cpp reads the file if it knows it");
  }
  if (name == "tekken") {
    notes->push_back("llama.cpp splits some texts of mixed scripts in another way");
  }
  metadata->AddText("tokenizer.ggml.model", "gpt2");
  metadata->AddText("tokenizer.ggml.pre", name);
  AddMerges(root.At("model"), metadata);
}

// --- SentencePiece's BPE

// Returns whether a space is added before a text.
bool ReadSpaces(const JsonAt& root, std::vector<std::string>* notes) {
  bool prefix = false;
  ForSteps(root.Find("normalizer"), "normalizers", [&](const JsonAt& step) {
    const std::string type = step.At("type").Text();
    if (type == "Prepend" && step.At("prepend").Text() == kSpace) {
      prefix = true;
    } else if (type != "Replace" || step.At("pattern").TextOr("String", "") != " " ||
               step.At("content").Text() != kSpace) {
      RefuseStep(step, "");
    }
  });
  ForSteps(root.Find("pre_tokenizer"), "pretokenizers", [&](const JsonAt& step) {
    const std::string type = step.At("type").Text();
    if (type == "Metaspace") {
      const std::string scheme = step.TextOr("prepend_scheme", "always");
      if (step.TextOr("replacement", kSpace) != kSpace || step.BoolOr("split", true)) {
        RefuseStep(step, " with split");
      }
      prefix |= scheme != "never";
      if (scheme == "first") {
        notes->push_back("llama.cpp adds a space also behind special tokens inside of a text");
      }
    } else if (type != "Split" || step.At("pattern").TextOr("String", "") != " ") {
      RefuseStep(step, "");
    }
  });
  return prefix;
}

// Refuses merges that SentencePiece would not do in the same order: it joins two pieces whenever
// their text is a token, and its order is one of tokens, not of pairs.
void CheckPairs(const JsonAt& list, const std::set<Pair>& pairs, const Tokens& tokens) {
  for (const auto& [text, id] : tokens.ids) {
    if (tokens.types[static_cast<size_t>(id)] != kNormal) continue;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((text[cut] & 0xc0) == 0x80) continue;
      const std::string left = text.substr(0, cut), right = text.substr(cut);
      if (tokens.ids.count(left) > 0 && tokens.ids.count(right) > 0 &&
          pairs.count({left, right}) == 0) {
        list.Refuse("\"" + left + "\" and \"" + right + "\" do not merge, but llama.cpp would");
      }
    }
  }
}

// Returns a score for each token: the earlier it is made, the higher.
std::vector<float> ScoresOf(const JsonAt& model, const Tokens& tokens) {
  const JsonAt list = model.At("merges");
  std::vector<float> scores(tokens.texts.size(), 0.0f);
  std::set<Pair> pairs;
  std::vector<bool> done(tokens.texts.size(), false);
  int32_t last = -1;
  for (size_t i = 0; i < list.Size(); ++i) {
    const JsonAt merge = list.At(i);
    Pair pair = ReadMerge(merge);
    const auto found = tokens.ids.find(pair.first + pair.second);
    if (found == tokens.ids.end()) merge.Refuse("makes no token of the vocabulary");
    const auto id = static_cast<size_t>(found->second);
    const bool plain = tokens.types[id] == kNormal;
    if (plain && done[id] && found->second != last) {
      merge.Refuse("\"" + tokens.texts[id] + "\" is made in two places of the order");
    }
    if (!done[id]) scores[id] = -static_cast<float>(i + 1);
    done[id] = true;
    last = found->second;
    pairs.insert(std::move(pair));
  }
  CheckPairs(list, pairs, tokens);
  return scores;
}

void AddSentencePiece(const JsonAt& root, Tokens* tokens, GgufMetadata* metadata,
                      std::vector<std::string>* notes) {
  const JsonAt model = root.At("model");
  if (!model.BoolOr("byte_fallback", false)) {
    model.Refuse("neither byte-level nor with byte_fallback: llama.cpp has no such tokenizer");
  }
  const bool prefix = ReadSpaces(root, notes);
  metadata->AddText("tokenizer.ggml.model", "llama");
  metadata->AddText("tokenizer.ggml.pre", "default");
  metadata->AddReals("tokenizer.ggml.scores", ScoresOf(model, *tokens));
  metadata->AddBool("tokenizer.ggml.add_space_prefix", prefix);
  // llama.cpp looks for these in the text as it came.
  for (size_t i = 0; i < tokens->texts.size(); ++i) {
    if (tokens->types[i] == kUserDefined) {
      tokens->texts[i] = Replaced(tokens->texts[i], kSpace, " ");
    }
  }
}

// --- special tokens

// Returns the id of a special token by tokenizer_config.json, where its value is a text, or an
// object that has it.
std::optional<int32_t> ConfiguredToken(const TokenFiles& files, const char* key,
                                       const Tokens& tokens) {
  if (!files.tokenizer_config.is_object()) return std::nullopt;
  const JsonAt config(files.tokenizer_config, "", "read " + files.path + "/tokenizer_config.json");
  const std::optional<JsonAt> found = config.Find(key);
  if (!found) return std::nullopt;
  const std::string text = found->value().is_object() ? found->At("content").Text() : found->Text();
  if (const auto added = tokens.added.find(text); added != tokens.added.end()) return added->second;
  const auto plain = tokens.ids.find(text);
  return plain == tokens.ids.end() ? std::nullopt : std::optional<int32_t>(plain->second);
}

std::optional<int32_t> NumberedToken(const TokenFiles& files, const char* key, int64_t rows) {
  if (!files.config.is_object()) return std::nullopt;
  const auto found = files.config.find(key);
  if (found == files.config.end() || !found->is_number_unsigned() ||
      found->get<uint64_t>() >= static_cast<uint64_t>(rows)) {
    return std::nullopt;
  }
  return found->get<int32_t>();
}

// Appends the tokens that begin and end a text.
void AddSpecialTokens(const TokenFiles& files, const Tokens& tokens, GgufMetadata* metadata,
                      std::vector<std::string>* notes) {
  const auto rows = static_cast<int64_t>(tokens.texts.size());
  std::vector<int32_t> ends;
  const auto add_end = [&](int64_t id) {
    const auto token = static_cast<int32_t>(id);
    if (std::find(ends.begin(), ends.end(), token) == ends.end()) ends.push_back(token);
  };
  if (const auto named = ConfiguredToken(files, "eos_token", tokens)) add_end(*named);
  for (const int64_t stop : StopTokens(files.config, files.generation_config, files.path)) {
    if (stop >= 0 && stop < rows) add_end(stop);
  }
  if (ends.empty() && tokens.behind) add_end(*tokens.behind);
  if (ends.empty()) {
    throw DataError("read model " + files.path + ": no token ends a text",
                    "give eos_token in tokenizer_config.json, or eos_token_id in config.json");
  }
  if (ends.size() > 3) {
    notes->push_back("llama.cpp has room for three tokens that end a text; this model has " +
                     std::to_string(ends.size()));
  }
  std::optional<int32_t> begin = tokens.before;
  if (!begin) begin = ConfiguredToken(files, "bos_token", tokens);
  if (!begin) begin = NumberedToken(files, "bos_token_id", rows);
  std::optional<int32_t> pad = ConfiguredToken(files, "pad_token", tokens);
  if (!pad) pad = NumberedToken(files, "pad_token_id", rows);
  if (files.tokenizer_config.is_object()) {
    const JsonAt config(files.tokenizer_config, "",
                        "read " + files.path + "/tokenizer_config.json");
    const bool begins = tokens.before.has_value();
    if (config.BoolOr("add_bos_token", begins) != begins) {
      notes->push_back(std::string("tokenizer_config.json says that add_bos_token is ") +
                       (begins ? "false" : "true") +
                       "; tokenizer.json, which counts here, does otherwise");
    }
  }
  const auto add = [&](const char* name, std::optional<int32_t> id) {
    if (!id) return;
    if (*id >= rows) throw DataError("read model " + files.path + ": " + name + " has no row");
    metadata->AddCount(std::string("tokenizer.ggml.") + name, static_cast<uint64_t>(*id));
  };
  // Without these, llama.cpp takes ids that mean other things.
  add("bos_token_id", begin ? begin : ends[0]);
  add("eos_token_id", ends[0]);
  if (ends.size() > 1) add("eot_token_id", ends[1]);
  if (ends.size() > 2) add("eom_token_id", ends[2]);
  add("unknown_token_id", tokens.unknown);
  add("padding_token_id", pad);
  metadata->AddBool("tokenizer.ggml.add_bos_token", tokens.before.has_value());
  metadata->AddBool("tokenizer.ggml.add_eos_token", tokens.behind.has_value());
}

// --- chat templates

void AddChatTemplates(const TokenFiles& files, GgufMetadata* metadata) {
  const std::string key = "tokenizer.chat_template";
  if (!files.chat_template.empty()) return metadata->AddText(key, files.chat_template);
  if (!files.tokenizer_config.is_object()) return;
  const JsonAt config(files.tokenizer_config, "", "read " + files.path + "/tokenizer_config.json");
  const std::optional<JsonAt> found = config.Find("chat_template");
  if (!found) return;
  if (found->value().is_string()) return metadata->AddText(key, found->Text());
  std::vector<std::string> names;
  for (size_t i = 0; i < found->Size(); ++i) {
    const JsonAt each = found->At(i);
    const std::string name = each.At("name").Text(), text = each.At("template").Text();
    const std::string full = name == "default" ? key : key + "." + name;
    if (metadata->Has(full)) each.Refuse("two templates are named " + name);
    metadata->AddText(full, text);
    if (name != "default") names.push_back(name);
  }
  if (!names.empty()) metadata->AddTexts("tokenizer.chat_templates", names);
}

// --- models without tokenizer.json

// Returns the letter of a byte in a byte-level vocabulary: printable Latin-1 stands for itself, the
// others from U+0100 on.
std::string LetterOfByte(int byte) {
  int point = 0x100;
  for (int b = 0; b <= byte; ++b) {
    const bool plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    if (b == byte && plain) point = byte;
    if (b < byte && !plain) ++point;
  }
  if (point < 0x80) return std::string(1, static_cast<char>(point));
  return {static_cast<char>(0xc0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3f))};
}

void AddBytes(GgufMetadata* metadata) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.push_back(LetterOfByte(byte));
  texts.emplace_back("<|begin|>");
  std::vector<int32_t> types(256, kNormal);
  types.push_back(kControl);
  metadata->AddText("tokenizer.ggml.model", "gpt2");
  metadata->AddText("tokenizer.ggml.pre", "gpt-2");
  metadata->AddTexts("tokenizer.ggml.merges", {});
  metadata->AddTexts("tokenizer.ggml.tokens", texts);
  metadata->AddIntegers("tokenizer.ggml.token_type", types);
  // A text ends where the next one begins.
  metadata->AddCount("tokenizer.ggml.bos_token_id", 256);
  metadata->AddCount("tokenizer.ggml.eos_token_id", 256);
  metadata->AddBool("tokenizer.ggml.add_bos_token", true);
}

}  // namespace

TokenFiles ReadTokenFiles(const ModelFolder& folder) {
  TokenFiles files;
  files.path = folder.path;
  files.config = folder.config;
  files.generation_config = folder.generation_config;
  const auto read = [&](const char* name, uint64_t most, json* into) {
    const std::string path = folder.path + "/" + name;
    if (Exists(path)) *into = ReadDocument(path, most);
  };
  read("tokenizer.json", kLargestTokenizer, &files.tokenizer);
  read("tokenizer_config.json", kLargestSetting, &files.tokenizer_config);
  if (files.tokenizer.is_null() && Exists(folder.path + "/tokenizer.model")) {
    throw DataError("read model " + folder.path + ": it has tokenizer.model, but no tokenizer.json",
                    "transformers writes one: AutoTokenizer.from_pretrained(…).save_pretrained(…)");
  }
  const std::string path = folder.path + "/chat_template.jinja";
  if (IsFile(path)) files.chat_template = ReadWholeFile(path, kLargestSettings);
  return files;
}

void AddTokenizer(const TokenFiles& files, int64_t rows, const std::string& pre,
                  GgufMetadata* metadata, std::vector<std::string>* notes) {
  if (files.tokenizer.is_null()) {
    if (rows == kByteRows) return AddBytes(metadata);
    throw DataError("read model " + files.path + ": there is no tokenizer.json",
                    "llama.cpp reads no model without a tokenizer");
  }
  const JsonAt root(files.tokenizer, "", "read " + files.path + "/tokenizer.json");
  const std::string type = root.At("model").TextOr("type", "BPE");
  if (type != "BPE") root.At("model").Refuse(type + ": only BPE can be written");
  Tokens tokens = ReadTokens(root, rows);
  ReadSurroundings(root, &tokens);
  if (tokens.byte_level) {
    AddByteLevel(root, pre, metadata, notes);
  } else {
    AddSentencePiece(root, &tokens, metadata, notes);
  }
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    if (tokens.types[i] == kUnused) tokens.texts[i] = "[PAD" + std::to_string(i) + "]";
  }
  metadata->AddTexts("tokenizer.ggml.tokens", tokens.texts);
  metadata->AddIntegers("tokenizer.ggml.token_type", tokens.types);
  AddSpecialTokens(files, tokens, metadata, notes);
  AddChatTemplates(files, metadata);
}

}  // namespace gpuctl::trainer
