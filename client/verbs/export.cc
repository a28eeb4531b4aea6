// gpuctl export: a model or an adapter in the format of another program.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/runs/context.h"
#include "client/terminal/console.h"
#include "client/trainer/try_trainer.h"
#include "client/verbs/model_choice.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "trainer/adapters/export_flags.h"

namespace gpuctl {

absl::StatusOr<int> CmdExport(CommandContext& context, std::vector<std::string> args) {
  ModelFlags model;
  trainer::ExportFlags flags;
  VerbParser parser(
      context, "export RUN|FOLDER --to gguf|gguf-lora|mlx --out FILE|DIR [FLAGS]",
      "Writes a model as one file for llama.cpp (gguf), or an adapter for llama.cpp (gguf-lora)\n"
      "or for mlx_lm (mlx). Needs no LibTorch.",
      "  gpuctl export tuned --to gguf --type q8_0 --out tuned.gguf\n"
      "  gpuctl export demo --to gguf-lora --out demo-lora.gguf");
  AddModelFlags(parser, model);
  parser.Option("--to", flags.to, "gguf, gguf-lora or mlx").Required();
  parser.Option("--out", flags.out, "The new file, or the new folder of mlx").Required();
  parser.Option(
      "--type", flags.type,
      "With gguf: f32, f16, bf16 or q8_0 for the matrices; as they are stored by default");
  parser.Option("--pre", flags.pre,
                "With gguf: llama.cpp's way to split texts, if it is not found");
  parser.Quiet("Print the path alone");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(const ChosenModel chosen, ChooseModel(context, model, "export"));
  flags.model = chosen.model;
  flags.adapter = chosen.adapter;
  if (flags.to == "gguf" && !chosen.adapter.empty()) {
    return UsageError(
        absl::StrCat("export: ", chosen.adapter, " holds adapters and no whole model"),
        "gpuctl merge makes one of them; --to gguf-lora writes the adapters alone");
  }
  trainer::ExportOutcome outcome;
  RETURN_IF_ERROR(TryLongWork("export", [&](const std::function<void()>& check) {
    flags.check = check;
    outcome = trainer::Export(flags);
  }));
  if (context.json()) {
    nlohmann::ordered_json json = {{"path", flags.out}, {"to", flags.to}, {"type", outcome.type}};
    if (chosen.adapter.empty()) {
      json["bytes"] = outcome.bytes;
    } else {
      json["matrices"] = outcome.matrices;
    }
    json["notes"] = outcome.notes;
    context.PrintJson(json);
    return kExitOk;
  }
  for (const std::string& note : outcome.notes) context.Say(absl::StrCat("note: ", note));
  context.PrintLine(context.quiet ? flags.out : trainer::ExportText(flags, outcome));
  return kExitOk;
}

}  // namespace gpuctl
