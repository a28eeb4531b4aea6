// Words that run files of other tools have where ours have another one. Pure.
#ifndef GPUCTL_CLIENT_WORDS_FOREIGN_WORDS_H_
#define GPUCTL_CLIENT_WORDS_FOREIGN_WORDS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

struct ForeignWord {
  const char* word;  // as other tools call the field
  const char* ours;  // the full name of our field; "" where we have none
  const char* how;   // how it is written here, or what there is instead
};
const std::vector<ForeignWord>& ForeignWords();

// Returns what stands for the field `name` in our run file: "it is resources.gpu here, like gpu:
// H100:1"; "" for an unknown word.
std::string OursFor(absl::string_view name);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORDS_FOREIGN_WORDS_H_
