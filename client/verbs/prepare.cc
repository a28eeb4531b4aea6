// gpuctl prepare: make training data of rows of text, for the built-in trainer.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "client/base/exit_codes.h"
#include "client/runs/context.h"
#include "client/terminal/console.h"
#include "client/trainer/prepare_data.h"
#include "client/trainer/try_trainer.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "trainer/prepare/prepare_flags.h"

namespace gpuctl {
namespace {

struct PrepareVerbFlags {
  trainer::PrepareFlags prepare;
  std::vector<std::string> data;
  int context = 0;
  int samples = 1;
  int threads = 0;
};

void DeclareFlags(FlagSet& set, PrepareVerbFlags& flags) {
  trainer::PrepareFlags& words = flags.prepare;
  set.Option(
      "FILE", words.data,
      "Rows as JSON lines (\"messages\"; \"prompt\" and \"completion\"; \"conversations\"; "
      "\"text\"; \"prompt\", \"chosen\" and \"rejected\"), a *.txt that is one document, or a "
      "directory of *.jsonl");
  set.Option("--data", flags.data, "The same as FILE").OneValueEach();
  set.Option("--model", words.model, "The model folder whose tokenizer and chat template are used");
  set.Option("--out", words.out,
             "The folder to make; one that prepare made is replaced when all is done");
  set.Option("--context", flags.context,
             "Tokens that a row may have; as many as the model takes unless you say so")
      .Range(1, 1 << 24);
  set.Option("--mask", words.mask,
             "What is learned of conversations: assistant (all its turns, the default), last (its "
             "last turn), all");
  set.Option("--template", words.template_file, "A chat template instead of the model's");
  set.Option("--held-out", words.held_out,
             "Rows that are not trained on: a share of them (0.05), or those of a file");
  set.Option("--bad-rows", words.bad_rows,
             "skip leaves out rows that cannot be used; refuse (the default) ends the work");
  set.Option("--show", flags.samples, "How many rows to show, with what is learned of them; 1")
      .Range(0, 1000);
  set.Option(
         "--prompt", words.prompts,
         "A prompt whose answer a run shows at each evaluation (sample.prompts); may be repeated")
      .OneValueEach();
  set.Option("--threads", flags.threads, "One for each processor unless you say so").Range(1, 1024);
}

absl::Status PrintReport(const CommandContext& context, const trainer::PrepareOptions& options,
                         const trainer::PrepareReport& report, double seconds) {
  if (context.json()) {
    context.PrintJson({{"folder", options.out}, {"report", trainer::ReportJson(report)}});
    return absl::OkStatus();
  }
  if (context.quiet) {
    context.PrintLine(options.out);
    return absl::OkStatus();
  }
  std::string text;
  if (!report.samples.empty()) {
    RETURN_IF_ERROR(TryTrainer([&] {
      const trainer::Tokenizer tokenizer =
          trainer::Tokenizer::Load(options.model + "/tokenizer.json");
      for (const std::vector<uint32_t>& sample : report.samples) {
        absl::StrAppend(&text, trainer::ShownSample(sample, tokenizer, /*terminal=*/false), "\n\n");
      }
    }));
  }
  absl::StrAppend(&text, trainer::ReportText(report, seconds));
  context.PrintLines(absl::StrSplit(absl::StripSuffix(text, "\n"), '\n'));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> CmdPrepare(CommandContext& context, std::vector<std::string> args) {
  PrepareVerbFlags flags;
  VerbParser parser(
      context, "prepare FILE... --model DIR --out DIR [FLAGS]",
      "Makes training data of rows of text, with the tokenizer and the chat template of a\n"
      "model: a folder that data.paths of a run file can name. gpuctl launch does the same by\n"
      "itself for rows that a run file names.",
      "  gpuctl prepare rows.jsonl --model Qwen3-0.6B --out data\n"
      "  gpuctl prepare rows.jsonl --model Qwen3-0.6B --out data --mask last --show 5");
  DeclareFlags(parser, flags);
  parser.Quiet("Print the folder's path alone");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  flags.prepare.data.insert(flags.prepare.data.end(), flags.data.begin(), flags.data.end());
  flags.prepare.context = flags.context;
  flags.prepare.samples = flags.samples;
  flags.prepare.threads = flags.threads;
  trainer::PrepareOptions options;
  RETURN_IF_ERROR(TryTrainer([&] { options = trainer::OptionsOf(flags.prepare); }));
  const absl::Time began = context.clock.Now();
  ASSIGN_OR_RETURN(const trainer::PrepareReport report, PrepareData(context, options));
  RETURN_IF_ERROR(
      PrintReport(context, options, report, absl::ToDoubleSeconds(context.clock.Now() - began)));
  return kExitOk;
}

}  // namespace gpuctl
