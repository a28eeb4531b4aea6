// gpuctl tag: words and a note by which a run is found again.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<int> CmdTag(CommandContext& context, std::vector<std::string> args) {
  std::string reference, note;
  std::vector<std::string> words, remove;
  VerbParser parser(
      context, "tag RUN [WORD...] [FLAGS]",
      "Adds tags to a run, removes some, or writes its note; prints the tags that it\n"
      "has then. gpuctl ps --tag WORD lists the runs with a tag.",
      "  gpuctl tag amber-fox-3 baseline lr=3e-4 --note \"the best so far\"\n"
      "  gpuctl tag amber-fox-3 --remove baseline");
  parser.Option("RUN", reference, "Name, id, or the beginning of one").Required();
  parser.Option("WORD", words, "Tag to add: letters, digits and . _ - : / = @ +");
  parser.Option("--remove", remove, "Tag to take away").OneValueEach();
  const FlagSet::Flag noted = parser.Option("--note", note, "Text of the note; \"\" removes it");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  RETURN_IF_ERROR(CheckNoBatch(
      context, {reference},
      "gpuctl tag $-1 tags one run; gpuctl ps --tag batch:$ lists all that have started"));
  ASSIGN_OR_RETURN(const RunRow row, store->Get(reference));
  const auto usage = [](const absl::Status& status) {
    return absl::IsInvalidArgument(status) ? UsageError(status.message(), "gpuctl tag --help")
                                           : status;
  };
  if (noted.given()) RETURN_IF_ERROR(usage(CheckNote(note)));
  absl::StatusOr<std::vector<std::string>> tags = row.tags;
  if (!words.empty() || !remove.empty()) tags = store->ChangeTags(row.run_id, words, remove);
  if (!tags.ok()) return usage(tags.status());
  if (noted.given()) RETURN_IF_ERROR(store->SetNote(row.run_id, note));
  const std::string& written = noted.given() ? note : row.note;
  if (context.json()) {
    context.PrintJson(
        {{"run_id", row.run_id},
         {"name", row.name},
         {"tags", *tags},
         {"note", written.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(written)}});
    return kExitOk;
  }
  const bool changes = !words.empty() || !remove.empty() || noted.given();
  if (context.quiet && changes) return kExitOk;
  context.PrintLines(*tags);
  if (!written.empty()) context.Say(absl::StrCat("note of ", row.name, ": ", written));
  return kExitOk;
}

}  // namespace gpuctl
