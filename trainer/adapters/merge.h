// Adds an adapter to the weights of its model, which makes a model folder that needs no adapter.

#ifndef TRAINER_ADAPTERS_MERGE_H_
#define TRAINER_ADAPTERS_MERGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace gpuctl::trainer {

struct MergeRequest {
  std::string model;
  std::string adapter;
  std::string out;  // a folder that is not there yet
  uint64_t shard_bytes = 4'000'000'000;
  std::function<void()> check = [] {};  // called before each piece; may throw to give up
};

struct MergeResult {
  size_t changed = 0;  // weights
  size_t shards = 0;
  uint64_t bytes = 0;  // of all weights
};

// Writes the folder: the weights in shards of at most `shard_bytes` (one weight may have more) with
// their index, config.json as it is, and the files of tokenizer, template and generation. Weights
// keep their dtype; the sums are in fp32. The folder appears when it is whole. Needs memory for the
// adapter's matrices of one weight and some pieces of 4 MiB; uses all cores. Throws Error(kBadData)
// for an adapter that is not of this model, Error(kBadConfig), Error(kIo).
MergeResult MergeAdapter(const MergeRequest& request);

}  // namespace gpuctl::trainer

#endif  // TRAINER_ADAPTERS_MERGE_H_
