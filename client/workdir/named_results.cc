#include "client/workdir/named_results.h"

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr char kCheckpointVariable[] = "GPUCTL_CHECKPOINT_DIR";
// A longer file is no script.
constexpr int64_t kLongestScript = 1 << 20;

std::vector<std::string> TextsOf(const RunSpec& spec) {
  std::vector<std::string> texts = spec.command;
  texts.push_back(spec.run);
  return texts;
}

// Returns the contents of the files in `workdir` that `text` names.
std::vector<std::string> ScriptsIn(const std::string& text, const std::string& workdir) {
  std::vector<std::string> scripts;
  if (workdir.empty()) return scripts;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \t\n;&|()\"'"), absl::SkipEmpty())) {
    // "python3 -m tools.train" runs tools/train.py.
    const std::string module = absl::StrCat(absl::StrReplaceAll(word, {{".", "/"}}), ".py");
    for (const std::string& path : {JoinPath(workdir, word), JoinPath(workdir, module)}) {
      std::error_code ignored;
      if (!std::filesystem::is_regular_file(path, ignored)) continue;
      absl::StatusOr<std::string> script = ReadFileToString(path, kLongestScript);
      if (script.ok()) scripts.push_back(*std::move(script));
    }
  }
  return scripts;
}

}  // namespace

bool NamesResults(const RunSpec& spec, const std::string& workdir) {
  if (!spec.checkpoints.empty() || !spec.artifacts.empty() || !spec.trainer_json.empty()) {
    return true;
  }
  for (const std::string& text : TextsOf(spec)) {
    if (absl::StrContains(text, kCheckpointVariable)) return true;
    for (const std::string& script : ScriptsIn(text, workdir)) {
      if (absl::StrContains(script, kCheckpointVariable)) return true;
    }
  }
  return false;
}

std::vector<std::string> SbatchOptions(const RunSpec& spec, const std::string& workdir) {
  std::vector<std::string> options;
  for (const std::string& text : TextsOf(spec)) {
    for (const std::string& script : ScriptsIn(text, workdir)) {
      for (absl::string_view line : absl::StrSplit(script, '\n')) {
        if (!absl::ConsumePrefix(&line, "#SBATCH ")) continue;
        // Behind a "#" comes a comment.
        line = absl::StripAsciiWhitespace(line.substr(0, line.find(" #")));
        if (absl::StartsWith(line, "-")) options.emplace_back(line);
      }
    }
  }
  return options;
}

}  // namespace gpuctl
