#include "trainer/prepare/row_encoder.h"

#include <algorithm>
#include <utility>

#include "trainer/base/text.h"
#include "trainer/data/prepared.h"

namespace gpuctl::trainer {
namespace {

void AddWords(const std::vector<int32_t>& ids, size_t begin, size_t end, bool learned,
              std::vector<uint32_t>* words) {
  for (size_t i = begin; i < end; ++i) {
    words->push_back(static_cast<uint32_t>(ids[i]) | (learned ? kLearnedBit : 0));
  }
}

bool BeginsWithIds(const std::vector<int32_t>& ids, const std::vector<int32_t>& beginning) {
  return ids.size() >= beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), ids.begin());
}

// Cuts words into rows of `most` tokens that overlap by one, so that each is predicted once. The
// first row has room for `room` tokens more.
std::vector<uint32_t> CutDocument(const std::vector<uint32_t>& words, size_t most, size_t room,
                                  std::vector<size_t>* ends) {
  std::vector<uint32_t> made;
  made.reserve(words.size() + words.size() / (most - 1) + 1);
  size_t begin = 0;
  for (size_t end = std::min(words.size(), most - room);;
       end = std::min(words.size(), begin + most)) {
    made.insert(made.end(), words.begin() + static_cast<ptrdiff_t>(begin),
                words.begin() + static_cast<ptrdiff_t>(end));
    ends->push_back(made.size());
    if (end == words.size()) return made;
    begin = end - 1;
  }
}

}  // namespace

RowEncoder::RowEncoder(const std::string& folder, const std::string& template_file, Mask mask,
                       int64_t context)
    : tokenizer_(Tokenizer::Load(folder + "/tokenizer.json")),
      mask_(mask),
      most_(static_cast<size_t>(context) + 1) {
  const std::string end = SpecialToken(ReadTokenizerConfig(folder), "eos_token");
  if (!end.empty()) {
    end_ = tokenizer_.TokenId(end);
    if (!end_) {
      throw DataError("read " + folder + "/tokenizer_config.json: the tokenizer has no eos_token " +
                      end);
    }
  }
  try {
    template_.emplace(ChatTemplate::Load(folder, template_file));
  } catch (const Error& error) {
    if (!template_file.empty() || error.code() != ExitCode::kBadData) throw;
    no_template_ = error;
  }
}

EncodedRow RowEncoder::Encode(const Row& row) const {
  if (!row.is_chat && row.kind == RowKind::kText) return EncodeDocument(row.text, true, true);
  return row.rejected != nullptr ? EncodePair(row) : EncodeOne(row);
}

EncodedRow RowEncoder::EncodeOne(const Row& row) const {
  EncodedRow made = row.is_chat ? EncodeChat(row) : EncodeCompletion(row);
  CutOff(&made);
  return made;
}

EncodedRow RowEncoder::EncodePair(const Row& row) const {
  EncodedRow made = EncodeOne(row);
  const EncodedRow other = EncodeOne(*row.rejected);
  const auto prompt_of = [](const EncodedRow& of) {
    return PromptTokens(of.words.data(), static_cast<int64_t>(of.words.size()));
  };
  const int64_t prompt = prompt_of(made);
  if (prompt != prompt_of(other) ||
      !std::equal(made.words.begin(), made.words.begin() + prompt, other.words.begin())) {
    throw DataError("the template writes the prompt in another way for each answer");
  }
  if (made.words == other.words) {
    const bool cut = made.dropped + other.dropped > 0;
    throw DataError(cut ? Format("the first %zu tokens are the same for both answers", most_)
                        : "both answers have the same tokens",
                    cut ? "raise --context" : "");
  }
  made.words.insert(made.words.end(), other.words.begin(), other.words.end());
  made.ends.push_back(made.words.size());
  made.dropped += other.dropped;
  return made;
}

EncodedRow RowEncoder::EncodeChat(const Row& row) const {
  if (no_template_) throw *no_template_;
  MaskedText masked;
  if (mask_ == Mask::kAll && row.kind != RowKind::kPair) {
    masked.text = template_->Render(row.conversation, /*add_generation_prompt=*/false);
    masked.learned = {{0, masked.text.size()}};
  } else {
    // Of a completion of one message, the prompt may be what the template makes of it.
    const bool one =
        row.first_learned > 0 && row.conversation.messages.size() == row.first_learned + 1;
    masked = template_->RenderMasked(row.conversation,
                                     one || mask_ == Mask::kLast ? Turns::kLast : Turns::kAll,
                                     row.first_learned);
  }
  CheckNoListIsPrinted(row.conversation, masked.text);
  std::vector<size_t> cuts;
  for (const auto& [begin, end] : masked.learned) {
    cuts.push_back(begin);
    cuts.push_back(end);
  }
  const EncodedParts parts = tokenizer_.EncodeParts(masked.text, cuts);
  EncodedRow made;
  size_t begin = 0;
  for (size_t i = 0; i < parts.ends.size(); ++i) {
    AddWords(parts.ids, begin, parts.ends[i], i % 2 == 1, &made.words);
    begin = parts.ends[i];
  }
  return made;
}

EncodedRow RowEncoder::EncodeCompletion(const Row& row) const {
  const EncodedParts parts = tokenizer_.EncodeParts(row.prompt + row.text, {row.prompt.size()});
  EncodedRow made;
  AddBefore(parts.ids, &made.words);
  AddWords(parts.ids, 0, parts.ends[0], mask_ == Mask::kAll && row.kind != RowKind::kPair,
           &made.words);
  AddWords(parts.ids, parts.ends[0], parts.ends[1], true, &made.words);
  AddBehind(&made.words);
  return made;
}

std::vector<int32_t> RowEncoder::EncodePrompt(const std::string& text, bool chat) const {
  if (chat) {
    if (no_template_) throw *no_template_;
    Conversation conversation;
    conversation.messages.push_back({{"role", "user"}, {"content", text}});
    return tokenizer_.Encode(template_->Render(conversation, /*add_generation_prompt=*/true),
                             /*add_special=*/false);
  }
  std::vector<int32_t> ids = tokenizer_.Encode(text, /*add_special=*/false);
  const std::vector<int32_t>& before = tokenizer_.TokensBefore();
  if (!BeginsWithIds(ids, before)) ids.insert(ids.begin(), before.begin(), before.end());
  return ids;
}

// The tokens that begin a text, unless the text has them itself.
void RowEncoder::AddBefore(const std::vector<int32_t>& ids, std::vector<uint32_t>* words) const {
  const std::vector<int32_t>& before = tokenizer_.TokensBefore();
  if (!BeginsWithIds(ids, before)) AddWords(before, 0, before.size(), false, words);
}

// The tokens that end a text and the one that ends a document, unless it ends with them.
void RowEncoder::AddBehind(std::vector<uint32_t>* words) const {
  std::vector<int32_t> behind = tokenizer_.TokensBehind();
  if (end_ && (behind.empty() || behind.back() != *end_)) behind.push_back(*end_);
  size_t there = std::min(behind.size(), words->size());
  const auto is_there = [&] {
    return std::equal(behind.begin(), behind.begin() + static_cast<ptrdiff_t>(there),
                      words->end() - static_cast<ptrdiff_t>(there), [](int32_t id, uint32_t word) {
                        return static_cast<uint32_t>(id) == (word & ~kLearnedBit);
                      });
  };
  while (!is_there()) --there;
  AddWords(behind, there, behind.size(), true, words);
}

EncodedRow RowEncoder::EncodeDocument(const std::string& text, bool first, bool last) const {
  if (first && last && text.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw DataError("has no text");
  }
  const std::vector<int32_t> ids =
      first ? tokenizer_.Encode(text, false) : tokenizer_.EncodeContinuation(text);
  std::vector<uint32_t> words;
  if (first) AddBefore(ids, &words);
  AddWords(ids, 0, ids.size(), true, &words);
  if (last) AddBehind(&words);
  if (first && words.size() < 2) throw DataError("has less than two tokens");
  EncodedRow made;
  if (words.empty()) return made;
  made.words = CutDocument(words, most_, first ? 0 : 1, &made.ends);
  for (size_t i = 0, begin = 0; i < made.ends.size(); begin = made.ends[i++]) {
    if (first || i > 0) made.words[begin] &= ~kLearnedBit;
  }
  return made;
}

// Leaves what fits into the context. The first token is never predicted.
void RowEncoder::CutOff(EncodedRow* row) const {
  if (row->words.empty()) throw DataError("the template writes nothing");
  row->words[0] &= ~kLearnedBit;
  const auto learns = [](uint32_t word) { return (word & kLearnedBit) != 0; };
  const bool learned = std::any_of(row->words.begin(), row->words.end(), learns);
  if (row->words.size() > most_) {
    row->dropped = static_cast<int64_t>(row->words.size() - most_);
    row->words.resize(most_);
  }
  if (!std::any_of(row->words.begin(), row->words.end(), learns)) {
    throw DataError(learned ? Format("its first %zu tokens have nothing to learn", most_)
                            : "it has nothing to learn",
                    learned ? "raise --context" : "");
  }
  row->ends = {row->words.size()};
}

}  // namespace gpuctl::trainer
