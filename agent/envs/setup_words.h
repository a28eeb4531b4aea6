// What the text of a setup, of requirements and of scripts names. Pure.
#ifndef GPUCTL_AGENT_ENVS_SETUP_WORDS_H_
#define GPUCTL_AGENT_ENVS_SETUP_WORDS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

struct SetupWord {
  std::string text;                // a relative path, perhaps; "." for the work directory itself
  bool after_script_flag = false;  // the word before it is --script
};

// Returns the words of a shell script that may be paths below the work directory, without "./" in
// front and "/" behind. Quotes, operators, = and [] separate words. Words with $, absolute paths
// and paths that lead out are left out, and so is "." as a command's name.
std::vector<SetupWord> WordsOf(absl::string_view script);

// Returns the names behind $ in a shell script: NAME and ${NAME…}.
std::set<std::string> VariablesOf(absl::string_view script);

// Returns the paths that a requirements file names by -r, -c, -e, their long forms, or alone, as
// ./DIRECTORY and FILE.whl.
std::vector<std::string> FilesOfRequirements(absl::string_view text);

// Returns the lines of a script's inline metadata (PEP 723); "" when it has none.
std::string ScriptHeader(absl::string_view script);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_ENVS_SETUP_WORDS_H_
