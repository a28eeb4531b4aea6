// Where the run happens, decided while running: one program for CUDA, MPS and CPU.

#ifndef TRAINER_TRAIN_DEVICE_H_
#define TRAINER_TRAIN_DEVICE_H_

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "trainer/config/config.h"

namespace gpuctl::trainer {

struct Placement {
  c10::Device device{c10::kCPU};
  c10::ScalarType dtype = c10::kFloat;  // of the weights that multiply; moments are always fp32
  int workers = 1;                      // threads of the team: cores on the CPU, else 1
};

// Throws Error(kBadConfig) when the device that was asked for is not there, or for bf16 on MPS.
Placement ChoosePlacement(const TrainConfig& config);
std::string Describe(const Placement& placement);  // "cpu, fp32, 2 workers"

// Keeps freed tensors in the process instead of handing every page back to the kernel and faulting
// it in again a moment later. Call first in main.
void TuneAllocator();

// GFLOP/s of a 512 x 512 x 512 fp32 product on this thread: the best of a few.
double MeasureSgemm();
// OpenBLAS's name for the kernels it uses ("Haswell", "SkylakeX", …; $OPENBLAS_CORETYPE overrides
// its choice), or "" when another BLAS is loaded.
std::string BlasKernels();
// A warning about a slow BLAS, or "" when `gflops` is what a real one gives.
std::string SlowBlasWarning(double gflops);

// Resident memory of this process; 0 where the system does not say.
int64_t ResidentBytes();

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_DEVICE_H_
