#include "trainer/prepare/report.h"

#include <algorithm>
#include <utility>

#include "trainer/base/text.h"
#include "trainer/data/prepared.h"

namespace gpuctl::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr RowKind kKinds[] = {RowKind::kMessages, RowKind::kPromptCompletion,
                              RowKind::kConversations, RowKind::kText, RowKind::kPair};

int64_t RowsOf(const PrepareReport& report) {
  int64_t rows = 0;
  for (const int64_t count : report.rows) rows += count;
  return rows;
}

double ShareOf(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Returns 1234567 as "1,234,567".
std::string Grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string Percent(int64_t part, int64_t whole) {
  return Format("%.1f %%", 100 * ShareOf(part, whole));
}

std::vector<std::string> HintsOf(const PrepareReport& report) {
  std::vector<std::string> hints;
  const int64_t rows = RowsOf(report);
  const double learned = ShareOf(report.chat_learned, report.chat_tokens);
  if (report.chat_tokens > 0 && learned < 0.005) {
    hints.push_back("almost nothing of the conversations is learned; look at the sample");
  }
  if (learned > 0.995 || (report.chat_tokens > 0 && learned >= 1)) {
    hints.push_back(
        "almost all of the conversations is learned, prompts included; look at the "
        "sample, and at --mask");
  }
  if (ShareOf(report.truncated, rows) > 0.2) {
    hints.push_back("many rows are cut off at their end; raise --context, or shorten them");
  }
  if (report.known_held_out > 0) {
    hints.push_back(Grouped(report.known_held_out) +
                    " held-out rows are trained on, too, or are there twice");
  }
  const int64_t held_out = report.parts[kHeldOut].tokens;
  const int64_t tokens = report.parts[kTrain].tokens + held_out;
  const double share = ShareOf(held_out, tokens), of_rows = ShareOf(report.held_out_rows, rows);
  if (of_rows > 0 && (share < of_rows / 4 || share > of_rows * 4)) {
    hints.push_back(Percent(held_out, tokens) + " of the tokens are held out, and " +
                    Percent(report.held_out_rows, rows) +
                    " of the rows; divide long ones, or name a file with --held-out");
  }
  const int64_t texts = report.rows[static_cast<size_t>(RowKind::kText)];
  if (texts > 0 && !report.ends_documents) {
    hints.push_back(
        "documents have no token that ends them: tokenizer_config.json has no "
        "eos_token");
  }
  if (report.model_rows > 0 && report.id_end > report.model_rows) {
    hints.push_back(Format("the tokenizer has ids up to %lld, the model only %lld rows for them",
                           static_cast<long long>(report.id_end - 1),
                           static_cast<long long>(report.model_rows)));
  }
  return hints;
}

}  // namespace

Json ReportJson(const PrepareReport& report) {
  Json json = {{"rows", RowsOf(report)}};
  for (const RowKind kind : kKinds) {
    json["kinds"][NameOf(kind)] = report.rows[static_cast<size_t>(kind)];
  }
  json["bytes"] = report.bytes;
  json["bad_rows"] = report.bad;
  json["first_bad_rows"] = report.bad_rows;
  json["truncated_rows"] = report.truncated;
  json["dropped_tokens"] = report.dropped;
  json["duplicates"] = report.duplicates;
  json["held_out_duplicates"] = report.known_held_out;
  json["conversation_tokens"] = report.chat_tokens;
  json["conversation_learned"] = report.chat_learned;
  json["hints"] = HintsOf(report);
  return json;
}

std::string ReportText(const PrepareReport& report, double seconds) {
  const PartCounts& train = report.parts[kTrain];
  const PartCounts& held_out = report.parts[kHeldOut];
  const int64_t tokens = train.tokens + held_out.tokens;
  const int64_t pieces = train.rows + held_out.rows;
  std::string kinds;
  for (const RowKind kind : kKinds) {
    const int64_t count = report.rows[static_cast<size_t>(kind)];
    if (count == 0) continue;
    kinds += (kinds.empty() ? "" : ", ") + Grouped(count) + " " + NameOf(kind);
  }
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += Format("%-11s %s\n", name, value.c_str());
  };
  line("rows", Grouped(RowsOf(report)) + " (" + kinds + ")");
  const auto say_part = [&](const char* name, const PartCounts& part) {
    const std::string rows = report.pairs.value_or(false) ? Grouped(part.rows / 2) + " pairs, "
                                                          : Grouped(part.rows) + " rows, ";
    line(name, rows + Grouped(part.tokens) + " tokens");
  };
  say_part("train", train);
  say_part("held out", held_out);
  line("length", Format("%.1f tokens on average, %s at most, context %s", ShareOf(tokens, pieces),
                        Grouped(std::max(train.longest, held_out.longest)).c_str(),
                        Grouped(report.context).c_str()));
  line("learned",
       Percent(train.learned + held_out.learned, tokens) + " of the tokens" +
           (report.chat_tokens == 0 ? ""
                                    : ", " + Percent(report.chat_learned, report.chat_tokens) +
                                          " of those of conversations"));
  line("truncated", Grouped(report.truncated) + " rows, " + Grouped(report.dropped) + " tokens");
  line("duplicates", Grouped(report.duplicates) + " rows, which are kept");
  if (report.bad > 0) {
    line("bad", Grouped(report.bad) + " rows, which are left out");
    for (const std::string& row : report.bad_rows) text += "  " + Printable(row) + "\n";
    if (report.bad > static_cast<int64_t>(report.bad_rows.size())) text += "  …\n";
  }
  line("time", Format("%.1f s, %.1f MB/s", seconds,
                      static_cast<double>(report.bytes) / 1e6 / std::max(seconds, 1e-9)));
  for (const std::string& hint : HintsOf(report)) text += "HINT: " + hint + "\n";
  return text;
}

std::string ShownSample(const std::vector<uint32_t>& words, const Tokenizer& tokenizer,
                        bool terminal) {
  const std::string begin = terminal ? "\x1b[1;32m" : "⟦";
  const std::string end = terminal ? "\x1b[0m" : "⟧";
  StreamDecoder decoder(tokenizer, /*skip_special=*/false);
  std::string shown;
  std::string text;
  bool learned = false;
  const auto turn = [&](bool next) {
    if (next == learned) return;
    shown += Printable(std::exchange(text, "")) + (next ? begin : end);
    learned = next;
  };
  for (const uint32_t word : words) {
    // What a character's last token completes is shown there.
    turn((word & kLearnedBit) != 0);
    text += decoder.Push(static_cast<int32_t>(word & ~kLearnedBit));
  }
  text += decoder.Finish();
  turn(false);
  return shown + Printable(text);
}

}  // namespace gpuctl::trainer
