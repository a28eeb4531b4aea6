// gpuctl generate: text of a model, by the trainer of this computer.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/runs/context.h"
#include "client/terminal/console.h"
#include "client/trainer/trainer_program.h"
#include "client/verbs/model_choice.h"
#include "client/verbs/passed_flags.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

void DeclareGeneration(FlagSet& set, PassedFlags& passed) {
  passed.Declare(set, "prompt", "Continues the text, and prints both");
  passed.Declare(set, "chat", "Answers the message, by the model's chat template");
  passed.Declare(set, "system", "With --chat: what the model is told before the message");
  passed.Declare(set, "prompt-ids", "Tokens, as 1,2,3; prints tokens");
  passed.Declare(set, "tokens", "At most so many tokens (default 200)");
  passed.Declare(set, "temperature", "0 takes the likeliest token (default 0.8)");
  passed.Declare(set, "top-k", "Draw only from the K likeliest tokens");
  passed.Declare(set, "top-p", "Draw only from the likeliest tokens that have P together");
  passed.Declare(set, "seed", "Of the random numbers (default 1)");
  passed.Declare(set, "stop-ids",
                 "Tokens that end the text (default: those of the model); \"\" is none");
  passed.Declare(set, "device", "cpu, cuda, mps or auto (default cpu)");
}

// Returns what the trainer printed, as an object.
nlohmann::ordered_json JsonOf(const std::string& printed, bool ids) {
  const absl::string_view text = absl::StripSuffix(printed, "\n");
  if (!ids) return {{"text", std::string(text)}};
  nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    int64_t token = 0;
    if (absl::SimpleAtoi(word, &token)) tokens.push_back(token);
  }
  return {{"tokens", tokens}};
}

}  // namespace

absl::StatusOr<int> CmdGenerate(CommandContext& context, std::vector<std::string> args) {
  ModelFlags model;
  PassedFlags passed;
  VerbParser parser(
      context, "generate RUN|FOLDER --chat MESSAGE|--prompt TEXT [FLAGS]",
      "Generates text with a model, a checkpoint or an adapter, on this computer. Of a run it\n"
      "takes the newest checkpoint that was pulled.",
      "  gpuctl generate demo --chat 'What is 3 + 4?' --temperature 0\n"
      "  gpuctl generate Qwen3-0.6B --prompt 'Once upon a time'");
  AddModelFlags(parser, model);
  DeclareGeneration(parser, passed);
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  TrainerCall call;
  call.words = {"generate"};
  ASSIGN_OR_RETURN(const ChosenModel chosen, ChooseModel(context, model, "generate"));
  chosen.AddTo(call.words);
  passed.AddTo(call.words);
  std::string printed;
  if (context.json()) call.output = &printed;
  ASSIGN_OR_RETURN(const int code, RunTrainer(context, call));
  if (context.json()) context.PrintJson(JsonOf(printed, passed.given("prompt-ids")));
  return code;
}

}  // namespace gpuctl
