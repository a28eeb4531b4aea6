// gpuctl merge: an adapter into its model's weights.
#include "trainer/adapters/merge.h"

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/results/pull_files.h"
#include "client/runs/context.h"
#include "client/terminal/console.h"
#include "client/trainer/try_trainer.h"
#include "client/verbs/model_choice.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr double kGigabyte = 1e9;

absl::StatusOr<uint64_t> ShardBytes(const std::string& text) {
  double gigabytes = 0;
  if (!absl::SimpleAtod(text, &gigabytes) || !(gigabytes >= 1e-6 && gigabytes <= 1e6)) {
    return UsageError(
        absl::StrCat("merge: --shard-gb ", text, ": must be a number from 1e-6 to 1e6"),
        "the default is 4");
  }
  return static_cast<uint64_t>(gigabytes * kGigabyte);
}

}  // namespace

absl::StatusOr<int> CmdMerge(CommandContext& context, std::vector<std::string> args) {
  ModelFlags model;
  std::string out, shard;
  VerbParser parser(
      context, "merge RUN|FOLDER --out DIR [FLAGS]",
      "Adds an adapter to the weights of its model, and writes a new model folder that needs no\n"
      "adapter. Of a run it takes the newest checkpoint that was pulled. Needs no LibTorch.",
      "  gpuctl merge demo --out tuned\n"
      "  gpuctl merge demo-1/step-00000080 --model Qwen3-0.6B --out tuned");
  AddModelFlags(parser, model);
  parser.Option("--out", out, "The new folder").Required();
  parser.Option("--shard-gb", shard, "Most gigabytes of a file of weights (default 4)");
  parser.Quiet("Print the folder's path alone");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (out.empty()) return UsageError("merge: --out names no folder", "gpuctl merge --help");
  trainer::MergeRequest request;
  if (!shard.empty()) {
    ASSIGN_OR_RETURN(request.shard_bytes, ShardBytes(shard));
  }
  ASSIGN_OR_RETURN(const ChosenModel chosen, ChooseModel(context, model, "merge"));
  if (chosen.adapter.empty()) {
    return UsageError(absl::StrCat("merge: ", chosen.model, " holds a whole model and no adapter"),
                      "it can be used as it is; --adapter DIR names one to add");
  }
  if (chosen.model.empty()) return UsageError("merge: --model is missing", "name the model folder");
  request.model = chosen.model;
  request.adapter = chosen.adapter;
  request.out = out;
  trainer::MergeResult result;
  RETURN_IF_ERROR(TryLongWork("merge", [&](const std::function<void()>& check) {
    request.check = check;
    result = trainer::MergeAdapter(request);
  }));
  // A run that names the folder as its model, or in data:, gets it all the same.
  const absl::Status kept = KeepAtHome(out);
  if (!kept.ok()) {
    context.Warn(absl::StrCat("the next launch here sends ", out, ", too: ", kept.message()));
  }
  if (context.json()) {
    context.PrintJson({{"folder", out},
                       {"model", chosen.model},
                       {"adapter", chosen.adapter},
                       {"changed", result.changed},
                       {"files", result.shards},
                       {"bytes", result.bytes}});
    return kExitOk;
  }
  if (context.quiet) {
    context.PrintLine(out);
    return kExitOk;
  }
  context.PrintLine(absl::StrCat(out, ": ", result.changed, " weights changed, ", result.shards,
                                 result.shards == 1 ? " file, " : " files, ",
                                 FormatBytes(static_cast<int64_t>(result.bytes))));
  if (kept.ok()) {
    context.Hint(absl::StrCat("a launch sends ", out,
                              " where the run file names it as its model or in data:; without "
                              "its .gpuctlignore it goes with the work directory"));
  }
  return kExitOk;
}

}  // namespace gpuctl
