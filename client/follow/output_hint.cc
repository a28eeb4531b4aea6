#include "client/follow/output_hint.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/shell_quote.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/safe_text.h"

namespace gpuctl {
namespace {

// Returns what is between the last `error` and the quote behind it, where it is no longer than
// `most` and has only letters, digits and characters of `others`; "" otherwise.
std::string QuotedBehind(absl::string_view error, absl::string_view tail, size_t most,
                         absl::string_view others) {
  const size_t at = tail.rfind(error);
  if (at == tail.npos) return "";
  const absl::string_view rest = tail.substr(at + error.size());
  const absl::string_view name = rest.substr(0, rest.find_first_of("'\n"));
  const bool is_name =
      name.size() <= most && std::all_of(name.begin(), name.end(), [others](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(others, c);
      });
  return is_name ? std::string(name) : "";
}

std::string MissingModule(absl::string_view tail) {
  return QuotedBehind("ModuleNotFoundError: No module named '", tail, 64, "_.");
}

// Only a file below the work directory.
std::string MissingFile(absl::string_view tail) {
  const std::string name =
      QuotedBehind("FileNotFoundError: [Errno 2] No such file or directory: '", tail, 200, " _.-/");
  const bool is_below = !absl::StartsWith(name, "/") && !absl::StartsWith(name, "-") &&
                        !absl::StrContains(name, "..");
  return is_below ? name : "";
}

// True when bash or sh found no `python`.
bool LacksPython(absl::string_view tail) {
  for (const absl::string_view line : absl::StrSplit(tail, '\n')) {
    for (const char* says : {": python: command not found", ": python: not found"}) {
      if (absl::EndsWith(absl::StripTrailingAsciiWhitespace(line), says)) return true;
    }
  }
  return false;
}

}  // namespace

std::string HintOfOutput(absl::string_view tail) {
  if (LacksPython(tail)) return kNoPythonHint;
  // What Debian's python3 -m venv says without the package python3-venv.
  if (absl::StrContains(tail, "ensurepip is not available")) {
    return "python3 -m venv needs the package python3-venv there; or take uv: uv venv "
           "$GPUCTL_ENV_DIR && uv pip install -r requirements.txt";
  }
  // PEP 668: pip's error where the system's Python belongs to the system's packages.
  if (absl::StrContains(tail, "externally-managed-environment")) {
    return "pip does not change the system's Python there; a setup: of python3 -m venv "
           "$GPUCTL_ENV_DIR && pip install -r requirements.txt makes an environment for the run";
  }
  // What nbconvert makes of %pip, !pip and the other magics.
  if (absl::StrContains(tail, "NameError: name 'get_ipython' is not defined")) {
    return "lines with get_ipython() run in a notebook only: remove them from the script; what "
           "%pip installed goes to --setup, or to setup: in the run file";
  }
  if (const std::string module = MissingModule(tail); !module.empty()) {
    return absl::StrCat("the Python there has no module ", module,
                        "; --setup 'pip install -r requirements.txt', or setup: in the run file, "
                        "installs what the job needs");
  }
  if (const std::string file = MissingFile(tail); !file.empty()) {
    return absl::StrCat("if it is here, a rule may keep it at home: gpuctl sync --explain ",
                        ShellQuote(file), " names the rule, and --include ", ShellQuote(file),
                        " sends it all the same");
  }
  return "";
}

namespace {

std::string TailOf(MirrorReader& mirror) {
  const absl::StatusOr<Extent> extent = mirror.OutputExtent();
  if (!extent.ok()) return "";
  int64_t offset = std::max<int64_t>(0, extent->size - static_cast<int64_t>(kHintBytes));
  std::string tail;
  // The end may lie in the next segment.
  while (offset < extent->size) {
    const absl::StatusOr<std::string> more = mirror.ReadOutput(offset);
    if (!more.ok() || more->empty()) break;
    offset += static_cast<int64_t>(more->size());
    absl::StrAppend(&tail, *more);
  }
  return tail;
}

}  // namespace

std::string HintOfOutput(MirrorReader& mirror) { return HintOfOutput(TailOf(mirror)); }

std::string LastLineOfOutput(MirrorReader& mirror) {
  const std::string tail = TailOf(mirror);
  std::string last;
  for (const absl::string_view line : absl::StrSplit(tail, '\n')) {
    const absl::string_view shown = absl::StripAsciiWhitespace(AfterCarriageReturns(line));
    if (!shown.empty()) last = std::string(shown);
  }
  return MakeSafe(last);
}

}  // namespace gpuctl
