#include "client/terminal/word_wrap.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "client/terminal/line_assembler.h"

namespace gpuctl {

std::vector<std::string> WrapAtWords(absl::string_view line, int columns, int indent) {
  std::vector<std::string> parts;
  std::string part;
  if (columns <= 2 * indent) return {std::string(line)};
  while (DisplayWidth(part) + DisplayWidth(line) > columns) {
    const size_t fits = TruncateToWidth(line, columns - DisplayWidth(part)).size();
    // A space right behind the part may be the break, too.
    size_t space = line.rfind(' ', fits);
    // Spaces at its beginning, as before the words of a table, break nothing.
    const size_t word = line.find_first_not_of(' ');
    if (space == absl::string_view::npos || space <= word) space = line.find(' ', word);
    if (space == absl::string_view::npos) break;
    parts.push_back(absl::StrCat(part, line.substr(0, space)));
    line.remove_prefix(space + 1);
    part = std::string(static_cast<size_t>(indent), ' ');
  }
  parts.push_back(absl::StrCat(part, line));
  return parts;
}

}  // namespace gpuctl
