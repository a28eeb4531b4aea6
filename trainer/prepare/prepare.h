// Makes training data of rows of text: the folder that data/prepared.h describes.
//
// Memory does not grow with the data, but for 32 to 64 bytes a row that tell duplicates. Rows are
// encoded on all threads and written in the order of the input, so the same input gives the same
// folder with any number of threads. (A template that prints today's date gives another one
// tomorrow.)

#ifndef TRAINER_PREPARE_PREPARE_H_
#define TRAINER_PREPARE_PREPARE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/prepare/report.h"
#include "trainer/prepare/row_encoder.h"

namespace gpuctl::trainer {

struct PrepareOptions {
  std::string model;              // a folder with tokenizer.json
  std::vector<std::string> data;  // files, or directories of *.jsonl
  std::string out;                // the folder to make
  int64_t context = 0;            // tokens; 0: as many as the model takes
  Mask mask = Mask::kAssistant;
  std::string template_file;  // "": the model's
  double held_out = 0.05;     // the share of rows that is not trained on
  std::string held_out_file;  // the rows that are not trained on, instead
  bool skip_bad_rows = false;
  int64_t samples = 1;               // how many rows the report shows
  int64_t threads = 0;               // 0: one for each core
  std::vector<std::string> prompts;  // to encode for the samples of a run; see data/prompts.h
  std::function<bool()> stop;        // asked often, by any thread; true ends the work
};

// Returns none when `stop` said so. Throws Error(kBadConfig); Error(kBadData) that lists bad rows,
// unless they are skipped; Error(kIo). Nothing but success changes `out`.
std::optional<PrepareReport> Prepare(const PrepareOptions& options);

}  // namespace gpuctl::trainer

#endif  // TRAINER_PREPARE_PREPARE_H_
