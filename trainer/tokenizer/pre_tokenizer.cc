#include "trainer/tokenizer/pre_tokenizer.h"

#include <map>
#include <utility>

#include "trainer/tokenizer/byte_level.h"
#include "trainer/tokenizer/normalizer.h"
#include "trainer/tokenizer/part_depth.h"
#include "trainer/unicode/oniguruma.h"
#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer {
namespace {

// The expression that ByteLevel splits with, from GPT-2.
constexpr char kGpt2Expression[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The next three follow Rust's character classes, which are of Unicode 16 or later.
std::string NumericItems() {
  return CategoryItems("N") + "\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}";
}

// Punctuation as Unicode 8 had it, and all of ASCII's symbols: without what later versions added.
std::string PunctuationExpression() {
  std::string later =
      "\\x{61D}\\x{9FD}\\x{A76}\\x{C77}\\x{C84}\\x{1B7D}-\\x{1B7E}\\x{2E43}-\\x{2E4F}"
      "\\x{2E52}-\\x{2E5D}\\x{10EAD}\\x{10F55}-\\x{10F59}\\x{10F86}-\\x{10F89}"
      "\\x{1144B}-\\x{1144F}\\x{1145A}-\\x{1145B}\\x{1145D}\\x{11660}-\\x{1166C}\\x{116B9}"
      "\\x{1183B}\\x{11944}-\\x{11946}\\x{119E2}\\x{11A3F}-\\x{11A46}\\x{11A9A}-\\x{11A9C}"
      "\\x{11A9E}-\\x{11AA2}\\x{11C41}-\\x{11C45}\\x{11C70}-\\x{11C71}\\x{11EF7}-\\x{11EF8}"
      "\\x{11FFF}\\x{12FF1}-\\x{12FF2}\\x{16E97}-\\x{16E9A}\\x{16FE2}\\x{1E95E}-\\x{1E95F}";
  // A category has a new code point in every version of PCRE2, or in none.
  const std::string known = "\\p{P}";
  const std::string all = CategoryItems("P");
  later += all.substr(known.size());
  return "(?![" + later + "])\\p{P}|[$+<=>^`|~\\x{166D}\\x{111C9}]";
}

SplitBehavior ReadBehavior(const JsonAt& json) {
  static const std::map<std::string, SplitBehavior> behaviors = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  const auto found = behaviors.find(json.Text());
  if (found == behaviors.end()) json.Refuse("the behavior " + json.Text() + " is not supported");
  return found->second;
}

// A part of a piece: a match, or what lies between matches.
struct Part {
  size_t begin;
  size_t end;
  bool is_match;
};

// Appends the pieces that the parts of one piece become.
void AddPieces(const std::vector<Part>& parts, SplitBehavior behavior, size_t offset,
               std::vector<PieceList::Piece>* pieces) {
  const auto add = [&](size_t begin, size_t end) {
    if (begin == end) return;
    pieces->push_back({static_cast<uint32_t>(offset + begin), static_cast<uint32_t>(offset + end)});
  };
  for (size_t i = 0; i < parts.size();) {
    // Parts i to last become one piece.
    size_t last = i;
    const auto more = [&] { return last + 1 < parts.size(); };
    switch (behavior) {
      case SplitBehavior::kRemoved:
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kContiguous:
        while (more() && parts[last + 1].is_match == parts[i].is_match) ++last;
        break;
      case SplitBehavior::kMergedWithPrevious:
        if (!parts[i].is_match && more() && parts[last + 1].is_match) ++last;
        break;
      case SplitBehavior::kMergedWithNext:
        if (parts[i].is_match && more() && !parts[last + 1].is_match) ++last;
        break;
    }
    if (behavior != SplitBehavior::kRemoved || !parts[i].is_match) {
      add(parts[i].begin, parts[last].end);
    }
    i = last + 1;
  }
}

}  // namespace

void PreTokenizer::Apply(const Split& split, PieceList* list, PatternScratch& scratch) {
  std::vector<PieceList::Piece> pieces;
  pieces.reserve(list->pieces.size() + list->text.size() / 4);
  std::vector<Part> parts;
  for (const PieceList::Piece& piece : list->pieces) {
    const std::string_view text =
        std::string_view(list->text).substr(piece.begin, piece.end - piece.begin);
    parts.clear();
    size_t end = 0;
    Match match;
    for (MatchIterator matches(split.pattern, text, scratch); matches.Next(&match);) {
      if (match.begin != end) parts.push_back({end, match.begin, split.invert});
      parts.push_back({match.begin, match.end, !split.invert});
      end = match.end;
      if (split.behavior == SplitBehavior::kIsolated) {  // no part needs its neighbours
        AddPieces(parts, split.behavior, piece.begin, &pieces);
        parts.clear();
      }
    }
    if (end != text.size()) parts.push_back({end, text.size(), split.invert});
    AddPieces(parts, split.behavior, piece.begin, &pieces);
  }
  list->pieces = std::move(pieces);
}

void PreTokenizer::Apply(const Metaspace& metaspace, PieceList* list) {
  std::string text;
  text.reserve(list->text.size() + list->text.size() / 4);
  for (PieceList::Piece& piece : list->pieces) {
    const std::string_view old =
        std::string_view(list->text).substr(piece.begin, piece.end - piece.begin);
    const bool first = piece.begin == 0;
    const bool wanted =
        metaspace.prefix == Prefix::kAlways
            ? !first || list->beginning != Beginning::kWithin
            : metaspace.prefix == Prefix::kFirst && first && list->beginning == Beginning::kOfText;
    const size_t begin = text.size();
    if (wanted && old[0] != ' ' &&
        old.compare(0, metaspace.replacement.size(), metaspace.replacement) != 0) {
      text += metaspace.replacement;
    }
    for (const char byte : old) {
      if (byte == ' ') {
        text += metaspace.replacement;
      } else {
        text += byte;
      }
    }
    piece = {static_cast<uint32_t>(begin), static_cast<uint32_t>(text.size())};
  }
  list->text = std::move(text);
}

void PreTokenizer::Apply(PieceList* list, PatternScratch& scratch) const {
  const auto rewrite = [&](auto&& append) {
    std::string text;
    for (PieceList::Piece& piece : list->pieces) {
      const std::string_view old =
          std::string_view(list->text).substr(piece.begin, piece.end - piece.begin);
      const size_t begin = text.size();
      append(old, piece.begin, &text);
      piece = {static_cast<uint32_t>(begin), static_cast<uint32_t>(text.size())};
    }
    list->text = std::move(text);
  };
  for (const Step& step : steps_) {
    if (const auto* split = std::get_if<Split>(&step)) {
      Apply(*split, list, scratch);
    } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
      Apply(*metaspace, list);
    } else if (std::holds_alternative<PrefixSpace>(step)) {
      rewrite([list](std::string_view old, size_t begin, std::string* text) {
        const bool within = begin == 0 && list->beginning == Beginning::kWithin;
        if (old[0] != ' ' && !within) *text += ' ';
        text->append(old);
      });
    } else {
      rewrite([](std::string_view old, size_t, std::string* text) { AppendByteLevel(old, text); });
    }
  }
}

void PreTokenizer::AddSplit(const JsonAt& json) {
  steps_.push_back(Split{ReadPattern(json.At("pattern")), ReadBehavior(json.At("behavior")),
                         json.At("invert").Bool()});
}

void PreTokenizer::AddMetaspace(const JsonAt& json) {
  Metaspace metaspace{json.At("replacement").Text(), Prefix::kAlways};
  if (ValidUtf8Prefix(metaspace.replacement) != metaspace.replacement.size() ||
      metaspace.replacement.empty() ||
      CodePointBytes(metaspace.replacement[0]) != metaspace.replacement.size()) {
    json.At("replacement").Refuse("must be one character");
  }
  const std::string scheme = json.TextOr("prepend_scheme", "always");
  if (scheme == "never") {
    metaspace.prefix = Prefix::kNever;
  } else if (scheme == "first") {
    metaspace.prefix = Prefix::kFirst;
  } else if (scheme != "always") {
    json.At("prepend_scheme").Refuse("the scheme " + scheme + " is not supported");
  }
  // The older spelling.
  if (!json.BoolOr("add_prefix_space", true)) {
    if (json.Find("prepend_scheme") && metaspace.prefix != Prefix::kNever) {
      json.At("add_prefix_space").Refuse("contradicts prepend_scheme");
    }
    metaspace.prefix = Prefix::kNever;
  }
  const std::string replacement = metaspace.replacement;
  steps_.push_back(std::move(metaspace));
  if (json.BoolOr("split", true)) {
    steps_.push_back(
        Split{Pattern::FromLiteral(replacement), SplitBehavior::kMergedWithNext, false});
  }
}

void PreTokenizer::AddByteLevel(const JsonAt& json) {
  if (json.At("add_prefix_space").Bool()) steps_.push_back(PrefixSpace());
  if (json.BoolOr("use_regex", true)) {
    static const Pattern gpt2 = Pattern::FromPcre2(TranslateOniguruma(kGpt2Expression));
    steps_.push_back(Split{gpt2, SplitBehavior::kIsolated, false});
  }
  byte_level_ = true;
}

void PreTokenizer::Add(const JsonAt& json, int depth) {
  if (depth > kMaxPartDepth) json.Refuse("is nested too deeply");
  const std::string type = json.At("type").Text();
  if (type == "Sequence") {
    const JsonAt list = json.At("pretokenizers");
    for (size_t i = 0; i < list.Size(); ++i) Add(list.At(i), depth + 1);
    return;
  }
  if (byte_level_) {  // what comes next sees the letters
    steps_.push_back(ByteLetters());
    byte_level_ = false;
  }
  const auto split = [this](const std::string& expression, SplitBehavior behavior, bool invert) {
    steps_.push_back(Split{Pattern::FromPcre2(expression), behavior, invert});
  };
  if (type == "ByteLevel") {
    AddByteLevel(json);
  } else if (type == "Split") {
    AddSplit(json);
  } else if (type == "Metaspace") {
    AddMetaspace(json);
  } else if (type == "Digits") {
    split("[" + NumericItems() + "]",
          json.BoolOr("individual_digits", false) ? SplitBehavior::kIsolated
                                                  : SplitBehavior::kContiguous,
          false);
  } else if (type == "Whitespace") {
    split("[" + RustWordItems() + "]+|[^" + RustWordItems() + SpaceItems() + "]+",
          SplitBehavior::kRemoved, true);
  } else if (type == "WhitespaceSplit") {
    split("[" + SpaceItems() + "]", SplitBehavior::kRemoved, false);
  } else if (type == "Punctuation") {
    const auto behavior = json.Find("behavior");
    split(PunctuationExpression(), behavior ? ReadBehavior(*behavior) : SplitBehavior::kIsolated,
          false);
  } else {
    json.Refuse("the pre-tokenizer " + type + " is not supported");
  }
}

PreTokenizer PreTokenizer::Read(const std::optional<JsonAt>& json) {
  PreTokenizer pre_tokenizer;
  if (json) pre_tokenizer.Add(*json, 0);
  return pre_tokenizer;
}

}  // namespace gpuctl::trainer
