#include "client/workdir/named_results.h"

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr char kCheckpointVariable[] = "GPUCTL_CHECKPOINT_DIR";
// A longer file is no script.
constexpr int64_t kLongestScript = 1 << 20;

bool FileMentions(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const absl::StatusOr<std::string> text = ReadFileToString(path, kLongestScript);
  return text.ok() && absl::StrContains(*text, kCheckpointVariable);
}

}  // namespace

bool NamesResults(const RunSpec& spec, const std::string& workdir) {
  if (!spec.checkpoints.empty() || !spec.artifacts.empty() || !spec.trainer_json.empty()) {
    return true;
  }
  std::vector<std::string> texts = spec.command;
  texts.push_back(spec.run);
  for (const std::string& text : texts) {
    if (absl::StrContains(text, kCheckpointVariable)) return true;
    if (workdir.empty()) continue;
    for (const absl::string_view word :
         absl::StrSplit(text, absl::ByAnyChar(" \t\n;&|()\"'"), absl::SkipEmpty())) {
      const std::string script = JoinPath(workdir, word);
      // "python3 -m tools.train" runs tools/train.py.
      const std::string module =
          JoinPath(workdir, absl::StrCat(absl::StrReplaceAll(word, {{".", "/"}}), ".py"));
      if (FileMentions(script) || FileMentions(module)) return true;
    }
  }
  return false;
}

}  // namespace gpuctl
