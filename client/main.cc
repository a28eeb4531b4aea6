#include "client/verbs/verb.h"
#include "common/base/heap.h"
#include "common/process/descriptors.h"

int main(int argc, char** argv) {
  gpuctl::KeepHeap();
  gpuctl::ReserveDescriptors(512);  // a scan has 256 files open
  return gpuctl::RunCommandLine(argc, argv);
}
