// Finds weights and gradients that are not finite, by their names on disk.

#ifndef TRAINER_MODEL_FINITE_H_
#define TRAINER_MODEL_FINITE_H_

#include <ATen/core/Tensor.h>

#include <string>

#include "trainer/model/parameters.h"

namespace gpuctl::trainer {

// Returns the name of the first slice of `flat`, whose spec is `spec`, that holds an infinity or no
// number; "" if there is none, or if `flat` is undefined or packed. Of a matrix in strips it names
// the first slice. Reads it in pieces, so that it needs little memory.
std::string NameOfNotFinite(const ParameterSpec& spec, const at::Tensor& flat);

// Throws Error(kBadData) that begins with `doing` and names that slice.
void CheckFinite(const ParameterSpec& spec, const at::Tensor& flat, const std::string& doing);

}  // namespace gpuctl::trainer

#endif  // TRAINER_MODEL_FINITE_H_
