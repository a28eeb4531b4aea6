// The flags that every verb takes besides its own.
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
  // The texts are as for FlagSet. `console` must outlive Parse.
  VerbParser(Console& console, const std::string& usage, const std::string& description,
             const std::string& footer = "");

  // Declares what -q means for a verb that lists: it prints `what` alone, one on each line: "the
  // names". Parse leaves `quiet` false with JSON. Every other verb has a -q that sets the
  // console's `quiet`; Parse declares it.
  Flag Quiet(bool& quiet, const std::string& what);
  // Gives -q of another verb a help text of its own.
  void Quiet(const std::string& help) { quiet_help_ = help; }

  // Parses the arguments and sets the common flags on the console. Returns false when help was
  // asked for and printed, or when console.describe asked for it. INVALID_ARGUMENT when something
  // cannot be parsed; it names the nearest right flag.
  absl::StatusOr<bool> Parse(const std::vector<std::string>& args);

 private:
  Console& console_;
  bool* quiet_ = nullptr;  // of -q, where the verb lists
  bool own_quiet_ = false;
  std::string quiet_help_ = "Print only what a script needs; warnings and errors stay on stderr";
  std::string output_ = "table";
  bool json_ = false;
  bool no_color_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_VERB_PARSER_H_
