// Turns a job's bytes into lines that are safe to show above a panel. Pure.
#ifndef GPUCTL_CLIENT_TERMINAL_LINE_ASSEMBLER_H_
#define GPUCTL_CLIENT_TERMINAL_LINE_ASSEMBLER_H_

#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns a line of a job, safe above a panel. The only control bytes that stay are tabs (as
// spaces) and SGR colour sequences; a line that sets a colour ends with a reset. Bytes that are not
// UTF-8 become U+FFFD. Hidden characters become escapes, as in MakeSafe
// (client/terminal/safe_text.h).
std::string SanitizeLine(absl::string_view line);

// Returns how many columns `text` takes on a terminal. Escape sequences and combining marks take
// none, wide characters two, each byte that is not UTF-8 one. A sequence that some terminals draw
// as one emoji counts as its parts, as the other terminals draw it.
int DisplayWidth(absl::string_view text);
// Returns the beginning of `text` that fits into `width` columns. It ends between two characters as
// a reader sees them: it separates no mark from its letter and splits no emoji.
std::string TruncateToWidth(absl::string_view text, int width);

class LineAssembler {
 public:
  // Takes bytes of the output in order; passes each complete line to `line`, raw, without its
  // newline.
  void Add(absl::string_view bytes, const std::function<void(absl::string_view)>& line);
  // Returns the line that is not complete yet.
  const std::string& partial() const { return partial_; }
  std::string TakePartial();

 private:
  std::string partial_;
};

// Returns what a terminal would show of a line with '\r' in it: the text after the last '\r', or,
// when nothing follows it, the text before it.
absl::string_view AfterCarriageReturns(absl::string_view line);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_LINE_ASSEMBLER_H_
