// The flags and arguments that the command line of one verb takes. CLI11 parses them. Only
// flag_set.cc includes its header, which costs more to compile than all else that a verb needs.
#ifndef GPUCTL_CLIENT_BASE_FLAG_SET_H_
#define GPUCTL_CLIENT_BASE_FLAG_SET_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gpuctl {

// What a verb takes, for completion and manual pages: the source of its help text.
struct VerbText {
  struct Flag {
    std::vector<std::string> names;  // "-o", "--output"; one without dashes for an argument
    std::string help;
    std::string group;  // the heading in the help text
    bool takes_value = false;
    bool is_argument() const { return names.empty() || names[0][0] != '-'; }
  };
  std::string usage;  // "metrics RUN... [FLAGS]"
  std::string description;
  std::string examples;  // one command a line, indented
  std::string footer;
  std::vector<Flag> flags;  // in the order of the help text, without hidden ones
};

class FlagSet {
 public:
  // One declared flag or argument. Each function adds a property and returns the flag again. It is
  // valid as long as its set.
  class Flag {
   public:
    explicit Flag(CLI::Option* option) : option_(option) {}
    Flag Required() const;
    // Lists it under `name` in the help text.
    Flag Group(const std::string& name) const;
    // Leaves it out of the help text.
    Flag Hidden() const;
    // Refuses numbers outside `low` to `high`. The help text does not show them.
    Flag Range(int low, int high) const;
    // Does the same, and the help text shows them.
    Flag ShownRange(int low, int high) const;
    // Splits a value at commas.
    Flag Commas() const;
    // Makes the flag take one value each time it is given, so that an argument after it stays an
    // argument.
    Flag OneValueEach() const;
    // True when the command line has it. Call it after Read.
    bool given() const;

   private:
    CLI::Option* option_;
  };

  // `usage` is the line after "Usage: gpuctl "; it begins with the verb. `description` says what
  // the verb does, `footer` has examples and notes. The help text shows the examples at its top:
  // they are the lines with an indent.
  FlagSet(const std::string& usage, const std::string& description, const std::string& footer);
  ~FlagSet();
  FlagSet(const FlagSet&) = delete;
  FlagSet& operator=(const FlagSet&) = delete;

  // Declares a flag with a value, or an argument when `names` has no dash. `value` must outlive
  // Read, which sets it when the command line has the flag. A vector takes several values.
  Flag Option(const std::string& names, int& value, const std::string& help);
  Flag Option(const std::string& names, std::string& value, const std::string& help);
  Flag Option(const std::string& names, std::vector<std::string>& values, const std::string& help);
  // Declares a flag that needs no value. A string becomes "true", or the text after "=".
  Flag Switch(const std::string& names, bool& value, const std::string& help);
  Flag Switch(const std::string& names, std::string& value, const std::string& help);
  // Applies Flag::OneValueEach to every flag that is declared so far.
  void OneValueEach();

  // Returns what was declared so far.
  VerbText Describe() const;

  // Sets the values. Returns the help text when the command line asks for it. INVALID_ARGUMENT when
  // `args` cannot be parsed; the error names the nearest valid flag.
  absl::StatusOr<std::optional<std::string>> Read(const std::vector<std::string>& args);

 private:
  absl::Status CheckOptionalValues(const std::vector<std::string>& args) const;
  std::string usage_;
  std::string description_;
  std::string examples_;
  std::string verb_;
  // The names of flags whose value may be missing, and the long name of each.
  std::map<std::string, std::string> optional_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_FLAG_SET_H_
