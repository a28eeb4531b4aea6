// Data that `prepare` made from rows of text: tokens of the model's own tokenizer, and which of
// them are learned. Uses no LibTorch.
//
//   <folder>/dataset.json      {"format":1, "digest": sha256 in hex of what the files say,
//                               "tokenizer_sha256": of tokenizer.json, "id_end": N,
//                               "parts": {"train": {"rows","tokens","learned","longest"},
//                                         "held_out": {the same}}, and more for people}
//   <folder>/train.tokens      uint32, little endian: id + 2^31 if the token is learned
//   <folder>/train.ends        uint64, little endian: for each row, the end of its tokens
//   <folder>/held_out.tokens, held_out.ends
//
// A row is a document or a conversation; nothing of one row is seen from another. All its tokens
// but the first can be learned. A row has two tokens or more.
//
// With "format" 2 the rows are pairs: rows 2 i and 2 i + 1 are the chosen and the rejected answer
// to one prompt. Both begin with the same tokens, which are not learned; then something is learned.

#ifndef TRAINER_DATA_PREPARED_H_
#define TRAINER_DATA_PREPARED_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gpuctl::trainer {

constexpr int64_t kPreparedFormat = 1;
constexpr int64_t kPairsFormat = 2;
constexpr char kDatasetFile[] = "dataset.json";
constexpr char kTokensSuffix[] = ".tokens";
constexpr char kEndsSuffix[] = ".ends";
constexpr char kTrainPart[] = "train";
constexpr char kHeldOutPart[] = "held_out";
constexpr uint32_t kLearnedBit = uint32_t{1} << 31;

class MappedFile;

// The rows of one part. They stay on the disk (mmap). Immutable and thread-safe.
class TokenRows {
 public:
  // Maps <folder>/<part>.tokens and .ends. Throws Error(kBadData) when they are missing, are cut
  // off, or do not fit together; Error(kIo).
  TokenRows(const std::string& folder, const std::string& part);
  // Rows in memory, for tests: each a list of words as in the file.
  explicit TokenRows(const std::vector<std::vector<uint32_t>>& rows);

  // The file of the tokens, for messages.
  const std::string& path() const { return path_; }
  int64_t rows() const { return rows_; }
  int64_t tokens() const { return rows_ == 0 ? 0 : End(rows_ - 1); }
  // Returns how many tokens a row has.
  int64_t Size(int64_t row) const { return End(row) - Begin(row); }
  // Throws Error(kBadData) when a file of theirs was cut short since it was opened.
  void CheckWhole() const;
  // Returns its words; there are Size(row) of them.
  const uint32_t* Words(int64_t row) const { return words_ + Begin(row); }

 private:
  int64_t End(int64_t row) const { return static_cast<int64_t>(ends_[row]); }
  int64_t Begin(int64_t row) const { return row == 0 ? 0 : End(row - 1); }

  std::string path_ = "in memory";
  std::shared_ptr<const void> words_owner_;
  std::shared_ptr<const void> ends_owner_;
  std::vector<const MappedFile*> files_;  // none: they are in memory
  const uint32_t* words_ = nullptr;
  const uint64_t* ends_ = nullptr;
  int64_t rows_ = 0;
};

struct PreparedData {
  nlohmann::json description;    // dataset.json
  std::string digest;            // the same data has the same digest
  std::string tokenizer_sha256;  // in hex
  int64_t id_end = 0;            // one more than the highest id of the tokenizer
  bool pairs = false;            // rows are chosen and rejected answers in turn
  TokenRows train;
  TokenRows held_out;
};

// Returns how many tokens, the first one included, come before the first learned one.
int64_t PromptTokens(const uint32_t* words, int64_t size);

// True for a folder that `prepare` made.
bool IsPrepared(const std::string& folder);

// Opens it. Throws Error(kBadData) that names the file; Error(kIo).
PreparedData OpenPrepared(const std::string& folder);

// Throws Error(kBadData) unless a model with `vocabulary` tokens can be trained on the data.
// `tokenizer_sha256` is that of its tokenizer.json, or "".
void CheckFitsModel(const PreparedData& data, const std::string& folder, int64_t vocabulary,
                    const std::string& tokenizer_sha256);

}  // namespace gpuctl::trainer

#endif  // TRAINER_DATA_PREPARED_H_
