#include "trainer/tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/tokenizer/byte_level.h"
#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer {
namespace {

constexpr uint64_t kEmptySlot = 0xffffffffffffffff;  // no pair: ids are not negative
constexpr size_t kShort = 48;                        // symbols; above, a heap is faster
constexpr uint32_t kNobody = 0xffffffff;
constexpr uint32_t kMetaspace = 0x2581;  // what SentencePiece writes for a space
constexpr char kMetaspaceText[] = "\xe2\x96\x81";

}  // namespace

MergeTable::MergeTable(size_t count) {
  size_t slots = 16;
  while (slots < count + count / 2) slots *= 2;
  slots_.assign(slots, {kEmptySlot, {kNoRank, 0}});
}

size_t MergeTable::Place(uint64_t pair) const {
  uint64_t hash = pair * 0x9e3779b97f4a7c15;
  hash ^= hash >> 32;
  size_t place = hash & (slots_.size() - 1);
  while (slots_[place].pair != pair && slots_[place].pair != kEmptySlot) {
    place = (place + 1) & (slots_.size() - 1);
  }
  return place;
}

void MergeTable::Set(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  slots_[Place(pair)] = {pair, merge};
}

MergeTable::Merge MergeTable::Find(int32_t left, int32_t right) const {
  return slots_[Place(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right))].merge;
}

void Bpe::ReadVocabulary(const JsonAt& json) {
  if (!json.value().is_object()) json.Refuse("must be an object");
  for (const auto& [token, id] : json.value().items()) {
    const JsonAt entry(id, json.place() + "[\"" + token + "\"]");
    const auto number = static_cast<size_t>(entry.Number(kMaxId));
    if (ValidUtf8Prefix(token) != token.size()) json.Refuse("a token is no valid UTF-8");
    if (number >= tokens_.size()) tokens_.resize(number + 1);
    if (tokens_[number]) {
      entry.Refuse("has the id " + std::to_string(number) + " of \"" + *tokens_[number] + "\"");
    }
    tokens_[number] = token;
    ++token_count_;
  }
  ids_.reserve(token_count_);
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id]) ids_.emplace(*tokens_[id], static_cast<int32_t>(id));
  }
}

void Bpe::AddMerge(const std::string& left, const std::string& right, size_t number,
                   const JsonAt& json) {
  const auto id = [&](const std::string& token) {
    const std::optional<int32_t> found = Find(token);
    if (!found) json.At(number).Refuse("\"" + token + "\" is not in the vocabulary");
    return *found;
  };
  const int32_t left_id = id(left);
  const int32_t right_id = id(right);
  const std::string both = left + right;
  merges_.Set(left_id, right_id, {static_cast<uint32_t>(number), id(both)});
  if (IsStandIn(left_id) || IsStandIn(right_id)) cuts_ = false;
  if (cuts_) FindCuts(both);
}

void Bpe::ReadMerges(const JsonAt& json) {
  const size_t count = json.Size();
  merges_ = MergeTable(count);
  for (size_t i = 0; i < count; ++i) {
    const nlohmann::json& merge = json.value()[i];
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      AddMerge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), i,
               json);
    } else if (merge.is_string()) {
      const std::string& text = merge.get_ref<const std::string&>();
      if (text.compare(0, 8, "#version") == 0) continue;  // a comment
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        json.At(i).Refuse("must be two tokens with a space between them");
      }
      AddMerge(text.substr(0, space), text.substr(space + 1), i, json);
    } else {
      json.At(i).Refuse("must be a text or a list of two texts");
    }
  }
}

void Bpe::ReadUnknown(const JsonAt& json) {
  if (const auto unk = json.Find("unk_token")) {
    unk_token_ = unk->Text();
    unk_id_ = Find(*unk_token_);
  }
  fuse_unk_ = json.BoolOr("fuse_unk", false);
  byte_fallback_ = json.BoolOr("byte_fallback", false);
}

void Bpe::MakeTables() {
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    AppendCodePoint(CharacterOfByte(static_cast<unsigned char>(byte)), &letter);
    const auto place = static_cast<size_t>(byte);
    id_of_byte_[place] = Find(letter).value_or(kNone);
    id_of_fallback_[place] =
        byte_fallback_ ? Find(Format("<0x%02X>", static_cast<unsigned>(byte))).value_or(kNone)
                       : kNone;
  }
  if (byte_level_) return;
  for (const auto& [token, id] : ids_) {
    if (token.empty() || CodePointBytes(token[0]) != token.size()) continue;
    size_t at = 0;
    const uint32_t character = ReadCodePoint(token, &at);
    if (character >= id_of_character_.size()) id_of_character_.resize(character + 1, kNone);
    id_of_character_[character] = id;
  }
}

Bpe Bpe::Read(const JsonAt& json, bool byte_level) {
  const std::string type = json.TextOr("type", "BPE");
  if (type != "BPE") json.At("type").Refuse("the model " + type + " is not supported, only BPE");
  if (const auto dropout = json.Find("dropout")) {
    if (!dropout->value().is_number() || dropout->value().get<double>() != 0) {
      dropout->Refuse("dropout is not supported");
    }
  }
  for (const char* const affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!json.TextOr(affix, "").empty()) json.At(affix).Refuse("is not supported");
  }
  Bpe bpe;
  bpe.byte_level_ = byte_level;
  bpe.ignore_merges_ = json.BoolOr("ignore_merges", false);
  bpe.ReadVocabulary(json.At("vocab"));
  bpe.cuts_ = !byte_level && !bpe.ignore_merges_ && bpe.Find(kMetaspaceText).has_value();
  bpe.ReadUnknown(json);
  bpe.MakeTables();
  bpe.ReadMerges(json.At("merges"));
  return bpe;
}

std::optional<int32_t> Bpe::Find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Bpe::Token(int32_t id) const {
  const auto place = static_cast<size_t>(id);
  return id >= 0 && place < tokens_.size() && tokens_[place] ? &*tokens_[place] : nullptr;
}

// Returns whether a token's text is another one than the text that it stands for.
bool Bpe::IsStandIn(int32_t id) const {
  return id == unk_id_ ||
         std::find(id_of_fallback_.begin(), id_of_fallback_.end(), id) != id_of_fallback_.end();
}

// Notes which characters stand before a metaspace in a token that a merge makes.
void Bpe::FindCuts(const std::string& token) {
  size_t at = 0;
  uint32_t before = kMetaspace;
  while (at < token.size()) {
    const uint32_t character = ReadCodePoint(token, &at);
    if (character == kMetaspace && before != kMetaspace &&
        std::find(no_cut_behind_.begin(), no_cut_behind_.end(), before) == no_cut_behind_.end()) {
      no_cut_behind_.push_back(before);
    }
    before = character;
  }
}

// Returns whether a text can be cut at a metaspace at `at` without changing an id: no merge makes a
// token that has the character before it and then a metaspace. Models like Llama 2 split nothing
// before BPE; words make it fast for them, too.
bool Bpe::IsCut(std::string_view text, size_t at) const {
  size_t begin = at;
  do {
    --begin;
  } while ((static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80);
  const uint32_t before = ReadCodePoint(text, &begin);
  return before != kMetaspace &&
         std::find(no_cut_behind_.begin(), no_cut_behind_.end(), before) == no_cut_behind_.end();
}

void Bpe::Encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>* ids) const {
  if (cuts_) {
    size_t begin = 0;
    for (size_t at = piece.find(kMetaspaceText, 1); at != std::string_view::npos;
         at = piece.find(kMetaspaceText, at + 1)) {
      if (!IsCut(piece, at)) continue;
      EncodeWord(piece.substr(begin, at - begin), scratch, ids);
      begin = at;
    }
    piece.remove_prefix(begin);
  }
  EncodeWord(piece, scratch, ids);
}

void Bpe::EncodeWord(std::string_view word, BpeScratch& scratch, std::vector<int32_t>* ids) const {
  const bool may_keep = word.size() <= PieceCache::kMaxBytes;
  const uint64_t hash = may_keep ? HashBytes(word) : 0;
  if (may_keep && scratch.cache.Find(word, hash, ids)) return;
  scratch.ids.clear();
  if (ignore_merges_) {
    std::string_view letters = word;
    if (byte_level_) {
      scratch.letters.clear();
      AppendByteLevel(word, &scratch.letters);
      letters = scratch.letters;
    }
    if (const auto whole = Find(letters)) scratch.ids.push_back(*whole);
  }
  if (scratch.ids.empty()) {
    AddSymbols(word, &scratch.ids);
    if (scratch.ids.size() > kShort) {
      MergeLong(scratch);
    } else {
      MergeShort(scratch);
    }
  }
  if (may_keep) scratch.cache.Keep(word, hash, scratch.ids.data(), scratch.ids.size());
  ids->insert(ids->end(), scratch.ids.begin(), scratch.ids.end());
}

int32_t Bpe::IdOfUnknown() const {
  if (!unk_id_) {
    throw DataError("encode: the tokenizer's unk_token \"" + *unk_token_ +
                    "\" is not in its vocabulary");
  }
  return *unk_id_;
}

// Appends the ids of the single characters. Unknown ones become bytes, or else the unk_token, or
// else nothing.
void Bpe::AddSymbols(std::string_view word, std::vector<int32_t>* ids) const {
  std::optional<int32_t> unknown;  // waits for its neighbours
  for (size_t at = 0; at < word.size();) {
    std::string letter;
    std::string_view character;
    int32_t id = kNone;
    if (byte_level_) {
      const auto byte = static_cast<unsigned char>(word[at++]);
      id = id_of_byte_[byte];
      if (id == kNone) AppendCodePoint(CharacterOfByte(byte), &letter);
      character = letter;
    } else {
      const size_t begin = at;
      const uint32_t point = ReadCodePoint(word, &at);
      if (point < id_of_character_.size()) id = id_of_character_[point];
      character = word.substr(begin, at - begin);
    }
    if (id != kNone) {
      if (unknown) ids->push_back(*std::exchange(unknown, std::nullopt));
      ids->push_back(id);
      continue;
    }
    const auto fallback = [&](char byte) {
      return id_of_fallback_[static_cast<unsigned char>(byte)];
    };
    if (std::all_of(character.begin(), character.end(),
                    [&](char byte) { return fallback(byte) != kNone; })) {
      // The library leaves an unknown one that waits where it is: it comes behind these.
      for (const char byte : character) ids->push_back(fallback(byte));
    } else if (unk_token_) {
      if (unknown && !fuse_unk_) ids->push_back(*unknown);
      unknown = IdOfUnknown();
    }
  }
  if (unknown) ids->push_back(*unknown);
}

// Looks at all pairs for each merge. The list is short.
void Bpe::MergeShort(BpeScratch& scratch) const {
  std::vector<int32_t>& ids = scratch.ids;
  std::vector<MergeTable::Merge>& merges = scratch.merges;
  if (ids.size() < 2) return;
  merges.resize(ids.size() - 1);
  for (size_t i = 0; i + 1 < ids.size(); ++i) merges[i] = merges_.Find(ids[i], ids[i + 1]);
  while (!merges.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < merges.size(); ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == MergeTable::kNoRank) return;
    ids[best] = merges[best].id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    merges.erase(merges.begin() + static_cast<std::ptrdiff_t>(best));
    if (best < merges.size()) merges[best] = merges_.Find(ids[best], ids[best + 1]);
    if (best > 0) merges[best - 1] = merges_.Find(ids[best - 1], ids[best]);
  }
}

// Keeps the pairs in a heap by rank and then by place, so that n symbols take n log n steps.
void Bpe::MergeLong(BpeScratch& scratch) const {
  std::vector<int32_t>& ids = scratch.ids;
  std::vector<MergeTable::Merge>& merges = scratch.merges;
  std::vector<uint64_t>& heap = scratch.heap;
  const auto count = static_cast<uint32_t>(ids.size());
  scratch.next.resize(count);
  scratch.previous.resize(count);
  merges.assign(count, {MergeTable::kNoRank, 0});
  heap.clear();
  const auto look = [&](uint32_t at) {
    const uint32_t next = scratch.next[at];
    merges[at] = next == count ? MergeTable::Merge{MergeTable::kNoRank, 0}
                               : merges_.Find(ids[at], ids[next]);
    if (merges[at].rank == MergeTable::kNoRank) return;
    heap.push_back(static_cast<uint64_t>(merges[at].rank) << 32 | at);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (uint32_t i = 0; i < count; ++i) {
    scratch.next[i] = i + 1;
    scratch.previous[i] = i == 0 ? kNobody : i - 1;
  }
  for (uint32_t i = 0; i < count; ++i) look(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto at = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    if (merges[at].rank != rank) continue;  // of a pair that is no more
    ids[at] = merges[at].id;
    const uint32_t gone = scratch.next[at];
    merges[gone].rank = MergeTable::kNoRank;
    ids[gone] = kNone;
    scratch.next[at] = scratch.next[gone];
    if (scratch.next[at] != count) scratch.previous[scratch.next[at]] = at;
    look(at);
    if (scratch.previous[at] != kNobody) look(scratch.previous[at]);
  }
  ids.erase(std::remove(ids.begin(), ids.end(), kNone), ids.end());
}

}  // namespace gpuctl::trainer
