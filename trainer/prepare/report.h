// What `prepare` says about its data.

#ifndef TRAINER_PREPARE_REPORT_H_
#define TRAINER_PREPARE_REPORT_H_

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/prepare/folder_writer.h"
#include "trainer/prepare/row.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gpuctl::trainer {

struct PrepareReport {
  std::array<int64_t, kRowKinds> rows = {};  // of the input, by RowKind
  std::optional<bool> pairs;                 // whether these are pairs; none: no good row yet
  int64_t bad = 0;
  std::vector<std::string> bad_rows;  // the first of them: "FILE:LINE: why"
  std::string bad_hint;               // for the first of them
  int64_t truncated = 0;
  int64_t dropped = 0;  // tokens of them
  int64_t duplicates = 0;
  int64_t known_held_out = 0;  // rows of held_out_file that are in the data, too
  int64_t chat_tokens = 0;     // of conversations
  int64_t chat_learned = 0;
  int64_t bytes = 0;  // of rows
  int64_t context = 0;
  int64_t model_rows = 0;  // of the model's embedding; 0: not known
  int64_t id_end = 0;
  bool ends_documents = true;
  int64_t held_out_rows = 0;                   // of the input; 0: they come from another file
  PartCounts parts[2];                         // by Part; a pair has two rows
  std::vector<std::vector<uint32_t>> samples;  // the words of the first rows
};

// Returns the figures, which depend on the data and the options only.
nlohmann::ordered_json ReportJson(const PrepareReport& report);

// Returns the same for people, with hints where a figure looks wrong. `seconds` is what it took.
std::string ReportText(const PrepareReport& report, double seconds);

// Returns the text of a row's words, on a terminal in bold where it is learned, else between ⟦ and
// ⟧. Control characters are made visible.
std::string ShownSample(const std::vector<uint32_t>& words, const Tokenizer& tokenizer,
                        bool terminal);

}  // namespace gpuctl::trainer

#endif  // TRAINER_PREPARE_REPORT_H_
