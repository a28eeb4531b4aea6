// What a run trains on: text as bytes, or rows of tokens that `prepare` made. Uses no LibTorch.

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
