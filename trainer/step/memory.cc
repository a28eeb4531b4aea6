#include "trainer/step/memory.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/group_memory.h"
#include "trainer/base/text.h"
#include "trainer/linear/frozen_head.h"
#include "trainer/linear/matmul.h"
#include "trainer/lora/layout.h"
#include "trainer/model/gpt.h"
#include "trainer/optimizer/moments.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kTokenBytes = 3 * 8;      // a place of the batch: input, target, start
constexpr double kPackedBytes = 0.516;      // a weight in NF4, with its factors
constexpr int64_t kThreadBytes = 4 << 20;   // of a CPU thread: its stack, arena and packed operands
constexpr int64_t kLibraryBytes = 4 << 20;  // what LibTorch and oneDNN take in the first step
// Measured: the place of a freed tensor is not filled whole by the next ones (base/tensor_heap.h).
constexpr double kFragments = 0.04;
constexpr int64_t kKeptLogitBytes = 32 << 20;
// With this many tokens at once the products are large enough; more are no faster.
constexpr int64_t kCpuTokens = 1024;
constexpr int64_t kDeviceTokens = 32768;

int64_t Elements(const ParameterSpec& spec) {
  int64_t count = 1;
  for (const int64_t extent : spec.shape) count *= extent;
  return count;
}

size_t IndexOfHead(const ModelConfig& model, const AdapterLayout& layout) {
  if (model.tied_head) return 0;
  const auto is_head = [](const auto& spec) {
    return spec.slices.front().name == "lm_head.weight";
  };
  return static_cast<size_t>(std::find_if(layout.specs.begin(), layout.specs.end(), is_head) -
                             layout.specs.begin());
}

// Elements of the weights of a run.
struct Counts {
  int64_t all = 0;
  int64_t trained = 0;
  int64_t wide = 0;       // fp32 on each device
  int64_t moments = 0;    // bytes of AdamW's
  int64_t packed = 0;     // frozen ones in 4 bits
  int64_t embedding = 0;  // its elements, if it is trained
  bool head_frozen = false;
  bool matrices_trained = false;
  int64_t adapter_ranks = 0;  // of the adapters of one block, together
  int64_t dora_rows = 0;      // of its matrices that have magnitudes
  int64_t first_block = 0;    // with a trained weight; those before it keep nothing
};

// Returns the lowest block whose output depends on a trained weight, or how many there are.
int64_t FirstTrainedBlock(const AdapterLayout& layout, int64_t layers) {
  if (!layout.frozen[0]) return 0;
  int64_t first = layers;
  for (size_t i = 0; i < layout.specs.size(); ++i) {
    if (layout.frozen[i]) continue;
    const int64_t block = BlockOfName(layout.specs[i].slices.front().name);
    if (block >= 0) first = std::min(first, block);
  }
  return first;
}

Counts CountWeights(const Config& config, const AdapterLayout& layout) {
  Counts counts;
  for (size_t i = 0; i < layout.specs.size(); ++i) {
    const int64_t elements = Elements(layout.specs[i]);
    counts.all += elements;
    if (!layout.frozen[i]) {
      counts.trained += elements;
      counts.moments += MomentBytes(layout.specs[i], config.optimizer.HasSmallState());
    }
    if (layout.specs[i].stays_wide) counts.wide += elements;
    if (!layout.frozen[i] && i < layout.model_specs && layout.specs[i].shape.size() == 2) {
      counts.matrices_trained = true;
    }
  }
  if (!layout.frozen[0]) counts.embedding = Elements(layout.specs[0]);
  counts.head_frozen = layout.frozen[IndexOfHead(config.model, layout)];
  counts.first_block = FirstTrainedBlock(layout, config.model.layers);
  for (const AdaptedMatrix& matrix : layout.matrices) {
    if (!matrix.packed_rows.empty()) counts.packed += Elements(layout.specs[matrix.spec]);
    if (matrix.block == 0) {
      counts.adapter_ranks += static_cast<int64_t>(matrix.parts.size()) * config.lora.rank;
      if (config.lora.dora && !matrix.parts.empty()) {
        counts.dora_rows += layout.specs[matrix.spec].shape[0];
      }
    }
  }
  return counts;
}

// Elements of the softmax that attention keeps for one window and layer: a block of 128 queries
// has the keys up to its last one.
int64_t SoftmaxElements(const ModelConfig& m, bool windowed) {
  constexpr int64_t kBlock = 128;
  int64_t elements = 0;
  for (int64_t first = 0; first < m.context; first += kBlock) {
    const int64_t rows = std::min(kBlock, m.context - first);
    int64_t keys = first + rows;
    if (windowed) keys = std::min(keys, m.window + rows - 1);
    elements += m.heads * rows * keys;
  }
  return elements;
}

// What a block keeps of one token, in elements, without the softmax.
int64_t KeptOfToken(const ModelConfig& m, const Counts& counts) {
  const int64_t heads = m.heads * m.head_dim(), keys = m.kv_heads * m.head_dim();
  // Its input and that of the feed-forward; q, k and v; gate and up.
  int64_t kept = 2 * m.d_model + heads + 2 * keys + 2 * m.ffn;
  // The inputs of its four linears.
  if (counts.matrices_trained || counts.adapter_ranks > 0) kept += 2 * m.d_model + heads + m.ffn;
  if (m.qk_norm) kept += heads + 2 * keys;
  if (m.sandwich_norms) kept += 2 * m.d_model;
  // DoRA keeps what the magnitudes multiply.
  return kept + counts.adapter_ranks + counts.dora_rows;
}

// What the backward pass of a block needs beside what is kept, in elements of one token.
int64_t PassingOfToken(const ModelConfig& m) {
  return 3 * m.d_model + std::max(4 * m.ffn, 3 * (m.heads + 2 * m.kv_heads) * m.head_dim());
}

// The windows, or pairs, of a worker's share of the part of the batch that this process runs.
int64_t ShareOfWorker(const Config& config, int workers) {
  return (config.train.share() + workers - 1) / workers;
}

struct WorkerNeed {
  int64_t activations = 0;
  int64_t gradients = 0;
  // Recomputed blocks are there for a moment. It is hardly the same one in all workers, which share
  // a heap: so much less the others need.
  int64_t apart = 0;
};

WorkerNeed NeedOfWorker(const Config& config, const Counts& counts, const Placement& placement,
                        int64_t micro_batch) {
  const ModelConfig& m = config.model;
  const bool wide = placement.dtype != c10::kFloat, on_cpu = placement.device.is_cpu();
  const int64_t width = wide ? 2 : kFloatBytes;
  // Gradients in 16 bits are added in fp32 where a step has several of them.
  const bool adds = wide && (placement.workers > 1 || config.train.processes > 1 ||
                             micro_batch < ShareOfWorker(config, placement.workers));
  micro_batch *= config.train.windows_per_example();
  const int64_t tokens = micro_batch * m.context;
  // CUDA's attention keeps no softmax.
  const auto softmax_of = [&](bool windowed) {
    return placement.device.is_cuda() ? 0 : micro_batch * SoftmaxElements(m, windowed);
  };
  int64_t blocks = 0, largest = 0;
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    const int64_t block = tokens * KeptOfToken(m, counts) + softmax_of(m.HasWindow(layer));
    largest = std::max(largest, block);
    if (layer >= counts.first_block) blocks += config.train.recompute ? tokens * m.d_model : block;
  }
  if (config.train.recompute) blocks += largest;
  const int64_t softmax =
      softmax_of(false) / std::max<int64_t>(1, m.context) * std::min<int64_t>(128, m.context);
  int64_t passing = tokens * PassingOfToken(m) + 2 * softmax;
  // The factors of dropout, and the inputs times these.
  if (config.lora.dropout > 0) passing += 2 * tokens * std::max(m.d_model, m.ffn);
  // On a device logits and their log-softmax in fp32, and the gradient.
  const int64_t logit_bytes = on_cpu ? kFloatBytes : 2 * kFloatBytes + (wide ? width : 0);
  const bool in_parts = counts.head_frozen && on_cpu && !wide && MatMulLibrary() == "avx2";
  const int64_t logits = in_parts
                             ? FrozenHeadBytes(tokens, m.d_model, m.vocab_size, placement.threads)
                             : std::min(tokens, LogitRows(m, on_cpu)) * m.vocab_size * logit_bytes;
  // The last hidden rows, normed, and their gradients.
  const int64_t ends = 4 * tokens * m.d_model;
  WorkerNeed need;
  // What is larger the cross entropy keeps (model/linear_cross_entropy.cc).
  const bool kept = on_cpu && !in_parts && logits >= kKeptLogitBytes;
  need.activations = width * (blocks + ends) +
                     (kept ? logits + width * passing : std::max(logits, width * passing));
  if (on_cpu) {
    need.activations += static_cast<int64_t>(kFragments * static_cast<double>(need.activations));
    if (config.train.recompute) need.apart = width * largest;
  }
  need.gradients = counts.trained * (adds ? width + kFloatBytes : width);
  // AdamW widens some at once, when the activations are gone.
  if (wide && !adds) {
    need.activations =
        std::max(need.activations, kFloatBytes * std::min(counts.trained, kMostWidened));
  }
  // The gradient of the lookup, before it is added to that of the head. On the CPU in fp32 its rows
  // are added at once.
  if (!on_cpu || wide) need.gradients += counts.embedding * width;
  // That of the head is summed over the chunks in fp32.
  if (wide && !on_cpu) need.gradients += counts.embedding * kFloatBytes;
  return need;
}

std::optional<int64_t> AvailableOnCpu() {
  std::optional<int64_t> available;
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    int64_t kib = 0;
    if (key == "MemAvailable:" && file >> kib) available = kib * 1024;
    file.ignore(1 << 20, '\n');
  }
  if (!available) {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
    if (pages > 0 && size > 0) available = int64_t{pages} * size;
  }
  const std::optional<int64_t> in_groups = AvailableInGroups();
  if (in_groups && available) return std::min(*available, *in_groups);
  return available;
}

struct DeviceMemory {
  int64_t available;
  int64_t used;
};

// LibTorch has CUDA's library loaded; the trainer itself is not linked with it.
std::optional<DeviceMemory> MemoryOfCuda() {
  using GetInfo = int (*)(size_t*, size_t*);
  const auto get_info = reinterpret_cast<GetInfo>(dlsym(RTLD_DEFAULT, "cudaMemGetInfo"));
  size_t available = 0, total = 0;
  if (get_info == nullptr || get_info(&available, &total) != 0) return std::nullopt;
  return DeviceMemory{static_cast<int64_t>(available), static_cast<int64_t>(total - available)};
}

std::string Gigabytes(int64_t bytes) {
  return Format(bytes < 10'000'000'000 ? "%.2f GB" : "%.1f GB", static_cast<double>(bytes) * 1e-9);
}

// The micro-batches to try, the largest first.
std::vector<int64_t> MicroBatches(const Config& config, const Placement& placement) {
  const int64_t share = ShareOfWorker(config, placement.workers);
  if (config.train.micro_batch > 0) return {std::min(config.train.micro_batch, share)};
  const int64_t tokens = placement.device.is_cpu() ? kCpuTokens : kDeviceTokens;
  const int64_t most = std::min(
      share,
      std::max<int64_t>(1, tokens / (config.model.context * config.train.windows_per_example())));
  std::vector<int64_t> tried;
  for (int64_t windows = most; windows > 1; windows = (windows + 1) / 2) tried.push_back(windows);
  tried.push_back(1);
  return tried;
}

class Planner {
 public:
  Planner(const Config& config, std::optional<int64_t> available, int64_t base)
      : config_(config), available_(available), base_(base) {}

  // Returns the first plan that fits, or else the last.
  MemoryPlan Plan(const Placement& placement) const {
    const bool writes = !config_.checkpoint.dir.empty() && config_.train.rank == 0;
    MemoryPlan plan = FirstOfWorkers(placement, writes);
    if (Fits(plan.estimate) || !writes) return plan;
    plan = FirstOfWorkers(placement, false);
    plan.copies_checkpoints = false;
    return plan;
  }

  bool Fits(const MemoryEstimate& estimate) const {
    return !available_ || estimate.total - base_ <= *available_;
  }

 private:
  MemoryPlan First(const Placement& placement, bool copies) const {
    MemoryPlan plan;
    plan.available = available_;
    for (const int64_t micro_batch : MicroBatches(config_, placement)) {
      plan.placement = placement;
      plan.micro_batch = micro_batch;
      plan.estimate = EstimateMemory(config_, placement, micro_batch, copies, base_);
      if (Fits(plan.estimate)) break;
    }
    return plan;
  }

  // Tries fewer and fewer workers, with more threads each.
  MemoryPlan FirstOfWorkers(Placement placement, bool copies) const {
    const int cores = placement.workers * placement.threads;
    for (;; --placement.workers) {
      placement.threads = cores / placement.workers;
      MemoryPlan plan = First(placement, copies);
      if (Fits(plan.estimate) || placement.workers == 1) return plan;
    }
  }

  const Config& config_;
  const std::optional<int64_t> available_;
  const int64_t base_;
};

// Returns words for a change of the configuration with which the run fits, or "".
std::string FindFittingChange(const Config& config, const Placement& placement,
                              std::optional<int64_t> available, int64_t base) {
  struct Change {
    std::string words;
    Config config;
  };
  std::vector<Change> changes;
  const auto add = [&](const std::string& words, const Config& from, const auto& change) {
    changes.push_back({words, from});
    change(changes.back().config);
  };
  add("train.micro_batch=1", config, [](Config& c) { c.train.micro_batch = 1; });
  const Config one = changes.back().config;
  add("train.micro_batch=1 and train.recompute=true", one,
      [](Config& c) { c.train.recompute = true; });
  const Config again = changes.back().config;
  if (!config.optimizer.HasSmallState()) {
    add("optimizer.state=int8, train.micro_batch=1 and train.recompute=true", again,
        [](Config& c) { c.optimizer.state = "int8"; });
  }
  if (config.lora.rank == 0 && !config.model.init.empty()) {
    add("lora.rank=16, train.micro_batch=1 and train.recompute=true", again, [](Config& c) {
      c.lora.rank = 16;
      c.lora.targets = {"all-linear"};
      c.train.freeze.clear();
    });
  }
  for (const Change& change : changes) {
    const Planner planner(change.config, available, base);
    if (planner.Fits(planner.Plan(placement).estimate)) return change.words;
  }
  return "";
}

}  // namespace

MemoryEstimate EstimateMemory(const Config& config, const Placement& placement, int64_t micro_batch,
                              bool checkpoints, int64_t base) {
  const AdapterLayout layout = MakeAdapterLayout(config);
  const Counts counts = CountWeights(config, layout);
  const bool wide = placement.dtype != c10::kFloat;
  const int64_t width = wide ? 2 : kFloatBytes;
  MemoryEstimate estimate;
  const int64_t dense = counts.all - counts.packed;
  estimate.weights = wide ? width * (dense - counts.wide) + kFloatBytes * counts.wide +
                                kFloatBytes * counts.trained
                          : kFloatBytes * dense;
  estimate.weights += static_cast<int64_t>(kPackedBytes * static_cast<double>(counts.packed));
  // Rounded up: parts begin at certain elements only.
  const int64_t parts = config.optimizer.zero > 0 ? config.train.processes : 1;
  estimate.moments = (counts.moments + parts - 1) / parts;
  const WorkerNeed worker = NeedOfWorker(config, counts, placement, micro_batch);
  estimate.gradients = placement.workers * worker.gradients;
  estimate.activations = placement.workers * worker.activations;
  if (placement.device.is_cpu()) {
    estimate.activations += placement.workers * placement.threads * kThreadBytes -
                            (placement.workers - 1) * worker.apart;
  }
  if (checkpoints) {
    const int64_t saved = layout.adapted() ? counts.trained : counts.all;
    estimate.snapshot = width * saved + counts.moments + (wide ? kFloatBytes * counts.trained : 0);
    // They are gathered before they are copied.
    if (parts > 1) estimate.snapshot += counts.moments;
  }
  estimate.total = estimate.weights + estimate.moments + estimate.gradients + estimate.activations;
  if (placement.device.is_cpu()) {
    estimate.base = base + kLibraryBytes;
    estimate.batch = kTokenBytes * config.train.batch * config.train.windows_per_example() *
                     config.model.context;
    estimate.total += estimate.snapshot + estimate.batch + estimate.base;
  }
  return estimate;
}

std::optional<int64_t> AvailableMemory(const Placement& placement) {
  if (!placement.device.is_cuda()) return AvailableOnCpu();
  const std::optional<DeviceMemory> memory = MemoryOfCuda();
  return memory ? std::make_optional(memory->available) : std::nullopt;
}

int64_t UsedMemory(const Placement& placement) {
  const std::optional<DeviceMemory> memory =
      placement.device.is_cuda() ? MemoryOfCuda() : std::nullopt;
  return memory ? memory->used : ResidentBytes();
}

MemoryPlan PlanMemory(const Config& config, const Placement& placement,
                      std::optional<int64_t> available, int64_t base) {
  const Planner planner(config, available, base);
  MemoryPlan plan = planner.Plan(placement);
  if (planner.Fits(plan.estimate)) return plan;
  const std::string change = FindFittingChange(config, placement, available, base);
  throw ConfigError("plan memory: there is too little: " + Describe(plan),
                    change.empty() ? "take a smaller model, shorter windows (model.context), fewer "
                                     "of them (train.batch) or a larger machine"
                                   : "it fits with " + change);
}

std::string Describe(const MemoryPlan& plan) {
  const MemoryEstimate& e = plan.estimate;
  std::string line = "about " + Gigabytes(e.total);
  if (plan.available) line += " of " + Gigabytes(*plan.available + e.base);
  line += Format(": weights %s, moments %s, gradients %s, activations %s",
                 Gigabytes(e.weights).c_str(), Gigabytes(e.moments).c_str(),
                 Gigabytes(e.gradients).c_str(), Gigabytes(e.activations).c_str());
  if (e.snapshot > 0) line += ", a checkpoint's copy " + Gigabytes(e.snapshot);
  if (e.batch > 100'000'000) line += ", the batch " + Gigabytes(e.batch);
  if (!plan.copies_checkpoints) line += ", training waits for checkpoints";
  if (e.base > 0) line += ", the program " + Gigabytes(e.base);
  return line + Format("; %lld windows at once", static_cast<long long>(plan.micro_batch));
}

}  // namespace gpuctl::trainer
