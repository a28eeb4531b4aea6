// Chooses the device of the run at run time: one program for CUDA, MPS and CPU.

#ifndef TRAINER_STEP_DEVICE_H_
#define TRAINER_STEP_DEVICE_H_

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "trainer/config/config.h"

namespace gpuctl::trainer {

struct Placement {
  c10::Device device{c10::kCPU};
  c10::ScalarType dtype = c10::kFloat;  // of the weights that multiply; moments are always fp32
  int workers = 1;                      // each runs a part of the batch; on an accelerator 1
  int threads = 1;                      // of each worker; results do not depend on them
};

// Chooses device, dtype, workers and their threads: on CUDA bf16, before compute capability 8.0
// fp16. Throws Error(kBadConfig) when the requested device is not there, or cannot train in the
// dtype.
Placement ChoosePlacement(const TrainConfig& config);
// Chooses the device for train.device, and makes it the one in use.
c10::Device ChooseDevice(const TrainConfig& config);
// Chooses the dtype for train.dtype, as ChoosePlacement does.
c10::ScalarType ChooseDtype(const std::string& wanted, const c10::Device& device);
// "cpu, fp32, 2 workers", "cpu, fp32, 1 worker with 2 threads"
std::string Describe(const Placement& placement);
// Returns the value of train.dtype: "fp32", "bf16" or "fp16".
std::string NameOfDtype(c10::ScalarType dtype);

// Returns the GFLOP/s of a 512 x 512 x 512 fp32 product on this thread: the best of a few.
double MeasureSgemm();
// Returns a warning about a slow BLAS, or "" when `gflops` is normal.
std::string SlowBlasWarning(double gflops);

// Returns the resident memory of this process, in bytes; 0 when the system does not tell.
int64_t ResidentBytes();
// Returns the most that it has been since the process began.
int64_t PeakResidentBytes();

}  // namespace gpuctl::trainer

#endif  // TRAINER_STEP_DEVICE_H_
