// What a run trains on: text as bytes, or rows or pairs of rows of tokens that `prepare` made. Uses
// no LibTorch.

#ifndef TRAINER_DATA_TRAINING_DATA_H_
#define TRAINER_DATA_TRAINING_DATA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/data/windows.h"

namespace gpuctl::trainer {

// Immutable and thread-safe.
class TrainingData {
 public:
  virtual ~TrainingData() = default;

  virtual int64_t windows_per_epoch() const = 0;
  // Writes the `number`-th window since the run began. Each epoch has every window once, in an
  // order of its own. Returns how many targets are scored. Throws Error(kBadData).
  virtual int64_t FillTraining(int64_t number, const WindowSlot& slot) const = 0;
  virtual int64_t held_out_windows() const = 0;
  virtual int64_t FillHeldOut(int64_t index, const WindowSlot& slot) const = 0;

  // Whether its windows are pairs: windows 2 i and 2 i + 1 have the chosen and the rejected answer
  // to one prompt, which follow each other in each order.
  virtual bool pairs() const { return false; }
  // Of what a batch counts: 2 where windows are pairs.
  int64_t windows_per_example() const { return pairs() ? 2 : 1; }
  // Of pairs: the rows of both parts, which row a window has, and a row's window.
  virtual int64_t rows(bool /*held_out*/) const { return 0; }
  virtual int64_t TrainingRow(int64_t number) const { return number; }
  virtual int64_t HeldOutRow(int64_t index) const { return index; }
  virtual int64_t FillRow(bool /*held_out*/, int64_t /*row*/, const WindowSlot& /*slot*/) const {
    return 0;
  }

  // Whether a window has several documents, so that slot.starts is needed.
  virtual bool packed() const = 0;
  // The share of the places of all training windows that hold a token.
  virtual double filled_share() const { return 1; }
  virtual const std::string& digest() const = 0;
  // One line about it, for people.
  virtual std::string Describe() const = 0;
  // The unit of its losses: "byte" or "token".
  virtual std::string unit() const = 0;
  // The loss of a table of byte pairs on the held-out windows, in nats per byte; none for tokens.
  virtual std::optional<double> bigram_entropy() const { return std::nullopt; }
};

// True when data.paths is a folder that `prepare` made.
bool UsesPreparedData(const DataConfig& config);

// Opens the data of config.data. `tokenizer_sha256` is that of the model's tokenizer.json, or "".
// Throws Error(kBadConfig) or Error(kBadData) when the data does not fit the model, or cannot be
// used; Error(kIo).
std::unique_ptr<TrainingData> OpenTrainingData(const Config& config,
                                               const std::string& tokenizer_sha256);

}  // namespace gpuctl::trainer

#endif  // TRAINER_DATA_TRAINING_DATA_H_
