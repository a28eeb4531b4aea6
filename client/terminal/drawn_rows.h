// What stays of rows that a program draws again and again, as tqdm's nested bars do: each goes down
// by a newline, draws its bar and comes back up (ESC [A).
#ifndef GPUCTL_CLIENT_TERMINAL_DRAWN_ROWS_H_
#define GPUCTL_CLIENT_TERMINAL_DRAWN_ROWS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Follows the cursor from the first move upwards on; before it every line passes at once. A row
// passes as a terminal shows it when a line that draws nothing again follows below it, or when many
// rows are below it.
class DrawnRows {
 public:
  // Takes the next line of the output, raw, without its newline. Passes each row that will not be
  // drawn again to `row`.
  void Add(absl::string_view line, const std::function<void(absl::string_view)>& row);
  // Passes all rows that are left.
  void Finish(const std::function<void(absl::string_view)>& row);
  // Returns the last row that did not pass yet and is not blank; "" when there is none.
  absl::string_view Last() const;

 private:
  // Draws `text` into the cursor's row, and follows the cursor.
  void Draw(absl::string_view text);
  // Passes the first `count` rows.
  void Pass(size_t count, const std::function<void(absl::string_view)>& row);

  bool follows_ = false;           // the output moved the cursor up once
  std::vector<std::string> rows_;  // not passed yet
  size_t cursor_ = 0;              // index into rows_, or its size
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_DRAWN_ROWS_H_
