// A regular expression that chooses lines of a job's output.
#ifndef GPUCTL_CLIENT_VERBS_LINE_PATTERN_H_
#define GPUCTL_CLIENT_VERBS_LINE_PATTERN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// PCRE2's own names, so that its header stays in one file.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace gpuctl {

// Not thread-safe.
class LinePattern {
 public:
  // Takes an expression of PCRE2 (Perl's syntax). INVALID_ARGUMENT says what is wrong and where.
  static absl::StatusOr<LinePattern> Compile(absl::string_view expression);

  // True when it matches anywhere in the line. Bytes that are not UTF-8 match nothing.
  // RESOURCE_EXHAUSTED when it needs too many steps or too much memory for this line: an answer
  // could take for ever.
  absl::StatusOr<bool> Matches(absl::string_view line);

 private:
  LinePattern() = default;
  std::shared_ptr<pcre2_real_code_8> code_;
  std::shared_ptr<pcre2_real_match_data_8> data_;
  std::shared_ptr<pcre2_real_match_context_8> context_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_LINE_PATTERN_H_
