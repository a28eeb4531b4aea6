// One optimizer step: gradients over the team, then AdamW.
//
// On the CPU every worker of the team owns leaf tensors that alias the same weights, runs its
// share of the batch, and keeps its own gradients. Then each member adds one shard of all
// gradients, always in the workers' order, and later updates that shard. For a given number of
// workers the result is the same to the last bit, whatever the number of threads in each and their
// scheduling.
// On an accelerator the team has one member and the same steps run there.
//
// With a Group of several processes each runs its share of the rows of each batch, which is the
// same whole batch in all of them. Gradients are added over the processes bucket by bucket during
// the last backward pass; what follows is the same in all of them.

#ifndef TRAINER_STEP_STEPPER_H_
#define TRAINER_STEP_STEPPER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/config.h"
#include "trainer/data/windows.h"
#include "trainer/lora/layout.h"
#include "trainer/model/gpt.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/optimizer/moments.h"
#include "trainer/optimizer/owned_ranges.h"
#include "trainer/ranks/group.h"
#include "trainer/step/device.h"
#include "trainer/step/gradient_buckets.h"
#include "trainer/step/loss_scale.h"
#include "trainer/step/pair_loss.h"
#include "trainer/step/side_stream.h"
#include "trainer/step/team.h"
#include "trainer/step/tensor_copies.h"

namespace gpuctl::trainer {

// A batch of windows on the CPU, int64 [rows, T]; targets of -1 are not scored.
struct Batch {
  at::Tensor inputs_bt;
  at::Tensor targets_bt;
  at::Tensor starts_bt;  // where the documents of packed windows begin; undefined without packing
  int64_t scored = 0;
  int64_t first_window = 0;  // the number of its first row since the run began, for dropout
  // Of pairs, which are rows 2 i and 2 i + 1: for each row the log-probability of its targets under
  // the model that the run began with. Else empty.
  std::vector<float> reference = {};
};

// Makes it of `rows` windows. `fill` writes one of them and returns how many targets are scored.
Batch MakeBatch(int64_t rows, int64_t context, bool packed,
                const std::function<int64_t(int64_t row, const WindowSlot& slot)>& fill);

// Leaves out the places behind the longest row, of windows that have one row each.
void TrimPlaces(Batch* batch);

// Returns the summed loss over the scored targets of the batch. Each worker of the team runs its
// share, `micro_batch` windows at once, with the weights that `weights` returns for it.
double SummedLossOfBatch(Team& team, const GptShape& shape,
                         const std::function<const GptWeights&(int worker)>& weights,
                         const Batch& batch, int64_t micro_batch);

struct GradientResult {
  bool finished = false;  // false: stopped between micro-batches, nothing else is set
  double loss = 0;        // mean over the scored tokens, or over the pairs, of the whole step
  double norm = 0;        // of the gradient of that mean, before clipping
  // In fp16: the gradients are too large for the loss scale. It is halved now, and the step is not
  // to be applied.
  bool overflowed = false;
  PairSums pairs;  // of a batch of pairs
};

class Stepper {
 public:
  // Copies `weights`, as from StartWeights, to the device. Frozen ones (see MakeAdapterLayout) stay
  // as they are: they have no gradients, no moments and, in bf16, no fp32 master. Those beside
  // adapters are shared with the caller where dtype and device allow. Throws Error(kBadConfig) like
  // MakeAdapterLayout.
  // With a `group` (or null) all its ranks make one, and call the same functions in the same order;
  // rank 0's trained weights count.
  Stepper(const Config& config, const Placement& placement, const std::vector<at::Tensor>& weights,
          Group* group = nullptr);

  // Runs forward and backward over the batch in micro-batches. Calls `stop` between them, from
  // every worker's thread. When memory runs out, halves the micro-batch, and does it all again;
  // throws what LibTorch does when it is one window already. What stops one of several processes,
  // or takes its memory, does that to all.
  GradientResult Gradients(const Batch& batch, const std::function<bool()>& stop);

  // Windows, or pairs of them with train.pairs, that a worker runs at once: at first
  // train.micro_batch, or with 0 its share of the batch. The sums of a step depend on it in their
  // last bits.
  int64_t micro_batch() const { return micro_batch_; }
  void SetMicroBatch(int64_t windows) { micro_batch_ = windows; }
  // True while each step adds in a fixed order on an accelerator (train.deterministic). A step ends
  // that which needs an operator without such a way.
  bool deterministic() const { return deterministic_; }

  // Windows, or pairs, of a batch that each rank runs from now on; empty: equal shares.
  void SetShares(std::vector<int64_t> shares) { shares_ = std::move(shares); }
  const std::vector<int64_t>& shares() const { return shares_; }
  // Seconds that this process worked on its share in the last call of Gradients, without waiting
  // for others.
  double work_seconds() const { return work_seconds_; }
  const GradientBuckets* buckets() const { return buckets_.get(); }

  // The factor of the loss, used in fp16 alone.
  const LossScale& loss_scale() const { return loss_scale_; }
  void SetLossScale(const LossScale& scale) { loss_scale_ = scale; }

  // Clips the gradients of the last call and updates with them; overwrites them. `t` counts from 1.
  void Apply(double lr, int64_t t);

  // Returns the summed loss over the scored targets of the batch, of which each rank runs a part.
  double SummedLossOf(const Batch& batch);

  // Returns for each row of the batch the log-probability of all its targets together; each rank
  // runs a part.
  std::vector<float> LogProbabilitiesOf(const Batch& batch);

  // The network, for generating between the steps.
  const GptShape& shape() const { return shape_; }
  const GptWeights& weights() const { return workers_[0].weights; }

  // Returns copies of tensors that Weights() or OptimizerState() returned; see CopyTensors. On CUDA
  // they are there after CopiesArrived(), and the next Apply begins after that.
  NamedTensors Copy(const NamedTensors& live, NamedTensors kept) {
    return CopyTensors(team_, live, std::move(kept), side_.get());
  }
  // Returns a function that waits for them, for any thread; null where they are there at once.
  std::function<void()> CopiesArrived() const;

  // Return views of the live tensors under their names on disk; valid until the next Apply. With
  // adapters Weights returns these alone, in fp32, and the state has no masters.
  NamedTensors Weights() const;
  NamedTensors OptimizerState() const;
  // True when the moments are divided among ranks. Then rank 0 has OptimizerState between Gather,
  // which all ranks call, and Apply or DropGathered.
  bool divided() const { return !owned_.empty(); }
  void Gather();
  void DropGathered() { gathered_.reset(); }
  // Overwrites these tensors. Drops each given one when it is copied, so that both are not there at
  // once. Throws Error(kBadData).
  void Load(std::map<std::string, at::Tensor> weights, std::map<std::string, at::Tensor> optimizer,
            const std::string& what);

  // Returns the gradient of each parameter after Gradients(), in the order of layout().specs;
  // undefined where it is frozen. It has the dtype of the weights where nothing was added to it,
  // else fp32. For tests.
  std::vector<at::Tensor> CurrentGradients() const;
  // Names the first weight that is not finite, or else the first gradient after Gradients(); ""
  // when all are.
  std::string DescribeNotFinite() const;
  const AdapterLayout& layout() const { return layout_; }
  int workers() const { return team_.workers(); }

 private:
  struct Worker {
    std::vector<at::Tensor> leaves;
    GptWeights weights;
    std::shared_ptr<DropoutDraw> draw;
    std::vector<at::Tensor> wide_gradients;  // fp32 sums of gradients in 16 bits, if it adds
    bool adds = false;                       // the step has other gradients than its one
    // Of several processes: what adds to the leaves' gradients, and tells when it has.
    std::vector<std::shared_ptr<void>> accumulators;
    bool in_last = false;  // in its last micro-batch of the step
    at::Tensor loss;       // 0-dimensional, on the device
    PairSums pairs;
    bool stopped = false;
  };
  // Elements [begin, end) of one parameter.
  struct Piece {
    size_t parameter;
    int64_t begin;
    int64_t end;
  };

  void PlaceWeights(const std::vector<at::Tensor>& weights);
  void MakeWorkers();
  int64_t ShardEnd(size_t parameter, int64_t wanted) const;
  void MakeShards();
  GradientResult TryGradients(const Batch& batch, const std::function<bool()>& stop);
  void Forget();
  void ClearGradients(Worker& worker);
  void MakeRoomForSums(Worker& worker) const;
  void RunWorker(int number, const Batch& batch, const std::function<bool()>& stop);
  void RunMicroBatch(Worker& worker, const Batch& batch, int64_t first, int64_t rows);
  at::Tensor RunPairs(Worker& worker, const Batch& batch, int64_t first, int64_t rows);
  // Of several processes.
  std::pair<int64_t, int64_t> OwnRows(const Batch& batch) const;
  void WatchGradients(int number);
  void GradientReady(int number, size_t parameter);
  void MergeWorkers(size_t parameter);
  GradientResult TryTogether(const Batch& batch, const std::function<bool()>& stop);
  GradientResult NormTogether(double loss);
  std::vector<ElementRange> RangesOfOne(size_t parameter, const ElementRange& range) const;
  void CheckSameFrozen();
  void SendFromOwners(const std::vector<std::vector<ElementRange>>& owners);
  std::vector<double> ReduceShard(int member);
  GradientResult ReduceOnDevice();
  at::Tensor NormOnDevice() const;
  void NoteOverflow(GradientResult* result);
  void UpdateShard(int member, double lr, int64_t t, float clip);
  void UpdateOnDevice(double lr, int64_t t);
  void UpdateInOneKernel(double lr, int64_t t, const at::Tensor& clip);
  AdamwStep StepFor(size_t parameter, double lr, int64_t t) const;
  at::Tensor Gradient(const Worker& worker, size_t parameter) const;
  bool wide() const { return placement_.dtype != at::kFloat; }
  bool scales() const { return placement_.dtype == at::kHalf; }
  double scale() const { return scales() ? loss_scale_.scale : 1.0; }

  const Config config_;
  const Placement placement_;
  const AdapterLayout layout_;
  const std::vector<ParameterSpec>& specs_;  // of layout_
  const std::vector<bool>& frozen_;          // of layout_, for each spec
  const std::vector<size_t> trained_;        // the other specs
  Team team_;
  GptShape shape_;
  // One for each spec. Frozen ones have a master only where it is the weight itself.
  std::vector<at::Tensor> masters_;  // fp32; in fp32 the leaves alias them
  std::vector<at::Tensor> compute_;  // placement_.dtype; the same tensors in fp32
  Group* const group_;               // or null
  // For each rank the elements that it updates; empty: each updates all.
  const std::vector<std::vector<ElementRange>> owned_;
  const Moments moments_;
  std::unique_ptr<const Moments> gathered_;   // all of them, on the CPU of rank 0
  std::unique_ptr<GradientBuckets> buckets_;  // null for one process
  std::vector<int64_t> shares_;
  double work_seconds_ = 0;
  std::vector<Worker> workers_;
  std::vector<std::vector<Piece>> shards_;   // one per member, CPU only
  std::vector<std::vector<Piece>> updates_;  // those of them whose moments are here
  std::shared_ptr<SideStream> side_;         // for checkpoints, CUDA only
  LossScale loss_scale_;
  int64_t micro_batch_;
  bool deterministic_;
  double norm_ = 0;
  at::Tensor norm_on_device_;  // of the gradients, which have the loss scale
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_STEP_STEPPER_H_
