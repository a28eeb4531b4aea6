// gpuctl verify: check that pulled results have not changed.
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/results/verify_run.h"
#include "client/runs/context.h"
#include "client/terminal/console.h"
#include "client/transfer/transfer_bar.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/transfer/transfer.h"

namespace gpuctl {
namespace {

nlohmann::ordered_json ToJson(const RunRow& row, const Verified& verified, bool read_data) {
  nlohmann::ordered_json json;
  json["run_id"] = row.run_id;
  json["name"] = row.name;
  json["ok"] = verified.problems.empty();
  json["read_data"] = read_data;
  json["output"] = {{"bytes", verified.output_bytes},
                    {"complete", verified.complete},
                    {"lost_bytes", verified.loss.bytes},
                    {"lost_metric_lines", verified.loss.metric_lines},
                    {"removed_bytes", verified.removed_bytes}};
  json["checkpoints"] = verified.checkpoints;
  json["files"] = verified.files;
  json["bytes"] = verified.bytes;
  json["problems"] = nlohmann::ordered_json::array();
  for (const Problem& problem : verified.problems) {
    json["problems"].push_back(
        {{"path", problem.path}, {"problem", ProblemWord(problem.kind)}, {"why", problem.why}});
  }
  return json;
}

const char* HowMuch(const Verified& verified) {
  if (!verified.over) return " (so far)";
  if (!verified.complete) return " (not all of it)";
  return verified.removed_bytes > 0 ? " (all that its limit kept)" : " (all of it)";
}

void PrintText(CommandContext& context, const RunRow& row, const Verified& verified,
               bool read_data) {
  for (const Problem& problem : verified.problems) {
    context.PrintLine(absl::StrCat(ProblemWord(problem.kind), "  ", problem.path,
                                   problem.why.empty() ? "" : ": ", problem.why));
  }
  std::string line =
      absl::StrCat(row.name, ": output ", FormatBytes(verified.output_bytes), HowMuch(verified),
                   read_data ? " by its size, " : ", ", verified.files,
                   verified.files == 1 ? " file, " : " files, ", FormatBytes(verified.bytes));
  std::string hint;
  if (!verified.problems.empty()) {
    const size_t count = verified.problems.size();
    absl::StrAppend(&line, ": ", count, count == 1 ? " problem" : " problems");
    hint = absl::StrCat("move damaged files away; gpuctl pull ", row.name,
                        " brings them again (an older checkpoint: --checkpoint N)");
  } else if (verified.files == 0) {
    absl::StrAppend(&line, "; nothing was pulled");
  } else {
    absl::StrAppend(&line, read_data ? ": every file as it was brought" : ": all there, by size");
    if (!read_data) hint = "--read-data reads it";
  }
  context.Say(line, verified.problems.empty() ? Tone::kPlain : Tone::kWarning);
  if (verified.loss.any()) context.Warn(DescribeLoss(verified.loss));
  if (!hint.empty()) context.Hint(hint);
}

}  // namespace

absl::StatusOr<int> CmdVerify(CommandContext& context, std::vector<std::string> args) {
  std::string reference;
  VerifyOptions options;
  VerbParser parser(
      context, "verify RUN [FLAGS]",
      "Checks the files of a run on this laptop: the copy of its output, and that\n"
      "every file that pull brought is still there. Asks no node. Exits with 118\n"
      "when something is missing or damaged.",
      "  gpuctl verify amber-fox-3\n"
      "  gpuctl verify amber-fox-3 --read-data\n\n"
      "By sizes, or with --read-data by content. The output has no hash to compare with:\n"
      "it is checked by its size alone.");
  parser.Option("RUN", reference, "Name, id, or the beginning of one").Required();
  parser.Switch("--read-data", options.read_data, "Read the files and compare their hashes");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  RETURN_IF_ERROR(
      CheckNoBatch(context, {reference}, "gpuctl verify $-1 checks what is here of one run"));
  ASSIGN_OR_RETURN(const RunRow row, store->Get(reference));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  options.ended = row.end.has_value();
  const std::string run_dir = paths.MirrorDir(row.run_id);
  TransferBar bar(context, "reading", false);
  TransferCount count;
  if (options.read_data) {
    ASSIGN_OR_RETURN(const std::vector<PulledItem> items, PulledRecord(run_dir).Read());
    for (const PulledItem& item : items) {
      for (const PulledFile& file : item.files) count.total_bytes += file.size;
    }
    options.progress = [&](int64_t bytes) {
      count.bytes += bytes;
      bar.Update(count);
    };
  }
  ASSIGN_OR_RETURN(const Verified verified, VerifyRun(run_dir, row.output_segment_bytes, options));
  bar.Finish();
  if (context.json()) {
    context.PrintJson(ToJson(row, verified, options.read_data));
  } else {
    PrintText(context, row, verified, options.read_data);
  }
  return verified.problems.empty() ? kExitOk : kExitIntegrity;
}

}  // namespace gpuctl
