#include "common/files/copy_file.h"

namespace gpuctl {

bool CloneFile(int /*from_fd*/, int /*to_fd*/) { return false; }

int64_t CopyInKernel(int /*from_fd*/, int /*to_fd*/, int64_t /*offset*/, int64_t /*length*/) {
  return 0;
}

int64_t SendInKernel(int, int, int64_t, int64_t) { return 0; }

}  // namespace gpuctl
