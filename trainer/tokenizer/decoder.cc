#include "trainer/tokenizer/decoder.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/byte_level.h"
#include "trainer/tokenizer/normalizer.h"
#include "trainer/tokenizer/part_depth.h"
#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kMaxStripped = 1000;
constexpr char kReplacementCharacter[] = "\xef\xbf\xbd";

// Returns the bytes of a token in the alphabet of ByteLevel. Another token stands for itself.
std::string BytesOfToken(const std::string& token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const int byte = ByteOfCharacter(ReadCodePoint(token, &at));
    if (byte < 0) return token;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

// Returns the byte of <0x00> to <0xFF>, or -1.
int ByteOfFallback(const std::string& token) {
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
  int byte = 0;
  for (size_t i = 3; i < 5; ++i) {
    const char digit = token[i];
    if (digit >= '0' && digit <= '9') {
      byte = byte * 16 + digit - '0';
    } else if (const char lower = static_cast<char>(digit | 0x20); lower >= 'a' && lower <= 'f') {
      byte = byte * 16 + lower - 'a' + 10;
    } else {
      return -1;
    }
  }
  return byte;
}

std::string OneCharacter(const JsonAt& json) {
  std::string text = json.Text();
  if (text.empty() || CodePointBytes(text[0]) != text.size()) json.Refuse("must be one character");
  return text;
}

}  // namespace

Decoder::State::State(const Decoder& decoder)
    : steps_(decoder.steps_.size()), scratch_(std::make_unique<PatternScratch>()) {}

void Decoder::Add(const JsonAt& json, int depth) {
  if (depth > kMaxPartDepth) json.Refuse("is nested too deeply");
  const std::string type = json.At("type").Text();
  if (type == "Sequence") {
    const JsonAt list = json.At("decoders");
    for (size_t i = 0; i < list.Size(); ++i) Add(list.At(i), depth + 1);
  } else if (type == "ByteLevel") {
    steps_.push_back(ByteLevel());
  } else if (type == "ByteFallback") {
    steps_.push_back(ByteFallback());
  } else if (type == "Fuse") {
    steps_.push_back(Fuse{false});
  } else if (type == "Metaspace") {
    const bool never = json.TextOr("prepend_scheme", "always") == "never" ||
                       !json.BoolOr("add_prefix_space", true);
    steps_.push_back(Metaspace{OneCharacter(json.At("replacement")), !never});
  } else if (type == "Replace") {
    steps_.push_back(Replace{ReadPattern(json.At("pattern")), json.At("content").Text()});
  } else if (type == "Strip") {
    steps_.push_back(Strip{OneCharacter(json.At("content")),
                           static_cast<size_t>(json.At("start").Number(kMaxStripped)),
                           static_cast<size_t>(json.At("stop").Number(kMaxStripped))});
  } else {
    json.Refuse("the decoder " + type + " is not supported");
  }
}

// ByteLevel and Fuse make one token of all. Where only Strip follows, its parts can go on at once.
void Decoder::FindFused() {
  const std::vector<Step> steps = std::move(steps_);
  steps_.clear();
  for (auto step = steps.begin(); step != steps.end(); ++step) {
    const bool whole = std::any_of(step + 1, steps.end(), [](const Step& later) {
      return !std::holds_alternative<Strip>(later) && !std::holds_alternative<Fuse>(later);
    });
    if (std::holds_alternative<Fuse>(*step)) {
      steps_.push_back(Fuse{whole});
    } else {
      steps_.push_back(*step);
      if (std::holds_alternative<ByteLevel>(*step) && whole) steps_.push_back(Fuse{true});
    }
  }
}

Decoder Decoder::Read(const std::optional<JsonAt>& json) {
  Decoder decoder;
  if (json) {
    decoder.Add(*json, 0);
    decoder.FindFused();
  } else {
    decoder.steps_.push_back(Spaces());
  }
  return decoder;
}

std::string Decoder::Push(const std::string& token, State* state) const {
  state->out_.clear();
  Give(0, token, true, state);
  return state->out_;
}

std::string Decoder::Finish(State* state) const {
  state->out_.clear();
  End(0, state);
  return state->out_;
}

void Decoder::Give(size_t index, const std::string& text, bool begins, State* state) const {
  if (index == steps_.size()) {
    state->out_ += text;
    return;
  }
  const Step& step = steps_[index];
  State::Step& mine = state->steps_[index];
  const bool first = !std::exchange(mine.begun, true);
  if (std::holds_alternative<ByteLevel>(step)) {
    mine.held += BytesOfToken(text);
    const size_t certain = mine.held.size() - UnfinishedUtf8(mine.held);
    const std::string out = RepairUtf8(std::string_view(mine.held).substr(0, certain));
    mine.held.erase(0, certain);
    Give(index + 1, out, first, state);
  } else if (std::holds_alternative<ByteFallback>(step)) {
    GiveBytes(index, text, state);
  } else if (const auto* fuse = std::get_if<Fuse>(&step)) {
    if (fuse->hold) {
      mine.held += text;
    } else {
      Give(index + 1, text, first, state);
    }
  } else if (std::holds_alternative<Spaces>(step)) {
    Give(index + 1, first ? text : " " + text, first, state);
  } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
    const std::string with = first && metaspace->drop_first ? "" : " ";
    Give(index + 1,
         ReplaceAll(Pattern::FromLiteral(metaspace->replacement), with, text, *state->scratch_),
         begins, state);
  } else if (const auto* replace = std::get_if<Replace>(&step)) {
    Give(index + 1, ReplaceAll(replace->pattern, replace->with, text, *state->scratch_), begins,
         state);
  } else {
    GiveStrip(std::get<Strip>(step), index, text, begins, state);
  }
}

// Byte tokens wait for the first token that is none: a run that is no valid UTF-8 gives a
// replacement character for each byte.
void Decoder::GiveBytes(size_t index, const std::string& token, State* state) const {
  if (const int byte = ByteOfFallback(token); byte >= 0) {
    state->steps_[index].held += static_cast<char>(byte);
    return;
  }
  FlushBytes(index, state);
  Give(index + 1, token, true, state);
}

void Decoder::FlushBytes(size_t index, State* state) const {
  const std::string bytes = std::exchange(state->steps_[index].held, "");
  if (ValidUtf8Prefix(bytes) == bytes.size()) {
    if (!bytes.empty()) Give(index + 1, bytes, true, state);
    return;
  }
  for (size_t i = 0; i < bytes.size(); ++i) Give(index + 1, kReplacementCharacter, true, state);
}

void Decoder::GiveStrip(const Strip& strip, size_t index, const std::string& text, bool begins,
                        State* state) const {
  State::Step& mine = state->steps_[index];
  if (begins) {  // what is held of the token before was to be stripped
    mine.held.clear();
    mine.stripped = 0;
  }
  const std::string& character = strip.character;
  size_t begin = 0;
  while (mine.stripped < strip.start && begin < text.size()) {
    if (text.compare(begin, character.size(), character) == 0) {
      begin += character.size();
      ++mine.stripped;
    } else {
      mine.stripped = strip.start;
    }
  }
  mine.held.append(text, begin, std::string::npos);
  size_t certain = mine.held.size();
  for (size_t i = 0;
       i < strip.stop && certain >= character.size() &&
       mine.held.compare(certain - character.size(), character.size(), character) == 0;
       ++i) {
    certain -= character.size();
  }
  const std::string out = mine.held.substr(0, certain);
  mine.held.erase(0, certain);
  Give(index + 1, out, begins, state);
}

void Decoder::End(size_t index, State* state) const {
  if (index == steps_.size()) return;
  const Step& step = steps_[index];
  State::Step& mine = state->steps_[index];
  if (std::holds_alternative<ByteLevel>(step)) {
    Give(index + 1, RepairUtf8(std::exchange(mine.held, "")), !mine.begun, state);
  } else if (std::holds_alternative<ByteFallback>(step)) {
    FlushBytes(index, state);
  } else if (const auto* fuse = std::get_if<Fuse>(&step); fuse != nullptr && fuse->hold) {
    Give(index + 1, std::exchange(mine.held, ""), true, state);
  }
  End(index + 1, state);
}

}  // namespace gpuctl::trainer
