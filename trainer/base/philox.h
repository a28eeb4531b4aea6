// Philox4x32-10 (Salmon et al., SC'11): random numbers as a pure function of (key, counter).
//
// Nothing here has state. So a run needs only the counter to continue exactly where it stopped, and
// two threads never share a generator. Every use draws from its own stream.

#ifndef TRAINER_BASE_PHILOX_H_
#define TRAINER_BASE_PHILOX_H_

#include <array>
#include <cmath>
#include <cstdint>

namespace gpuctl::trainer {

// The purpose of a draw. It is part of the counter, so that two purposes with one seed never get
// the same numbers.
enum class RandomStream : uint32_t {
  kInit = 1,
  kOrder = 2,
  kOffset = 3,
  kSplit = 4,
  kSample = 5,
  kBench = 6,
  kAdapter = 16,     // initial values of adapters
  kDropoutKey = 17,  // the key of a window in an adapter
  kDropout = 18,     // with that key as the seed
};

using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock Philox(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Returns 128 random bits for the `index`-th draw of sub-sequence `sub` (below 2^32) of a stream.
inline PhiloxBlock RandomBlock(uint64_t seed, RandomStream stream, uint64_t sub, uint64_t index) {
  return Philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                 static_cast<uint32_t>(sub), static_cast<uint32_t>(stream)},
                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

inline uint64_t Random64(uint64_t seed, RandomStream stream, uint64_t sub, uint64_t index) {
  const PhiloxBlock block = RandomBlock(seed, stream, sub, index);
  return (uint64_t{block[1]} << 32) | block[0];
}

// Returns a uniform number in [0, 1), with 53 bits.
inline double RandomUniform(uint64_t seed, RandomStream stream, uint64_t sub, uint64_t index) {
  return static_cast<double>(Random64(seed, stream, sub, index) >> 11) * 0x1.0p-53;
}

// Returns a standard normal number (Box-Muller).
inline double RandomNormal(uint64_t seed, RandomStream stream, uint64_t sub, uint64_t index) {
  const PhiloxBlock block = RandomBlock(seed, stream, sub, index);
  const double radius = std::sqrt(-2.0 * std::log((block[0] + 0.5) * 0x1.0p-32));
  return radius * std::cos(6.283185307179586 * ((block[1] + 0.5) * 0x1.0p-32));
}

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_PHILOX_H_
