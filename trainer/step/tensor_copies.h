// Copies of live tensors, for a checkpoint that is written while training continues.

#ifndef TRAINER_STEP_TENSOR_COPIES_H_
#define TRAINER_STEP_TENSOR_COPIES_H_

#include "trainer/checkpoint/safetensors.h"
#include "trainer/step/side_stream.h"
#include "trainer/step/team.h"

namespace gpuctl::trainer {

// Returns contiguous copies on the CPU. Uses the memory of `kept`, the copies of an earlier call,
// where names, shapes and dtypes are the same. The members of the team share the work. With `side`
// (or null) the tensors of its device go to pinned memory by it, and are there after side->Wait();
// until then they must neither change nor be freed.
NamedTensors CopyTensors(Team& team, const NamedTensors& live, NamedTensors kept, SideStream* side);

}  // namespace gpuctl::trainer

#endif  // TRAINER_STEP_TENSOR_COPIES_H_
