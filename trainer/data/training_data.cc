#include "trainer/data/training_data.h"

#include <algorithm>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/data/corpus.h"
#include "trainer/data/packed_rows.h"
#include "trainer/data/prepared.h"

namespace gpuctl::trainer {
namespace {

class ByteData : public TrainingData {
 public:
  ByteData(const Config& config, uint64_t seed)
      : corpus_(LoadCorpus(config.data, config.train.seed)),
        windows_(corpus_.train, config.model.context, seed),
        held_out_(corpus_.held_out, config.model.context, config.train.eval_windows),
        bigram_entropy_(BigramEntropy(corpus_.train, held_out_, config.model.context)) {}

  int64_t windows_per_epoch() const override { return windows_.windows_per_epoch(); }
  int64_t FillTraining(int64_t number, const WindowSlot& slot) const override {
    return windows_.Fill(number, slot.inputs, slot.targets);
  }
  int64_t held_out_windows() const override { return held_out_.count(); }
  int64_t FillHeldOut(int64_t index, const WindowSlot& slot) const override {
    return held_out_.Fill(index, slot.inputs, slot.targets);
  }
  bool packed() const override { return false; }
  const std::string& digest() const override { return corpus_.digest; }
  std::string unit() const override { return "byte"; }
  std::optional<double> bigram_entropy() const override { return bigram_entropy_; }

  std::string Describe() const override {
    return Format(
        "%lld documents, %zu training and %zu held-out tokens, split by %s; bigram entropy %.4f "
        "nats/byte",
        static_cast<long long>(corpus_.documents), corpus_.train.size(), corpus_.held_out.size(),
        corpus_.split.c_str(), bigram_entropy_);
  }

 private:
  const Corpus corpus_;
  const TrainingWindows windows_;
  const HeldOutWindows held_out_;
  const double bigram_entropy_;
};

// A run that has nothing to learn, or nothing to be measured by, would report a loss of 0.
void RefuseWithoutTargets(const PackedRows& rows, const std::string& what) {
  const std::string doing = "read data " + rows.rows().path() + ": ";
  if (rows.windows() == 0) throw DataError(doing + "there is no " + what);
  if (rows.HasLearned()) return;
  throw DataError(doing + "no " + what + " has a learned token within model.context",
                  "set model.context to more, or prepare the data with another --mask");
}

// Of a pair both answers count.
void RefuseWithoutAnswer(const PackedRows& rows) {
  const int64_t row = rows.RowWithoutLearned();
  if (row < 0) return;
  throw DataError(Format("read data %s: row %lld of a pair has no learned token within "
                         "model.context",
                         rows.rows().path().c_str(), static_cast<long long>(row)),
                  "set model.context to more, or prepare the data with that --context");
}

class PreparedRows : public TrainingData {
 public:
  PreparedRows(const Config& config, PreparedData data)
      : data_(std::move(data)),
        context_(config.model.context),
        vocabulary_(config.model.vocab_size),
        seed_(static_cast<uint64_t>(config.train.seed)),
        train_(data_.train, context_, config.data.pack && !data_.pairs, seed_),
        // The seed of a run does not change what it is measured by.
        held_out_(data_.held_out, context_, config.data.pack && !data_.pairs, 0),
        held_out_windows_(each() *
                          std::min(held_out_.windows() / each(), config.train.eval_windows)) {
    RefuseWithoutTargets(train_, "row to train on");
    RefuseWithoutTargets(held_out_, "held-out row");
    if (!data_.pairs) return;
    RefuseWithoutAnswer(train_);
    RefuseWithoutAnswer(held_out_);
  }

  int64_t windows_per_epoch() const override { return train_.windows(); }
  int64_t FillTraining(int64_t number, const WindowSlot& slot) const override {
    return train_.Fill(TrainingRow(number), vocabulary_, slot);
  }
  int64_t held_out_windows() const override { return held_out_windows_; }
  int64_t FillHeldOut(int64_t index, const WindowSlot& slot) const override {
    return held_out_.Fill(HeldOutRow(index), vocabulary_, slot);
  }
  bool pairs() const override { return data_.pairs; }
  int64_t rows(bool held_out) const override {
    return (held_out ? data_.held_out : data_.train).rows();
  }
  // What is said of rows here is true of windows, where several rows share one.
  int64_t TrainingRow(int64_t number) const override {
    const int64_t count = train_.windows() / each();
    const int64_t example = number / each();
    const auto epoch = static_cast<uint64_t>(example / count);
    return each() * Permute(example % count, count, seed_, epoch) + number % each();
  }
  int64_t HeldOutRow(int64_t index) const override {
    const int64_t count = held_out_.windows() / each(), seen = held_out_windows_ / each();
    return each() * (index / each() * count / seen) + index % each();
  }
  int64_t FillRow(bool held_out, int64_t row, const WindowSlot& slot) const override {
    return (held_out ? held_out_ : train_).Fill(row, vocabulary_, slot);
  }
  bool packed() const override { return true; }
  const std::string& digest() const override { return data_.digest; }
  std::string unit() const override { return "token"; }

  double filled_share() const override {
    return static_cast<double>(train_.filled()) /
           (static_cast<double>(train_.windows()) * static_cast<double>(context_));
  }

  std::string Describe() const override {
    std::string line =
        data_.pairs
            ? DescribePairs()
            : Format(
                  "%lld rows with %lld tokens in %lld windows, %.1f %% filled; %lld held-out rows",
                  static_cast<long long>(data_.train.rows()),
                  static_cast<long long>(data_.train.tokens()),
                  static_cast<long long>(train_.windows()), 100 * filled_share(),
                  static_cast<long long>(data_.held_out.rows()));
    const int64_t cut = train_.truncated_rows() + held_out_.truncated_rows();
    if (cut > 0) {
      line += Format("; %lld rows are longer than model.context and lose their end",
                     static_cast<long long>(cut));
    }
    return line;
  }

 private:
  int64_t each() const { return data_.pairs ? 2 : 1; }

  std::string DescribePairs() const {
    return Format(
        "%lld pairs with %lld tokens, %.1f %% of their windows filled; %lld held-out pairs",
        static_cast<long long>(data_.train.rows() / 2),
        static_cast<long long>(data_.train.tokens()), 100 * filled_share(),
        static_cast<long long>(data_.held_out.rows() / 2));
  }

  const PreparedData data_;
  const int64_t context_;
  const int64_t vocabulary_;
  const uint64_t seed_;
  const PackedRows train_;
  const PackedRows held_out_;
  const int64_t held_out_windows_;
};

// A run that was meant to learn from pairs must not learn from something else.
void RefuseDpo(const Config& config) {
  const DpoConfig defaults;
  const bool beta = config.dpo.beta != defaults.beta;
  if (!beta && config.dpo.label_smoothing == defaults.label_smoothing) return;
  throw ConfigError(std::string("check dpo: dpo.") + (beta ? "beta" : "label_smoothing") +
                        " is given, but the data has no pairs",
                    "leave it out, or prepare rows with \"chosen\" and \"rejected\"");
}

}  // namespace

bool UsesPreparedData(const DataConfig& config) {
  return config.paths.size() == 1 && IsPrepared(config.paths.front());
}

std::unique_ptr<TrainingData> OpenTrainingData(const Config& config,
                                               const std::string& tokenizer_sha256) {
  CheckDataSettings(config.data, UsesPreparedData(config.data));
  if (!UsesPreparedData(config.data)) {
    RefuseDpo(config);
    for (const std::string& path : config.data.paths) {
      if (!IsPrepared(path)) continue;
      throw ConfigError("find data: " + path + " is prepared data, and stands beside other paths",
                        "name it alone");
    }
    return std::make_unique<ByteData>(config, static_cast<uint64_t>(config.train.seed));
  }
  const std::string& folder = config.data.paths.front();
  PreparedData data = OpenPrepared(folder);
  CheckFitsModel(data, folder, config.model.vocab_size, tokenizer_sha256);
  if (!data.pairs) RefuseDpo(config);
  return std::make_unique<PreparedRows>(config, std::move(data));
}

}  // namespace gpuctl::trainer
