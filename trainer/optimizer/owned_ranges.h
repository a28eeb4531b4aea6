// Which elements of the weights a process updates, where AdamW's moments are divided among
// processes (optimizer.zero).

#ifndef TRAINER_OPTIMIZER_OWNED_RANGES_H_
#define TRAINER_OPTIMIZER_OWNED_RANGES_H_

#include <cstdint>
#include <vector>

#include "trainer/model/parameters.h"
#include "trainer/optimizer/moments.h"

namespace gpuctl::trainer {

// Cuts the sequence of the trained specs into one part a rank, nearly equal ones, at cuts of the
// moments. Returns for each rank the elements of each spec; {0, 0}: none.
std::vector<std::vector<ElementRange>> DivideElements(const std::vector<ParameterSpec>& specs,
                                                      const std::vector<size_t>& trained,
                                                      bool in_8_bits, int64_t ranks);

}  // namespace gpuctl::trainer

#endif  // TRAINER_OPTIMIZER_OWNED_RANGES_H_
