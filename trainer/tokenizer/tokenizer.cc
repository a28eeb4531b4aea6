#include "trainer/tokenizer/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/decoder.h"
#include "trainer/tokenizer/normalizer.h"
#include "trainer/tokenizer/post_processor.h"
#include "trainer/tokenizer/pre_tokenizer.h"
#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer {
namespace {

constexpr uint64_t kMaxFileBytes = 128 << 20;
constexpr int kMaxJsonDepth = 64;
// A call for a longer piece gives its memory back.
constexpr size_t kKeptSymbols = 1 << 16;

}  // namespace

// What one call of Encode needs.
struct EncodeScratch {
  PatternScratch patterns;
  BpeScratch bpe;
};

// The scratches that no call uses now.
class ScratchPool {
 public:
  std::unique_ptr<EncodeScratch> Take() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<EncodeScratch> scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<EncodeScratch>();
  }

  void Return(std::unique_ptr<EncodeScratch> scratch) {
    BpeScratch& bpe = scratch->bpe;
    if (bpe.ids.capacity() > kKeptSymbols || bpe.merges.capacity() > kKeptSymbols) {
      BpeScratch fresh;
      std::swap(fresh.cache, bpe.cache);
      bpe = std::move(fresh);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<EncodeScratch>> free_;
};

struct Tokenizer::Parts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  AddedTokens added;
  Surroundings around;
  Decoder decoder;
  mutable ScratchPool pool;

  // Appends the ids of a text; returns how a text behind it begins.
  Beginning EncodePart(std::string_view text, Beginning beginning, std::vector<int32_t>* ids) const;
  // Does the same for a text between added tokens that are looked for as they came.
  Beginning EncodeText(std::string_view text, Beginning beginning, EncodeScratch& scratch,
                       std::vector<int32_t>* ids) const;
  void EncodePieces(std::string_view text, Beginning beginning, EncodeScratch& scratch,
                    std::vector<int32_t>* ids) const;
  const std::string* Token(int32_t id, bool skip_special) const;
};

Beginning Tokenizer::Parts::EncodePart(std::string_view text, Beginning beginning,
                                       std::vector<int32_t>* ids) const {
  if (text.size() > kMaxTextBytes) {
    throw DataError("encode: a text of " + std::to_string(text.size()) + " bytes is too long");
  }
  std::string repaired;
  if (ValidUtf8Prefix(text) != text.size()) {
    repaired = RepairUtf8(text);
    text = repaired;
  }
  // An exception loses the scratch, and nothing else.
  std::unique_ptr<EncodeScratch> scratch = pool.Take();
  for (const Stretch& stretch : added.Split(text, false, scratch->patterns)) {
    if (stretch.id) {
      ids->push_back(*stretch.id);
      beginning = Beginning::kOfWord;
    } else {
      beginning = EncodeText(text.substr(stretch.begin, stretch.end - stretch.begin), beginning,
                             *scratch, ids);
    }
  }
  pool.Return(std::move(scratch));
  return beginning;
}

void Tokenizer::Parts::EncodePieces(std::string_view text, Beginning beginning,
                                    EncodeScratch& scratch, std::vector<int32_t>* ids) const {
  PieceList list;
  list.text = text;
  list.pieces = {{0, static_cast<uint32_t>(text.size())}};
  list.beginning = beginning;
  pre_tokenizer.Apply(&list, scratch.patterns);
  const std::string_view whole = list.text;
  for (const PieceList::Piece& piece : list.pieces) {
    bpe.Encode(whole.substr(piece.begin, piece.end - piece.begin), scratch.bpe, ids);
  }
}

Beginning Tokenizer::Parts::EncodeText(std::string_view text, Beginning beginning,
                                       EncodeScratch& scratch, std::vector<int32_t>* ids) const {
  std::string changed;
  if (!normalizer.empty()) {
    changed =
        normalizer.Apply(std::string(text), beginning == Beginning::kWithin, scratch.patterns);
    if (changed.size() > kMaxTextBytes) throw DataError("encode: the text is too long");
    text = changed;
  }
  for (const Stretch& stretch : added.Split(text, true, scratch.patterns)) {
    if (stretch.id) {
      ids->push_back(*stretch.id);
      beginning = Beginning::kOfWord;
    } else {
      EncodePieces(text.substr(stretch.begin, stretch.end - stretch.begin), beginning, scratch,
                   ids);
      beginning = Beginning::kWithin;
    }
  }
  return beginning;
}

const std::string* Tokenizer::Parts::Token(int32_t id, bool skip_special) const {
  const AddedToken* token = added.Find(id);
  const std::string* content = token != nullptr ? &token->content : bpe.Token(id);
  if (content == nullptr || (skip_special && added.IsSpecial(*content))) return nullptr;
  return content;
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::FromJson(const nlohmann::json& json) {
  const JsonAt root(json, "");
  if (const std::string version = root.TextOr("version", "1.0"); version != "1.0") {
    root.At("version").Refuse("the version " + version + " is not supported, only 1.0");
  }
  Normalizer normalizer = Normalizer::Read(root.Find("normalizer"));
  PreTokenizer pre_tokenizer = PreTokenizer::Read(root.Find("pre_tokenizer"));
  Bpe bpe = Bpe::Read(root.At("model"), pre_tokenizer.byte_level());
  AddedTokens added = AddedTokens::Read(root.Find("added_tokens"), bpe, normalizer);
  return Tokenizer(
      std::unique_ptr<const Parts>(new Parts{std::move(normalizer),
                                             std::move(pre_tokenizer),
                                             std::move(bpe),
                                             std::move(added),
                                             ReadPostProcessor(root.Find("post_processor")),
                                             Decoder::Read(root.Find("decoder")),
                                             {}}));
}

Tokenizer Tokenizer::Load(const std::string& path) {
  try {
    if (FileSize(path) > kMaxFileBytes) throw DataError("is larger than 128 MiB");
    const std::string bytes = ReadWholeFile(path);
    if (MeasureJson(bytes).depth > kMaxJsonDepth) throw DataError("is nested too deeply");
    return FromJson(nlohmann::json::parse(bytes));
  } catch (const nlohmann::json::exception& error) {
    throw DataError("read tokenizer " + path + ": no JSON: " + error.what());
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData) throw;
    throw DataError("read tokenizer " + path + ": " + error.what());
  }
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool add_special) const {
  std::vector<int32_t> ids = EncodeParts(text, {}).ids;
  if (add_special) {
    const Surroundings& around = parts_->around;
    ids.insert(ids.begin(), around.before.begin(), around.before.end());
    ids.insert(ids.end(), around.behind.begin(), around.behind.end());
  }
  return ids;
}

EncodedParts Tokenizer::EncodeParts(std::string_view text, const std::vector<size_t>& cuts) const {
  EncodedParts made;
  Beginning beginning = Beginning::kOfText;
  size_t begin = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t cut = i < cuts.size() ? std::min(cuts[i], text.size()) : text.size();
    const size_t end = std::max(begin, cut);
    beginning = parts_->EncodePart(text.substr(begin, end - begin), beginning, &made.ids);
    made.ends.push_back(made.ids.size());
    begin = end;
  }
  return made;
}

std::vector<int32_t> Tokenizer::EncodeContinuation(std::string_view text) const {
  std::vector<int32_t> ids;
  parts_->EncodePart(text, Beginning::kWithin, &ids);
  return ids;
}

const std::vector<int32_t>& Tokenizer::TokensBefore() const { return parts_->around.before; }
const std::vector<int32_t>& Tokenizer::TokensBehind() const { return parts_->around.behind; }

std::string Tokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view token) const {
  const std::optional<int32_t> id = parts_->added.Id(token);
  return id ? id : parts_->bpe.Find(token);
}

std::optional<std::string> Tokenizer::Token(int32_t id) const {
  const std::string* token = parts_->Token(id, false);
  if (token == nullptr) return std::nullopt;
  return *token;
}

bool Tokenizer::IsSpecial(int32_t id) const {
  const std::string* token = parts_->Token(id, false);
  return token != nullptr && parts_->added.IsSpecial(*token);
}

std::string Tokenizer::BytesWithin(int32_t id) const {
  const std::string* token = parts_->Token(id, /*skip_special=*/true);
  return token == nullptr ? "" : parts_->decoder.BytesWithin(*token);
}

int32_t Tokenizer::VocabularySize() const {
  int32_t size = parts_->bpe.size();
  for (const auto& [id, token] : parts_->added.all()) {
    if (parts_->bpe.Token(id) == nullptr) ++size;
  }
  return size;
}

int32_t Tokenizer::IdEnd() const {
  const auto& added = parts_->added.all();
  return std::max(parts_->bpe.id_end(), added.empty() ? 0 : added.rbegin()->first + 1);
}

struct StreamDecoder::State {
  const Tokenizer::Parts& parts;
  bool skip_special;
  Decoder::State decoder;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : state_(
          new State{*tokenizer.parts_, skip_special, Decoder::State(tokenizer.parts_->decoder)}) {}
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::Push(int32_t id) {
  const std::string* token = state_->parts.Token(id, state_->skip_special);
  return token == nullptr ? "" : state_->parts.decoder.Push(*token, &state_->decoder);
}

std::string StreamDecoder::Finish() { return state_->parts.decoder.Finish(&state_->decoder); }

}  // namespace gpuctl::trainer
