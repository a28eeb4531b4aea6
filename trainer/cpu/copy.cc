#include "trainer/cpu/copy.h"

#include <cstring>

#if defined(__x86_64__)

#include <emmintrin.h>

#include <algorithm>
#include <cstdint>

namespace gpuctl::trainer::cpu {
namespace {

constexpr size_t kLine = 64;  // bytes of a line of the caches

}  // namespace

void CopyPastCaches(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  // Lines are written as a whole.
  const size_t before = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(target)) % kLine);
  std::memcpy(target, source, before);
  target += before;
  source += before;
  bytes -= before;
  for (; bytes >= kLine; bytes -= kLine, target += kLine, source += kLine) {
    __m128i part[4];
    for (int i = 0; i < 4; ++i) {
      part[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source) + i);
    }
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(target) + i, part[i]);
  }
  std::memcpy(target, source, bytes);
  _mm_sfence();
}

}  // namespace gpuctl::trainer::cpu

#else

namespace gpuctl::trainer::cpu {

void CopyPastCaches(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

}  // namespace gpuctl::trainer::cpu

#endif
