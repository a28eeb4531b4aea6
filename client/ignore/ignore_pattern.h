// A line of a .gitignore file, and a parser of whole files. Reads no files itself.
#ifndef GPUCTL_CLIENT_IGNORE_IGNORE_PATTERN_H_
#define GPUCTL_CLIENT_IGNORE_IGNORE_PATTERN_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/ignore/git_glob.h"

namespace gpuctl {

class IgnorePattern {
 public:
  // `text` is a line without its end, comment lines excluded: gitignore(5) says what it means.
  IgnorePattern(absl::string_view text, int line, bool ignore_case);

  // `name` is the path below the directory of the pattern's file, without a leading or trailing
  // slash, `basename` its last component.
  bool Matches(absl::string_view name, absl::string_view basename, bool is_directory) const;

  // Returns the line without trailing spaces and line end, as `git check-ignore -v` prints it.
  const std::string& text() const { return text_; }
  int line() const { return line_; }
  // True when the line begins with "!": it includes its matches again.
  bool negative() const { return negative_; }
  // True when its last component has a character that stands for itself: `!.env` and `!*.pem` have
  // one, `!*` and `!data/**` do not.
  bool NamesSomething() const;

 private:
  bool MatchesBasename(absl::string_view basename) const;
  bool MatchesPath(absl::string_view name) const;

  std::string text_;
  int line_;
  bool ignore_case_;
  bool negative_ = false;
  bool directories_only_ = false;  // a slash at the end
  bool basename_only_ = false;     // no slash elsewhere
  bool any_suffix_ = false;        // "*" and then literal_: the name's end is compared
  bool all_literal_ = false;       // literal_ is all there is
  std::string literal_;            // the text before the first wildcard, or after the only "*"
  GitGlob glob_;                   // of the text after literal_; of all text for a basename
};

// Returns the patterns of a file's contents, in its order. Treats a byte order mark, CRLF, a last
// line without an end and everything else as git does.
std::vector<IgnorePattern> ParseIgnoreFile(absl::string_view contents, bool ignore_case);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_IGNORE_IGNORE_PATTERN_H_
