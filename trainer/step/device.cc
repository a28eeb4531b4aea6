#include "trainer/step/device.h"

#include <ATen/Context.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

#include "trainer/base/error.h"
#include "trainer/base/parallel.h"
#include "trainer/base/text.h"
#include "trainer/linear/matmul.h"
#include "trainer/linear/threads.h"
#include "trainer/model/dispatch.h"

namespace gpuctl::trainer {
namespace {

constexpr double kSlowGflops = 20.0;
// n threads of a worker are as fast as n to this power of workers with one thread.
constexpr double kThreadsExponent = 0.9;

// Returns the number of workers with which a batch takes the least time: as long as the largest
// share on its threads, which are worth less than as many workers.
int BestWorkers(int cores, int64_t batch) {
  int best = 1;
  double best_time = std::numeric_limits<double>::infinity();
  for (int workers = 1; workers <= std::min<int64_t>(cores, batch); ++workers) {
    const auto windows = static_cast<double>((batch + workers - 1) / workers);
    const double time = windows / std::pow(cores / workers, kThreadsExponent);
    if (time > best_time) continue;
    best = workers;
    best_time = time;
  }
  return best;
}

// LibTorch has CUDA's library loaded; the trainer itself is not linked with it.
int CudaDevices() {
  using GetCount = int (*)(int*);
  const auto get = reinterpret_cast<GetCount>(dlsym(RTLD_DEFAULT, "cudaGetDeviceCount"));
  int count = 0;
  return get != nullptr && get(&count) == 0 ? count : 1;
}

// Each process of a machine has a GPU of its own, unless it sees only one: its own.
c10::Device CudaDeviceOf(const TrainConfig& config) {
  const int devices = CudaDevices();
  const int64_t index = devices == 1 ? 0 : config.local_rank;
  if (index >= devices) {
    throw ConfigError(Format("use device cuda: this is process %lld of this machine, and LibTorch "
                             "sees %d GPUs",
                             static_cast<long long>(config.local_rank + 1), devices),
                      "start one process a GPU");
  }
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
  if (index > 0) c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(device);
  return device;
}

// Compute capability.
constexpr int kFirstWithBf16 = 80;

}  // namespace

c10::Device ChooseDevice(const TrainConfig& config) {
  const std::string& wanted = config.device;
  const bool cuda = at::hasCUDA();
  const bool mps = at::hasMPS();
  if (wanted == "cuda" && !cuda) throw ConfigError("use device cuda: LibTorch sees none");
  if (wanted == "mps" && !mps) throw ConfigError("use device mps: LibTorch sees none");
  if (wanted == "cuda" || (wanted == "auto" && cuda)) return CudaDeviceOf(config);
  // MPS has no way between processes.
  if (wanted == "mps" || (wanted == "auto" && mps && config.processes == 1))
    return c10::Device(c10::kMPS);
  return c10::Device(c10::kCPU);
}

c10::ScalarType ChooseDtype(const std::string& wanted, const c10::Device& device) {
  const int capability = device.is_cuda() ? CudaCapability() : 0;
  // 0: unknown.
  const bool lacks_bf16 = capability > 0 && capability < kFirstWithBf16;
  if (wanted == "auto" && device.is_cuda()) return lacks_bf16 ? c10::kHalf : c10::kBFloat16;
  if (wanted == "auto" || wanted == "fp32") return c10::kFloat;
  if (device.type() == c10::kMPS) {
    throw ConfigError("use train.dtype " + wanted + ": MPS runs in fp32");
  }
  if (wanted == "bf16" && lacks_bf16) {
    throw ConfigError(
        Format("use train.dtype bf16: this GPU has compute capability %d.%d, and bf16 "
               "needs 8.0",
               capability / 10, capability % 10),
        "use fp16 or auto");
  }
  if (wanted == "fp16" && device.is_cpu() && !TakesDeviceRoutesOnCpu()) {
    throw ConfigError("use train.dtype fp16: the CPU runs in fp32 or bf16");
  }
  return wanted == "fp16" ? c10::kHalf : c10::kBFloat16;
}

std::string NameOfDtype(c10::ScalarType dtype) {
  return dtype == c10::kFloat ? "fp32" : dtype == c10::kHalf ? "fp16" : "bf16";
}

Placement ChoosePlacement(const TrainConfig& config) {
  Placement placement;
  placement.device = ChooseDevice(config);
  placement.dtype = ChooseDtype(config.dtype, placement.device);
  if (placement.device.is_cpu()) {
    const int shared = UsableCores() / static_cast<int>(config.local_processes);
    const int cores = config.threads > 0 ? static_cast<int>(config.threads) : std::max(1, shared);
    placement.workers = BestWorkers(cores, config.share());
    placement.threads = cores / placement.workers;
  }
  return placement;
}

std::string Describe(const Placement& placement) {
  return placement.device.str() + ", " + NameOfDtype(placement.dtype) + ", " +
         std::to_string(placement.workers) + (placement.workers == 1 ? " worker" : " workers") +
         (placement.threads == 1 ? "" : " with " + std::to_string(placement.threads) + " threads");
}

double MeasureSgemm() {
  constexpr int64_t kSize = 512;
  UseOneThreadOfTorch();
  PrepareMatMul();
  const at::Tensor a = at::ones({kSize, kSize});
  const at::Tensor product = MatMul(a, a);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    MatMulInto(a, a, /*add=*/false, product);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2.0 * kSize * kSize * kSize / seconds.count() * 1e-9);
  }
  return best;
}

std::string SlowBlasWarning(double gflops) {
  if (gflops >= kSlowGflops) return "";
  return Format(
      "warning: a matrix product runs at %.1f GFLOP/s a core; an optimised BLAS gives 50 to 100\n"
      "HINT: apt-get install libopenblas0-openmp",
      gflops);
}

int64_t ResidentBytes() {
#ifdef __linux__
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  long long total = 0;
  long long resident = 0;
  const int fields = std::fscanf(file, "%lld %lld", &total, &resident);
  std::fclose(file);
  return fields == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
#else
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<int64_t>(usage.ru_maxrss) : 0;
#endif
}

int64_t PeakResidentBytes() {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __linux__
  constexpr int64_t kUnit = 1024;
#else
  constexpr int64_t kUnit = 1;
#endif
  return static_cast<int64_t>(usage.ru_maxrss) * kUnit;
}

}  // namespace gpuctl::trainer
