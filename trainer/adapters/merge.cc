#include "trainer/adapters/merge.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "trainer/adapters/adapter.h"
#include "trainer/adapters/low_rank.h"
#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/base_digest.h"
#include "trainer/checkpoint/folder_files.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/stored_file.h"
#include "trainer/interchange/documents.h"
#include "trainer/interchange/numbers.h"
#include "trainer/interchange/pieces.h"
#include "trainer/interchange/publish.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestModelConfig = 16 << 20;

// One weight of the merged model.
struct Weight {
  StoredPlace base;
  const AdapterModule* module = nullptr;     // what is added
  const StoredPlace* replacement = nullptr;  // what takes its place
};

[[noreturn]] void RefuseAdapter(const Adapter& adapter, const std::string& why) {
  throw DataError(
      Printable("merge " + adapter.path + ": " + why),
      "adapter_config.json names the base model: \"" + Printable(adapter.config.base) + "\"");
}

// Whether two stored tensors have the same bytes; reads them in pieces.
bool SameBytes(const StoredPlace& one, const StoredPlace& other) {
  constexpr uint64_t kPiece = 4 << 20;
  const uint64_t size = one.tensor.end - one.tensor.begin;
  if (one.tensor.dtype != other.tensor.dtype || one.tensor.shape != other.tensor.shape)
    return false;
  std::string left, right;
  for (uint64_t at = 0; at < size; at += kPiece) {
    left.resize(std::min(kPiece, size - at));
    right.resize(left.size());
    one.file->Read(one.tensor, at, left.size(), left.data());
    other.file->Read(other.tensor, at, right.size(), right.data());
    if (left != right) return false;
  }
  return true;
}

// Where one matrix is embedding and head, an adapter may replace it, with both names and the same
// numbers, as PEFT and the trainer save it. Every other change of it alone would change both.
void JoinTied(const std::map<std::string, StoredPlace>& places, const json& config,
              Adapter* adapter) {
  constexpr char kHead[] = "lm_head.weight", kEmbedding[] = "model.embed_tokens.weight";
  const auto found = config.find("tie_word_embeddings");
  const bool stores_head = places.count(kHead) > 0;
  const bool tied =
      !stores_head || (found != config.end() && found->is_boolean() && found->get<bool>());
  if (!tied) return;
  for (const AdapterModule& module : adapter->modules) {
    if (module.name == "lm_head" || module.name == "model.embed_tokens") {
      RefuseAdapter(*adapter, module.name + " cannot change alone: the embedding is also the head");
    }
  }
  const auto head = adapter->replaced.find(kHead), embedding = adapter->replaced.find(kEmbedding);
  const auto none = adapter->replaced.end();
  if (head == none && embedding == none) return;
  if (head == none || embedding == none) {
    RefuseAdapter(*adapter, std::string(head == none ? kEmbedding : kHead) +
                                " cannot change alone: the embedding is also the head");
  }
  if (!SameBytes(head->second, embedding->second)) {
    RefuseAdapter(*adapter, std::string(kEmbedding) + " and " + kHead +
                                " differ, but are one matrix in the model");
  }
  if (!stores_head) adapter->replaced.erase(head);
}

// Returns all weights in the order of the base model's files.
std::vector<Weight> WeightsOf(const Adapter& adapter,
                              const std::map<std::string, StoredPlace>& places) {
  std::map<std::string, const AdapterModule*> modules;
  for (const AdapterModule& module : adapter.modules) {
    const auto found = places.find(module.name + ".weight");
    if (found == places.end()) RefuseAdapter(adapter, "the model has no " + module.name);
    if (found->second.tensor.shape != std::vector<int64_t>{module.rows(), module.columns()}) {
      RefuseAdapter(adapter, module.name + " has another shape in the model");
    }
    modules[found->first] = &module;
  }
  for (const auto& [name, place] : adapter.replaced) {
    const auto found = places.find(name);
    if (found == places.end()) RefuseAdapter(adapter, "the model has no " + name);
    if (found->second.tensor.shape != place.tensor.shape) {
      RefuseAdapter(adapter, name + " has another shape in the model");
    }
    if (modules.count(name) > 0) RefuseAdapter(adapter, name + " is stored whole and as LoRA");
  }
  std::vector<Weight> weights;
  for (const auto& [name, place] : places) {
    const auto module = modules.find(name);
    const auto whole = adapter.replaced.find(name);
    weights.push_back({place, module == modules.end() ? nullptr : module->second,
                       whole == adapter.replaced.end() ? nullptr : &whole->second});
  }
  std::stable_sort(weights.begin(), weights.end(), [](const Weight& a, const Weight& b) {
    return std::make_pair(a.base.file->path(), a.base.tensor.begin) <
           std::make_pair(b.base.file->path(), b.base.tensor.begin);
  });
  return weights;
}

// The rows of a weight as they lie in a file: [rows, width].
struct Layout {
  int64_t rows;
  int64_t width;
};

Layout LayoutOf(const StoredTensor& tensor) {
  Layout layout{1, 1};
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    (i == 0 ? layout.rows : layout.width) *= tensor.shape[i];
  }
  if (layout.width == 0) layout.rows = 0;
  return layout;
}

// The digests of the base model's files, from the bytes that are read for the weights.
class BaseDigests {
 public:
  // Weights come in the order of the files.
  void Begin(const Weight& weight) {
    if (weight.base.file == file_) return;
    End();
    file_ = weight.base.file;
    digest_.emplace(*file_);
  }
  void Add(const Weight& weight, uint64_t first, const std::string& bytes) {
    digest_->Add(weight.base.tensor, first, bytes.data(), bytes.size());
  }
  std::map<std::string, std::string> Take() {
    End();
    return std::move(digests_);
  }

 private:
  void End() {
    if (digest_) digests_[file_->path()] = digest_->Hex();
    digest_.reset();
    file_ = nullptr;
  }

  std::shared_ptr<const StoredFile> file_;
  std::optional<FileDigest> digest_;
  std::map<std::string, std::string> digests_;
};

// Writes the bytes of one weight. `digests`, unless null, gets those that are read of the base.
void WriteWeight(const Weight& weight, const std::function<void()>& check, BaseDigests* digests,
                 OutputFile* file) {
  const StoredPlace& source = weight.replacement != nullptr ? *weight.replacement : weight.base;
  const NumberType from = TypeOfDtype(source.tensor.dtype);
  const NumberType to = TypeOfDtype(weight.base.tensor.dtype);
  const Layout layout = LayoutOf(weight.base.tensor);
  const AdapterModule* module = weight.module;
  std::vector<float> a, b, magnitudes;
  if (module != nullptr) {
    a = ReadNumbers(module->a);
    b = ReadNumbers(module->b);
    if (module->magnitude) magnitudes = ReadNumbers(*module->magnitude);
  }
  const uint64_t row_bytes = BytesOf(from, static_cast<uint64_t>(layout.width));
  const bool hashes = digests != nullptr && weight.replacement == nullptr;
  const auto make = [&](int64_t first, int64_t rows, Piece* piece) {
    piece->read.clear();
    const auto size = static_cast<size_t>(rows * layout.width);
    std::string stored(BytesOf(from, size), '\0');
    source.file->Read(source.tensor, static_cast<uint64_t>(first) * row_bytes, stored.size(),
                      stored.data());
    if (module == nullptr && from == to) {
      piece->bytes.swap(stored);
      return;
    }
    std::vector<float> numbers(size);
    ToFloats(from, stored.data(), size, numbers.data());
    if (module != nullptr) {
      AddLowRank(b.data() + first * module->rank, a.data(), rows, module->rank, layout.width,
                 static_cast<float>(module->scale), numbers.data());
    }
    if (!magnitudes.empty()) {
      SetLengths(magnitudes.data() + first, rows, layout.width, numbers.data());
    }
    if (hashes) piece->read.swap(stored);
    piece->bytes.resize(BytesOf(to, size));
    if (!FromFloats(to, numbers.data(), size, piece->bytes.data())) {
      throw DataError("merge: " + weight.base.tensor.name + " no longer fits into " +
                      weight.base.tensor.dtype);
    }
  };
  uint64_t done = 0;
  if (digests != nullptr) digests->Begin(weight);
  ForPieces(layout.rows, row_bytes, make, [&](const Piece& piece) {
    check();
    const std::string& read = piece.read.empty() ? piece.bytes : piece.read;
    if (hashes) digests->Add(weight, done, read);
    done += read.size();
    file->Write(piece.bytes.data(), piece.bytes.size());
  });
}

// Returns where each shard ends.
std::vector<size_t> ShardEnds(const std::vector<Weight>& weights, uint64_t most) {
  std::vector<size_t> ends;
  uint64_t bytes = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const uint64_t size = weights[i].base.tensor.end - weights[i].base.tensor.begin;
    if (bytes > 0 && bytes + size > most) {
      ends.push_back(i);
      bytes = 0;
    }
    bytes += size;
  }
  ends.push_back(weights.size());
  return ends;
}

// Writes all shards and their index.
void WriteShards(const std::string& folder, const std::vector<Weight>& weights,
                 const MergeRequest& request, BaseDigests* digests, MergeResult* result) {
  const std::vector<size_t> ends = ShardEnds(weights, request.shard_bytes);
  json where = json::object();
  size_t at = 0;
  for (size_t shard = 0; shard < ends.size(); ++shard) {
    const std::string name =
        ends.size() == 1 ? "model.safetensors"
                         : Format("model-%05zu-of-%05zu.safetensors", shard + 1, ends.size());
    std::vector<StoredTensor> tensors;
    for (size_t i = at; i < ends[shard]; ++i) tensors.push_back(weights[i].base.tensor);
    const std::string header = BuildSafetensorsHeader(&tensors, {{"format", "pt"}});
    OutputFile file(folder + "/" + name);
    file.Write(header.data(), header.size());
    for (; at < ends[shard]; ++at) {
      WriteWeight(weights[at], request.check, digests, &file);
      const StoredTensor& tensor = weights[at].base.tensor;
      where[tensor.name] = name;
      result->bytes += tensor.end - tensor.begin;
      const bool changed = weights[at].module != nullptr || weights[at].replacement != nullptr;
      result->changed += changed ? 1 : 0;
    }
    file.Close();
  }
  result->shards = ends.size();
  if (ends.size() == 1) return;
  const json index = {{"metadata", {{"total_size", result->bytes}}}, {"weight_map", where}};
  WriteFileDurably(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
}

// Writes the folder but for its name. `digests`: as that of WriteWeight.
MergeResult WriteMerged(const MergeRequest& request, const json& config,
                        const std::map<std::string, StoredPlace>& places, Adapter* adapter,
                        BaseDigests* digests, const std::string& folder) {
  JoinTied(places, config, adapter);
  MergeResult result;
  WriteShards(folder, WeightsOf(*adapter, places), request, digests, &result);
  WriteFileDurably(folder + "/config.json",
                   ReadWholeFile(request.model + "/config.json", kLargestSettings));
  for (const KeptFile& file : ReadKeptFiles(request.model)) {
    WriteFileDurably(folder + "/" + file.name, *file.bytes);
  }
  return result;
}

}  // namespace

MergeResult MergeAdapter(const MergeRequest& request) {
  const json config = ReadDocument(request.model + "/config.json", kLargestModelConfig);
  const std::map<std::string, StoredPlace> places = OpenWeights(request.model);
  Adapter adapter = ReadAdapter(request.adapter);
  // That of a checkpoint of the trainer's has its base model's digest.
  const bool checks = Exists(request.adapter + "/" + kManifestName);
  NewFolder folder(request.out);
  BaseDigests digests;
  MergeResult result;
  try {
    result = WriteMerged(request, config, places, &adapter, checks ? &digests : nullptr,
                         folder.temporary());
  } catch (const Error& error) {
    // That it is another model says more than what does not fit.
    if (checks && error.code() == ExitCode::kBadData) {
      CheckBase(request.adapter, request.model, BaseDigest(request.model, request.check));
    }
    throw;
  }
  if (checks) CheckBase(request.adapter, request.model, BaseDigest(request.model, digests.Take()));
  folder.Publish();
  return result;
}

}  // namespace gpuctl::trainer
