// What versions of Unicode treat differently.
//
// The libraries of a machine have different versions: PCRE2 10.42 has Unicode 14 and utf8proc 2.8
// has 15. In Hugging Face's tokenizers 0.22 the regular expressions have Unicode 16 and the
// normalization forms have Unicode 9. Ids must be those of that library, so these tables hold what
// it treats in another way. tests/npm/tokenizers compares all code points with it.

#ifndef TRAINER_UNICODE_VERSIONS_H_
#define TRAINER_UNICODE_VERSIONS_H_

#include <cstdint>
#include <vector>

namespace gpuctl::trainer {

// Code points with a general category that Unicode 14 does not have and Unicode 16 has.
struct AssignedRange {
  uint32_t first;
  uint32_t last;
  char category[3];
};
const std::vector<AssignedRange>& AssignedSince14();

// Returns whether all normalization forms leave it alone, because it came after Unicode 9.
bool IsNewToNormalization(uint32_t point);

}  // namespace gpuctl::trainer

#endif  // TRAINER_UNICODE_VERSIONS_H_
