// What the command line of every verb takes besides its own flags.
#ifndef GPUCTL_CLIENT_VERBS_VERB_PARSER_H_
#define GPUCTL_CLIENT_VERBS_VERB_PARSER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/flag_set.h"
#include "client/terminal/console.h"

namespace gpuctl {

class VerbParser : public FlagSet {
 public:
  // The texts are those of FlagSet. `console` must outlive Parse.
  VerbParser(Console& console, const std::string& usage, const std::string& description,
             const std::string& footer = "");

  // False: help was asked for and printed. INVALID_ARGUMENT for what cannot be parsed, with the
  // nearest right flag. Sets the common flags on the console.
  absl::StatusOr<bool> Parse(const std::vector<std::string>& args);

 private:
  Console& console_;
  std::string output_ = "table";
  bool json_ = false;
  bool no_color_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_VERB_PARSER_H_
