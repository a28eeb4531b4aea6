#ifndef GPUCTL_TESTS_SUPPORT_FILE_TIMES_H_
#define GPUCTL_TESTS_SUPPORT_FILE_TIMES_H_

#include <sys/stat.h>

#include <array>

namespace gpuctl {

// Returns when a file was read and changed, for futimens and utimensat.
inline std::array<timespec, 2> TimesOf(const struct stat& info) {
#ifdef __APPLE__
  return {info.st_atimespec, info.st_mtimespec};
#else
  return {info.st_atim, info.st_mtim};
#endif
}

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_FILE_TIMES_H_
