#include "trainer/step/out_of_memory.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <new>
#include <system_error>

namespace gpuctl::trainer {

bool IsOutOfMemory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  // A thread needs memory for its stack.
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    return system->code() == std::errc::resource_unavailable_try_again ||
           system->code() == std::errc::not_enough_memory;
  }
  if (dynamic_cast<const c10::Error*>(&error) == nullptr) return false;
  // LibTorch's CPU allocator reports it as a plain error.
  return std::strstr(error.what(), "not enough memory") != nullptr ||
         std::strstr(error.what(), "can't allocate memory") != nullptr;
}

}  // namespace gpuctl::trainer
