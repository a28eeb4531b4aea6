// CLI11 for one verb, with our grammar of errors.
#ifndef GPUCTL_CLIENT_VERBS_VERB_PARSER_H_
#define GPUCTL_CLIENT_VERBS_VERB_PARSER_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/terminal/console.h"

namespace gpuctl {

class VerbParser {
 public:
  // `usage` is the line behind "Usage: gpuctl ", `description` what the verb does, `footer`
  // examples.
  VerbParser(Console& console, const std::string& usage, const std::string& description,
             const std::string& footer = "");

  CLI::App& app() { return app_; }

  // False: help was asked for and printed. INVALID_ARGUMENT for what cannot be parsed, with the
  // nearest right flag. Sets the common flags on the console.
  absl::StatusOr<bool> Parse(std::vector<std::string> args);

 private:
  absl::Status Explain(const CLI::ParseError& error, const std::vector<std::string>& args);
  Console& console_;
  std::string verb_;
  std::string output_ = "table";
  bool json_ = false;
  bool no_color_ = false;
  CLI::App app_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_VERB_PARSER_H_
