#include "client/reach/run_script.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/shell_quote.h"
#include "client/programs/node_scripts.h"
#include "client/spec/job_spec.h"
#include "client/streams/mirror.h"
#include "common/base/status_macros.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

// Returns the beginning of a script: it sets `r` to the root, and tells a node with limits of the
// contact. The user's command does not do that.
std::string Arrive(const std::string& root) {
  return absl::StrCat("r=", RootWord(root),
                      "; if [ -e \"$r/limits.json\" ]; then "
                      "\"$r/bin/current/gpuctl-agent\" contact --root \"$r\" --pid $$ "
                      "</dev/null >/dev/null 2>&1 & fi; ");
}

// Returns a path of the job as a word of the shell, after Arrive.
std::string JobWord(const RunPlace& place, absl::string_view name) {
  return absl::StrCat("\"$r\"", ShellQuote(absl::StrCat("/jobs/", place.job_id, "/", name)));
}

std::string Export(const RunPlace& place) {
  std::string line = "export";
  for (const auto& [name, value] : place.spec.env()) {
    absl::StrAppend(&line, " ", name, "=", ShellQuote(value));
  }
  // The job's end leaves what has GPUCTL_EXEC alone.
  return absl::StrCat(line, " GPUCTL_RUN_ID=", ShellQuote(place.run_id),
                      " GPUCTL_JOB_ID=", ShellQuote(place.job_id),
                      " GPUCTL_ATTEMPT=", std::max(place.attempt, 1),
                      " GPUCTL_CHECKPOINT_DIR=", JobWord(place, "ckpt"), " GPUCTL_EXEC=1; ");
}

}  // namespace

absl::StatusOr<RunPlace> PlaceOf(const ClientPaths& paths, const RunRow& row) {
  ASSIGN_OR_RETURN(StoredSpec stored, ParseStoredSpec(row.spec_json));
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(paths.MirrorDir(row.run_id)));
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  return RunPlace{row.target.root, row.run_id, row.job_id, last == nullptr ? 1 : last->attempt,
                  std::move(stored.spec)};
}

std::string CommandScript(const RunPlace& place, const std::vector<std::string>& argv,
                          CommandStyle style) {
  std::string line = absl::StrCat(Arrive(place.root), "cd ", JobWord(place, "work"),
                                  " || exit 126; ", Export(place));
  // The script survives the Ctrl-C that the command gets from the same terminal.
  absl::StrAppend(&line, style == CommandStyle::kPipes ? "exec" : "trap : INT QUIT;");
  for (const std::string& word : argv) absl::StrAppend(&line, " ", ShellQuote(word));
  if (style == CommandStyle::kTerminal) absl::StrAppend(&line, "; exit $?");
  return line;
}

std::string ShellScript(const RunPlace& place, bool terminal) {
  return absl::StrCat(Arrive(place.root), "cd ", JobWord(place, "work"),
                      " 2>/dev/null || echo \"gpuctl: the run's directory is not there any more; "
                      "this is $PWD\" >&2; ",
                      Export(place), "exec \"${SHELL:-/bin/sh}\"", terminal ? " -l" : "");
}

absl::Status CheckScriptSize(absl::string_view verb, const std::string& script) {
  if (script.size() <= kLongestArgument) return absl::OkStatus();
  return UsageError(absl::StrCat(verb, ": the command and the job's environment have ",
                                 script.size(), " bytes; ", kLongestArgument, " fit"),
                    "put it into a file: gpuctl cp FILE RUN:");
}

std::string StayScript(const std::string& root, absl::string_view mark) {
  return absl::StrCat(Arrive(root), "echo; echo ", ShellQuote(mark), "; cat > /dev/null");
}

}  // namespace gpuctl
