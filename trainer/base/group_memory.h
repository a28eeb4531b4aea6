// The memory that control groups leave to this process.

#ifndef TRAINER_BASE_GROUP_MEMORY_H_
#define TRAINER_BASE_GROUP_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

namespace gpuctl::trainer {

// Returns the bytes that the process's control group and all groups above it leave, by their
// limits; nothing where none has a limit, or the system has no control groups. What they keep of
// files, and can drop at once, counts as left. Reads `cgroup` and `mountinfo` of `process`, and for
// both versions of control groups what Linux's Documentation/admin-guide/cgroup-v2.rst and
// cgroup-v1/memory.rst say.
std::optional<int64_t> AvailableInGroups(const std::string& process = "/proc/self");

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_GROUP_MEMORY_H_
