#include "trainer/tokenizer/normalizer.h"

#include <utility>

#include "trainer/base/error.h"
#include "trainer/tokenizer/part_depth.h"
#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer {
namespace {

std::string StripSpaces(const std::string& text, bool left, bool right) {
  size_t begin = 0;
  size_t end = 0;
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    if (IsSpace(ReadCodePoint(text, &at))) continue;
    if (!found) begin = before;
    found = true;
    end = at;
  }
  if (!left) begin = 0;
  if (!right || end < begin) end = text.size();
  if (!found) return left || right ? "" : text;
  return text.substr(begin, end - begin);
}

}  // namespace

Pattern ReadPattern(const JsonAt& json) {
  if (const auto literal = json.Find("String")) return Pattern::FromLiteral(literal->Text());
  const JsonAt regex = json.At("Regex");
  try {
    return Pattern::FromOniguruma(regex.Text());
  } catch (const Error& error) {
    regex.Refuse(error.what());
  }
}

void Normalizer::Add(const JsonAt& json, int depth) {
  if (depth > kMaxPartDepth) json.Refuse("is nested too deeply");
  const std::string type = json.At("type").Text();
  if (type == "Sequence") {
    const JsonAt list = json.At("normalizers");
    for (size_t i = 0; i < list.Size(); ++i) Add(list.At(i), depth + 1);
  } else if (type == "NFC") {
    steps_.push_back(NormalForm::kNfc);
  } else if (type == "NFD") {
    steps_.push_back(NormalForm::kNfd);
  } else if (type == "NFKC") {
    steps_.push_back(NormalForm::kNfkc);
  } else if (type == "NFKD") {
    steps_.push_back(NormalForm::kNfkd);
  } else if (type == "Lowercase") {
    steps_.push_back(LowerCase());
  } else if (type == "Prepend") {
    steps_.push_back(Prepend{json.At("prepend").Text()});
  } else if (type == "Replace") {
    steps_.push_back(Replace{ReadPattern(json.At("pattern")), json.At("content").Text()});
  } else if (type == "Strip") {
    steps_.push_back(Strip{json.At("strip_left").Bool(), json.At("strip_right").Bool()});
  } else {
    json.Refuse("the normalizer " + type + " is not supported");
  }
}

Normalizer Normalizer::Read(const std::optional<JsonAt>& json) {
  Normalizer normalizer;
  if (json) normalizer.Add(*json, 0);
  return normalizer;
}

std::string Normalizer::Apply(std::string text, bool within, PatternScratch& scratch) const {
  for (const Step& step : steps_) {
    if (text.empty()) return text;
    if (const auto* form = std::get_if<NormalForm>(&step)) {
      text = Normalize(text, *form);
    } else if (const auto* prepend = std::get_if<Prepend>(&step)) {
      if (!within) text.insert(0, prepend->text);
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      text = ReplaceAll(replace->pattern, replace->with, text, scratch);
    } else if (const auto* strip = std::get_if<Strip>(&step)) {
      text = StripSpaces(text, strip->left && !within, strip->right);
    } else {
      text = Lowercase(text);
    }
  }
  return text;
}

}  // namespace gpuctl::trainer
