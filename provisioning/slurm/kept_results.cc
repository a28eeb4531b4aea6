#include "provisioning/slurm/kept_results.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/release/release_route.h"
#include "provisioning/market/label.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/slurm/slurm_provider.h"

namespace gpuctl {
namespace {

// The last line of a whole answer.
constexpr absl::string_view kWhole = "all";

// Runs a line of a shell in the directory `results`. Returns what it printed; nothing where there
// is no such directory.
absl::StatusOr<std::string> RunThere(LoginNode& login, const std::string& results,
                                     absl::string_view doing, absl::string_view line) {
  const std::string place = ResultsWord(results, ".");
  const std::string script = absl::StrCat("d=", place, "; [ -e \"$d\" ] || { echo ", kWhole,
                                          "; exit 0; }; cd \"$d\" || exit; ", line);
  absl::StatusOr<CommandAnswer> answer =
      login.Run(absl::StrCat("LC_ALL=C timeout -k 2 50 sh -c ", QuoteForShell(script)), "");
  if (!answer.ok()) {
    return absl::Status(answer.status().code(),
                        absl::StrCat(doing, ": ", answer.status().message()));
  }
  if (answer->exit_code == 0) return std::move(answer->out);
  const absl::string_view said = absl::StripAsciiWhitespace(answer->err);
  return absl::UnknownError(absl::StrCat(
      doing, ": ",
      said.empty() ? absl::StrCat("exit ", answer->exit_code) : std::string(said.substr(0, 300))));
}

// Lists the directories that match `pattern`, a pattern of the shell: "label|jobs|seconds|KiB".
absl::StatusOr<std::vector<KeptResults>> List(LoginNode& login, const std::string& results,
                                              absl::string_view pattern, bool sizes) {
  constexpr char kDoing[] = "list what is kept on the login node";
  // A link is none of ours. The newest of a lease's directory and of those in it counts: a node
  // adds a file to its own at its end.
  const std::string line =
      absl::StrCat("now=$(date +%s) || exit; for d in ", pattern,
                   "; do [ -d \"$d\" ] && [ ! -L \"$d\" ] || continue; jobs=0; "
                   "for n in \"$d\"/*/node_id \"$d\"/",
                   kResultsOfNode,
                   "*/*/node_id; do [ -e \"$n\" ] && jobs=1; done; new=$(stat -c %Y \"$d\" "
                   "\"$d\"/*/ \"$d\"/",
                   kResultsOfNode, "*/*/ 2>/dev/null | sort -n | tail -n 1); ",
                   sizes ? "kib=$(du -sk \"$d\" 2>/dev/null | cut -f 1); " : "kib=0; ",
                   "echo \"$d|$jobs|$((now - ${new:-now}))|${kib:-0}\"; done; echo ", kWhole);
  ASSIGN_OR_RETURN(const std::string text, RunThere(login, results, kDoing, line));
  std::vector<absl::string_view> lines =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(text), '\n');
  if (lines.back() != kWhole) return absl::UnknownError(absl::StrCat(kDoing, ": a cut answer"));
  lines.pop_back();
  std::vector<KeptResults> found;
  for (const absl::string_view each : lines) {
    const std::vector<absl::string_view> parts = absl::StrSplit(each, '|');
    KeptResults kept;
    int64_t jobs = 0, seconds = 0, kib = 0;
    if (parts.size() != 4 || !ParseLabel(parts[0]).has_value()) continue;
    if (!absl::SimpleAtoi(parts[1], &jobs) || !absl::SimpleAtoi(parts[2], &seconds) ||
        !absl::SimpleAtoi(parts[3], &kib)) {
      return absl::UnknownError(absl::StrCat(kDoing, ": an answer that is none: ", each));
    }
    kept.label = std::string(parts[0]);
    kept.has_jobs = jobs > 0;
    kept.unchanged = absl::Seconds(std::max<int64_t>(0, seconds));
    kept.bytes = kib * 1024;
    found.push_back(std::move(kept));
  }
  return found;
}

absl::Status CheckLabel(absl::string_view label) {
  if (ParseLabel(label).has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"", label, "\" is no label of a lease"));
}

}  // namespace

absl::StatusOr<std::vector<KeptResults>> ListKept(LoginNode& login, const std::string& results) {
  return List(login, results, "gpuctl-*", /*sizes=*/true);
}

absl::StatusOr<std::vector<KeptResults>> FindKept(LoginNode& login, const std::string& results,
                                                  absl::string_view label) {
  RETURN_IF_ERROR(CheckLabel(label));
  return List(login, results, label, /*sizes=*/false);
}

absl::Status RemoveKept(LoginNode& login, const std::string& results, absl::string_view label) {
  RETURN_IF_ERROR(CheckLabel(label));
  const std::string line = absl::StrCat("rm -rf -- ", label);
  return RunThere(login, results, absl::StrCat("remove ", label, " from the login node"), line)
      .status();
}

}  // namespace gpuctl
