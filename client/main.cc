#include "client/verbs/verb.h"
#include "common/base/heap.h"
#include "common/process/descriptors.h"

namespace {

// Runs before the constructors of static objects: gRPC's open descriptors.
__attribute__((constructor(101))) void FillDescriptorsFirst() { gpuctl::FillStandardDescriptors(); }

}  // namespace

int main(int argc, char** argv) {
  gpuctl::KeepHeap();
  gpuctl::ReserveDescriptors(512);  // a scan has 256 files open
  return gpuctl::RunCommandLine(argc, argv);
}
