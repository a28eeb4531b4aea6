// gpuctl eval: the loss of a model on held-out data, by the trainer of this computer.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
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

absl::StatusOr<int> CmdEval(CommandContext& context, std::vector<std::string> args) {
  ModelFlags model;
  std::vector<std::string> data;
  PassedFlags passed;
  VerbParser parser(
      context, "eval RUN|FOLDER [--data FOLDER] [FLAGS]",
      "Scores the held-out part of prepared data with a model, a checkpoint or an adapter, on\n"
      "this computer: the mean loss of a token. A run's own data are the default.",
      "  gpuctl eval demo\n"
      "  gpuctl eval Qwen3-0.6B --data tokens");
  AddModelFlags(parser, model);
  parser
      .Option("--data", data,
              "A folder that gpuctl prepare made, or text for a model without tokenizer")
      .OneValueEach();
  passed.Declare(parser, "context", "Tokens of a window (default 1024, or what the model takes)");
  passed.Declare(parser, "windows", "Score at most so many windows, evenly spaced (default all)");
  passed.Declare(parser, "device", "cpu, cuda, mps or auto (default auto)");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  TrainerCall call;
  call.words = {"eval"};
  ASSIGN_OR_RETURN(const ChosenModel chosen, ChooseModel(context, model, "eval"));
  if (data.empty() && !chosen.data.empty()) data = {chosen.data};
  if (data.empty()) {
    return UsageError("eval: no data", "--data FOLDER names what gpuctl prepare made");
  }
  chosen.AddTo(call.words);
  for (const std::string& path : data) call.words.push_back(absl::StrCat("--data=", path));
  passed.AddTo(call.words);
  std::string printed;
  if (context.json()) {
    call.output = &printed;
    call.words.push_back("--as=json");
  }
  ASSIGN_OR_RETURN(const int code, RunTrainer(context, call));
  if (context.json()) {
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(printed, nullptr, false);
    if (!json.is_object()) return absl::InternalError("eval: the trainer printed no JSON");
    json.erase("type");
    json["model"] = chosen.itself();
    json["data"] = data;
    context.PrintJson(json);
  }
  return code;
}

}  // namespace gpuctl
