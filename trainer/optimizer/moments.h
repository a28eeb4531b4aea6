// The moments of AdamW: exp_avg and exp_avg_sq of each trained parameter, in fp32 or in 8 bits.
//
// In 8 bits (block_code.h) a parameter needs 2.03 bytes for an element instead of 8. A small one,
// such as a norm, stays in fp32. Blocks begin anew with each slice of a parameter, so that what is
// saved does not depend on which weights are one matrix here. An update decodes a block, updates in
// fp32 and encodes it again, each by itself: who updates what changes no bit.

#ifndef TRAINER_OPTIMIZER_MOMENTS_H_
#define TRAINER_OPTIMIZER_MOMENTS_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/model/parameters.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/optimizer/block_code.h"

namespace gpuctl::trainer {

// Returns the bytes of both moments of a parameter; `in_8_bits` as in the constructor.
int64_t MomentBytes(const ParameterSpec& spec, bool in_8_bits);

// Elements [begin, end) of a parameter.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Returns the first element from `element` on where an update may end and another begin.
int64_t NextMomentCut(const ParameterSpec& spec, bool in_8_bits, int64_t element);

class Moments {
 public:
  // Makes zeros on the device for each of the specs, which must outlive this, that is not frozen.
  // `in_8_bits` is for those that are not small. `held` has the elements of each spec that have
  // moments here, between two cuts; empty: all elements of all.
  Moments(const std::vector<ParameterSpec>& specs, const std::vector<bool>& frozen, bool in_8_bits,
          c10::Device device, std::vector<ElementRange> held = {});

  bool in_8_bits(size_t parameter) const { return kinds_[0].largest[parameter].defined(); }
  int64_t NextCut(size_t parameter, int64_t element) const;
  // True when all elements of the parameter have their moments here.
  bool whole(size_t parameter) const;
  const ElementRange& held(size_t parameter) const { return held_[parameter]; }

  // Updates the elements [begin, end) of a parameter on the CPU, between two cuts, all of them
  // held. `gradient` and `master` point to its first element. Safe on any thread if ranges do not
  // overlap.
  void UpdateCpu(size_t parameter, const AdamwScalars& step, int64_t begin, int64_t end, float clip,
                 const float* gradient, float* master) const;
  // Updates the held elements of a parameter on any device like AdamwUpdate. In 8 bits by pieces,
  // so that few moments are in fp32 at once.
  void Update(size_t parameter, const AdamwStep& step, const at::Tensor& master,
              const at::Tensor& gradient, const at::Tensor& clip) const;

  // The tensors of one that is in fp32.
  const at::Tensor& exp_avg(size_t parameter) const { return kinds_[0].numbers[parameter]; }
  const at::Tensor& exp_avg_sq(size_t parameter) const { return kinds_[1].numbers[parameter]; }

  // Returns views of the tensors of elements [begin, end), between two cuts, all of them held: flat
  // ones, of both moments; with codes their magnitudes follow.
  std::vector<at::Tensor> Pieces(size_t parameter, int64_t begin, int64_t end) const;

  // Appends views of all tensors, which must be whole: exp_avg.NAME and exp_avg_sq.NAME, fp32 or
  // uint8 codes in the shape of the weight; with codes exp_avg_absmax.NAME and
  // exp_avg_sq_absmax.NAME, fp32 [blocks].
  void AppendTo(NamedTensors* named) const;
  // Overwrites those that are held, and converts those that are stored in the other form. Throws
  // Error(kBadData) when one is missing, has another shape or dtype, is not finite, or is negative
  // where that is impossible; `what` names the source. Each one of `stored` is dropped when it is
  // copied, so that both are not there at once.
  void Load(std::map<std::string, at::Tensor> stored, const std::string& what) const;

 private:
  // One moment of all parameters; undefined tensors for those that are frozen.
  struct Kind {
    CodeKind code;
    std::string name;
    std::vector<at::Tensor>
        numbers;  // fp32 or codes, in the shape of the parameter; flat if a part
    std::vector<at::Tensor> largest;  // of the blocks of all its slices; undefined in fp32
  };
  // A slice of a parameter in flat numbers.
  struct Range {
    int64_t begin;  // elements
    int64_t end;
    int64_t first_block;
  };

  int64_t BlockAt(size_t parameter, int64_t element) const;
  Range RangeOf(size_t parameter, const RowSlice& slice) const;
  void LoadSlice(const Kind& kind, size_t parameter, const RowSlice& slice,
                 const std::map<std::string, at::Tensor>& stored, const std::string& what) const;

  const std::vector<ParameterSpec>& specs_;
  std::vector<ElementRange> held_;
  std::array<Kind, 2> kinds_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_OPTIMIZER_MOMENTS_H_
