// gpuctl-cuda-check: tests whether CUDA works here. A driver can look healthy to nvidia-smi and
// refuse every program. It links only libc, so that it starts wherever the driver's library does.
//
// It prints "ok DEVICES" and exits with 0. Otherwise it prints one line about the failure and exits
// with 3 (no driver library), 4 (a call failed) or 5 (no device). With --version it prints its
// version and platform.
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

namespace {

// Types and names of the driver's API; see its documentation (cuda.h).
using CUresult = int;
using CUdevice = int;
using CUcontext = void*;
using CUdeviceptr = unsigned long long;

// The platform that it was compiled for, as common/base/program_version.h names it.
#if defined(__linux__) && defined(__x86_64__)
constexpr char kPlatform[] = "linux-x86_64";
#elif defined(__linux__) && defined(__aarch64__)
constexpr char kPlatform[] = "linux-aarch64";
#else
constexpr char kPlatform[] = "unknown";
#endif

constexpr size_t kTrialBytes = 64u << 20;

struct Driver {
  CUresult (*init)(unsigned flags);
  CUresult (*device_count)(int* count);
  CUresult (*device)(CUdevice* device, int ordinal);
  CUresult (*make_context)(CUcontext* context, unsigned flags, CUdevice device);
  CUresult (*end_context)(CUcontext context);
  CUresult (*allocate)(CUdeviceptr* pointer, size_t bytes);
  CUresult (*fill)(CUdeviceptr pointer, unsigned char value, size_t bytes);
  CUresult (*free)(CUdeviceptr pointer);
  CUresult (*wait)();
};

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) printf("libcuda.so.1 has no %s\n", name);
  return function != nullptr;
}

bool Load(Driver& driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    printf("%s\n", dlerror());
    return false;
  }
  return Find(library, "cuInit", driver.init) &&
         Find(library, "cuDeviceGetCount", driver.device_count) &&
         Find(library, "cuDeviceGet", driver.device) &&
         Find(library, "cuCtxCreate_v2", driver.make_context) &&
         Find(library, "cuCtxDestroy_v2", driver.end_context) &&
         Find(library, "cuMemAlloc_v2", driver.allocate) &&
         Find(library, "cuMemsetD8_v2", driver.fill) &&
         Find(library, "cuMemFree_v2", driver.free) &&
         Find(library, "cuCtxSynchronize", driver.wait);
}

bool Succeeded(const char* call, int device, CUresult result) {
  if (result == 0) return true;
  printf("device %d: %s: error %d\n", device, call, result);
  return false;
}

bool TryDevice(const Driver& driver, int ordinal) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  if (!Succeeded("cuDeviceGet", ordinal, driver.device(&device, ordinal)) ||
      !Succeeded("cuCtxCreate", ordinal, driver.make_context(&context, 0, device))) {
    return false;
  }
  return Succeeded("cuMemAlloc", ordinal, driver.allocate(&memory, kTrialBytes)) &&
         Succeeded("cuMemsetD8", ordinal, driver.fill(memory, 0, kTrialBytes)) &&
         Succeeded("cuCtxSynchronize", ordinal, driver.wait()) &&
         Succeeded("cuMemFree", ordinal, driver.free(memory)) &&
         Succeeded("cuCtxDestroy", ordinal, driver.end_context(context));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--version") == 0) {
    printf("gpuctl-cuda-check %s %s\n", GPUCTL_VERSION, kPlatform);
    return 0;
  }
  Driver driver{};
  if (!Load(driver)) return 3;
  const CUresult started = driver.init(0);
  if (started != 0) {
    printf("cuInit: error %d\n", started);
    return 4;
  }
  int count = 0;
  if (!Succeeded("cuDeviceGetCount", -1, driver.device_count(&count))) return 4;
  if (count == 0) {
    printf("the driver has no device\n");
    return 5;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    if (!TryDevice(driver, ordinal)) return 4;
  }
  printf("ok %d\n", count);
  return 0;
}
