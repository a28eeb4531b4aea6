// gpuctl-cuda-check: tests whether CUDA works here. A driver can look healthy to nvidia-smi and
// refuse every program. It links only libc, so that it starts wherever the driver's library does.
//
// Where there are several devices, each one's memory is also copied to each other one, and read
// back: a job with several processes does that all the time, and machines exist where such copies
// fail, hang or bring wrong bytes although each device works.
//
// It prints "ok DEVICES", with several also in how many directions a device reaches the memory of
// another one directly, and exits with 0. Otherwise it prints one line about the failure and exits
// with 3 (no driver library), 4 (a call failed, or a copy is wrong) or 5 (no device). With
// --version it prints its version and platform.
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
// Of a copy between two devices.
constexpr size_t kCopyBytes = 1u << 20;
constexpr int kMostDevices = 64;
// cuCtxEnablePeerAccess: it is enabled already.
constexpr CUresult kAlreadyEnabled = 704;

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
  // For several devices.
  CUresult (*use_context)(CUcontext context);
  CUresult (*can_reach)(int* can, CUdevice device, CUdevice other);
  CUresult (*reach)(CUcontext other, unsigned flags);
  CUresult (*copy)(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                   size_t bytes);
  CUresult (*read)(void* to, CUdeviceptr from, size_t bytes);
};

// A device of several, while they are tried together.
struct Peer {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdeviceptr own = 0;       // filled with the device's number and one
  CUdeviceptr received = 0;  // what another one sent
};

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) printf("libcuda.so.1 has no %s\n", name);
  return function != nullptr;
}

bool Load(void*& library, Driver& driver) {
  library = dlopen("libcuda.so.1", RTLD_NOW);
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

bool LoadForSeveral(void* library, Driver& driver) {
  return Find(library, "cuCtxSetCurrent", driver.use_context) &&
         Find(library, "cuDeviceCanAccessPeer", driver.can_reach) &&
         Find(library, "cuCtxEnablePeerAccess", driver.reach) &&
         Find(library, "cuMemcpyPeer", driver.copy) &&
         Find(library, "cuMemcpyDtoH_v2", driver.read);
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

bool PreparePeer(const Driver& driver, int ordinal, Peer& peer) {
  return Succeeded("cuDeviceGet", ordinal, driver.device(&peer.device, ordinal)) &&
         Succeeded("cuCtxCreate", ordinal, driver.make_context(&peer.context, 0, peer.device)) &&
         Succeeded("cuMemAlloc", ordinal, driver.allocate(&peer.own, kCopyBytes)) &&
         Succeeded("cuMemAlloc", ordinal, driver.allocate(&peer.received, kCopyBytes)) &&
         Succeeded("cuMemsetD8", ordinal,
                   driver.fill(peer.own, static_cast<unsigned char>(ordinal + 1), kCopyBytes)) &&
         Succeeded("cuCtxSynchronize", ordinal, driver.wait());
}

bool PeersSucceeded(const char* call, int from, int to, CUresult result) {
  if (result == 0) return true;
  printf("from device %d to device %d: %s: error %d\n", from, to, call, result);
  return false;
}

// Copies from one device to another, by itself where the two can, else through the processor's
// memory, as the driver chooses. Adds 1 to `direct` in the first case.
bool TryCopy(const Driver& driver, const Peer* peers, int from, int to, int& direct) {
  static unsigned char got[kCopyBytes];
  const Peer& source = peers[from];
  const Peer& target = peers[to];
  int can = 0;
  if (!PeersSucceeded("cuCtxSetCurrent", from, to, driver.use_context(target.context)) ||
      !PeersSucceeded("cuDeviceCanAccessPeer", from, to,
                      driver.can_reach(&can, target.device, source.device))) {
    return false;
  }
  if (can != 0) {
    const CUresult reached = driver.reach(source.context, 0);
    if (reached != kAlreadyEnabled && !PeersSucceeded("cuCtxEnablePeerAccess", from, to, reached)) {
      return false;
    }
    ++direct;
  }
  if (!PeersSucceeded("cuMemsetD8", from, to, driver.fill(target.received, 0, kCopyBytes)) ||
      !PeersSucceeded(
          "cuMemcpyPeer", from, to,
          driver.copy(target.received, target.context, source.own, source.context, kCopyBytes)) ||
      !PeersSucceeded("cuCtxSynchronize", from, to, driver.wait()) ||
      !PeersSucceeded("cuMemcpyDtoH", from, to, driver.read(got, target.received, kCopyBytes))) {
    return false;
  }
  for (const volatile unsigned char& byte : got) {
    if (byte == static_cast<unsigned char>(from + 1)) continue;
    printf("from device %d to device %d: a copy brings wrong bytes\n", from, to);
    return false;
  }
  return true;
}

// Tries each direction between two devices.
bool TryPeers(const Driver& driver, int count, int& direct) {
  static Peer peers[kMostDevices];
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    if (!PreparePeer(driver, ordinal, peers[ordinal])) return false;
  }
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from != to && !TryCopy(driver, peers, from, to, direct)) return false;
    }
  }
  // The process's end frees the contexts.
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--version") == 0) {
    printf("gpuctl-cuda-check %s %s\n", GPUCTL_VERSION, kPlatform);
    return 0;
  }
  static Driver driver;
  void* library = nullptr;
  if (!Load(library, driver)) return 3;
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
  if (count > 1 && count <= kMostDevices) {
    int direct = 0;
    if (!LoadForSeveral(library, driver)) return 3;
    if (!TryPeers(driver, count, direct)) return 4;
    printf("ok %d, direct copies in %d of %d directions\n", count, direct, count * (count - 1));
    return 0;
  }
  printf("ok %d\n", count);
  return 0;
}
