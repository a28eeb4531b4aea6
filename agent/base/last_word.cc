#include "agent/base/last_word.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace gpuctl {

void SayLastWord(int fd, char kind, absl::string_view text) {
  std::string word = absl::StrCat(std::string(1, kind), text.substr(0, kMostWordBytes - 2));
  word += '\0';
  [[maybe_unused]] const ssize_t written = write(fd, word.data(), word.size());
}

}  // namespace gpuctl
