// Turns text on disk into one stream of byte tokens for training and one held out. Uses no
// LibTorch.
//
// Vocabulary: 0..255 are the bytes, 256 (kBos) stands before every document. The network reads kBos
// but never predicts it, so losses are nats per byte of text.

#ifndef TRAINER_DATA_CORPUS_H_
#define TRAINER_DATA_CORPUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace gpuctl::trainer {

constexpr int32_t kBos = 256;
constexpr int64_t kByteVocabulary = 257;

using TokenStream = std::vector<uint16_t>;

struct Corpus {
  TokenStream train;
  TokenStream held_out;
  int64_t documents = 0;   // distinct documents in use
  int64_t duplicates = 0;  // left out: byte-equal to an earlier one
  int64_t not_text = 0;    // left out: a zero byte in the first 8 KiB
  std::string split;       // "document" or "tail"
  std::string digest;      // sha256 of both streams: the same data gives the same digest
};

// Reads the files that `config` names, in the order of the sorted relative paths; the same files
// give the same streams on every machine. "auto" splits by document when there are at least 20,
// else it holds out the tail.
// Throws Error(kBadData) when a path does not exist or nothing usable is found, Error(kIo) when
// reading fails.
Corpus LoadCorpus(const DataConfig& config, int64_t seed);

// Makes the same from documents in memory.
Corpus MakeCorpus(const std::vector<std::string>& documents, const DataConfig& config,
                  int64_t seed);

// Returns kBos and the bytes of `text`.
TokenStream Encode(const std::string& text);

}  // namespace gpuctl::trainer

#endif  // TRAINER_DATA_CORPUS_H_
