#include "common/copy_file.h"

namespace gpuctl {

int64_t CopyInKernel(int /*from_fd*/, int /*to_fd*/) { return 0; }

}  // namespace gpuctl
