#include <cstdio>
#include <exception>

#include "client/base/exit_codes.h"
#include "client/verbs/verb.h"
#include "common/base/heap.h"
#include "common/process/descriptors.h"

int main(int argc, char** argv) {
  gpuctl::KeepHeap();
  gpuctl::ReserveDescriptors(512);  // a scan has 256 files open
  try {
    return gpuctl::RunCommandLine(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpuctl: a bug of ours: %s\n", error.what());
  } catch (...) {
    std::fputs("gpuctl: a bug of ours: unknown exception\n", stderr);
  }
  std::fputs("HINT: please report it with what you typed and gpuctl --version\n", stderr);
  return gpuctl::kExitBug;
}
