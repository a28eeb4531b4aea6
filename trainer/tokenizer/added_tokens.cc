#include "trainer/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/pre_tokenizer.h"
#include "trainer/unicode/oniguruma.h"
#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kMaxTokens = 1 << 18;
constexpr size_t kMaxTokenBytes = 1000;

// Returns where the code point before `at` begins.
size_t Before(std::string_view text, size_t at) {
  do {
    --at;
  } while ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  return at;
}

// Goes back over white space, but not before `least`.
size_t SkipSpacesBack(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    const size_t before = Before(text, at);
    size_t next = before;
    if (!IsSpace(ReadCodePoint(text, &next))) break;
    at = before;
  }
  return at;
}

size_t SkipSpaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!IsSpace(ReadCodePoint(text, &next))) break;
    at = next;
  }
  return at;
}

}  // namespace

TextFinder::TextFinder() : nodes_(1) {}

void TextFinder::Add(const std::string& text, int32_t number) {
  if (text.empty()) return;
  begins_[static_cast<unsigned char>(text[0])] = true;
  size_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    auto& next = nodes_[node].next;
    const auto place = std::lower_bound(next.begin(), next.end(), std::make_pair(byte, -1));
    if (place != next.end() && place->first == byte) {
      node = static_cast<size_t>(place->second);
      continue;
    }
    const auto added = static_cast<int32_t>(nodes_.size());
    next.insert(place, {byte, added});
    nodes_.emplace_back();
    node = static_cast<size_t>(added);
  }
  if (nodes_[node].number < 0) nodes_[node].number = number;
}

int32_t TextFinder::Longest(std::string_view text, size_t at, size_t* length) const {
  int32_t found = -1;
  size_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto& next = nodes_[node].next;
    const auto place = std::lower_bound(next.begin(), next.end(), std::make_pair(byte, -1));
    if (place == next.end() || place->first != byte) break;
    node = static_cast<size_t>(place->second);
    if (nodes_[node].number >= 0) {
      found = nodes_[node].number;
      *length = i + 1 - at;
    }
  }
  return found;
}

void AddedTokens::Add(const JsonAt& json, const Bpe& bpe) {
  AddedToken token;
  token.content = json.At("content").Text();
  token.id = static_cast<int32_t>(json.At("id").Number(Bpe::kMaxId));
  token.single_word = json.At("single_word").Bool();
  token.lstrip = json.At("lstrip").Bool();
  token.rstrip = json.At("rstrip").Bool();
  token.normalized = json.At("normalized").Bool();
  token.special = json.At("special").Bool();
  if (token.content.empty()) return;  // the library ignores it
  if (token.content.size() > kMaxTokenBytes) json.At("content").Refuse("is too long");
  int32_t given = bpe.size();
  if (const auto known = Id(token.content)) {
    given = *known;
  } else if (const auto in_model = bpe.Find(token.content)) {
    given = *in_model;
  } else if (!by_id_.empty() && by_id_.rbegin()->first >= bpe.size()) {
    given = by_id_.rbegin()->first + 1;
  }
  if (given != token.id) {
    json.At("id").Refuse("is " + std::to_string(token.id) + " for \"" + token.content +
                         "\", but Hugging Face's library gives it " + std::to_string(given));
  }
  id_of_[token.content] = token.id;
  if (token.special) special_[token.content] = true;
  by_id_[token.id] = std::move(token);
}

AddedTokens AddedTokens::Read(const std::optional<JsonAt>& json, const Bpe& bpe,
                              const Normalizer& normalizer) {
  AddedTokens tokens;
  if (!json) return tokens;
  if (json->Size() > kMaxTokens) json->Refuse("has too many tokens");
  for (size_t i = 0; i < json->Size(); ++i) tokens.Add(json->At(i), bpe);
  PatternScratch scratch;
  bool words = false;
  for (const bool special : {true, false}) {  // of those with one text the special one counts
    for (const auto& [id, token] : tokens.by_id_) {
      if (tokens.IsSpecial(token.content) != special) continue;
      words = words || token.single_word;
      if (token.normalized) {
        tokens.normal_.Add(normalizer.Apply(token.content, false, scratch), id);
      } else {
        tokens.as_it_came_.Add(token.content, id);
      }
    }
  }
  if (words) tokens.word_ = Pattern::FromPcre2("[" + RustWordItems() + "]");
  return tokens;
}

bool AddedTokens::TouchesWord(std::string_view text, size_t begin, size_t end,
                              PatternScratch& scratch) const {
  const auto is_word = [&](size_t from) {
    Match match;
    const std::string_view one = text.substr(from, CodePointBytes(text[from]));
    return word_->Find(one, 0, scratch, &match);
  };
  return (begin > 0 && is_word(Before(text, begin))) || (end < text.size() && is_word(end));
}

std::vector<Stretch> AddedTokens::Split(std::string_view text, bool normalized,
                                        PatternScratch& scratch) const {
  const TextFinder& finder = normalized ? normal_ : as_it_came_;
  std::vector<Stretch> stretches;
  size_t done = 0;
  size_t at = 0;
  while (!finder.empty() && at < text.size()) {
    size_t length = 0;
    const int32_t id = finder.Begins(text[at]) ? finder.Longest(text, at, &length) : -1;
    if (id < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = by_id_.at(id);
    size_t begin = at;
    size_t end = at + length;
    at = end;
    if (token.single_word && TouchesWord(text, begin, end, scratch)) continue;
    if (token.lstrip) begin = std::max(SkipSpacesBack(text, begin, done), done);
    if (token.rstrip) end = SkipSpaces(text, end);
    if (done < begin) stretches.push_back({done, begin, std::nullopt});
    stretches.push_back({begin, end, id});
    done = end;
  }
  if (done != text.size()) stretches.push_back({done, text.size(), std::nullopt});
  return stretches;
}

const AddedToken* AddedTokens::Find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

std::optional<int32_t> AddedTokens::Id(std::string_view content) const {
  const auto found = id_of_.find(content);
  if (found == id_of_.end()) return std::nullopt;
  return found->second;
}

bool AddedTokens::IsSpecial(std::string_view content) const {
  return special_.find(content) != special_.end();
}

}  // namespace gpuctl::trainer
