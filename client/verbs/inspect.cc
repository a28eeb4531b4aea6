// gpuctl inspect: what a folder with weights holds.
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/runs/context.h"
#include "client/terminal/console.h"
#include "client/trainer/try_trainer.h"
#include "client/verbs/model_choice.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "trainer/checkpoint/describe_folder.h"

namespace gpuctl {
namespace {

nlohmann::ordered_json FolderJson(const std::string& path, const trainer::FolderContent& content) {
  nlohmann::ordered_json json = {
      {"path", path}, {"adapter", content.adapter}, {"model_type", content.kind}};
  json["step"] =
      content.step.has_value() ? nlohmann::ordered_json(*content.step) : nlohmann::ordered_json();
  json["elements"] = content.elements;
  json["bytes"] = content.bytes;
  json["files"] = nlohmann::ordered_json::array();
  for (const trainer::ManifestEntry& file : content.files) {
    json["files"].push_back({{"path", file.path}, {"bytes", file.size}, {"sha256", file.sha256}});
  }
  json["tensors"] = nlohmann::ordered_json::array();
  for (const trainer::StoredTensor& tensor : content.tensors) {
    json["tensors"].push_back(
        {{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
  }
  return json;
}

}  // namespace

absl::StatusOr<int> CmdInspect(CommandContext& context, std::vector<std::string> args) {
  std::string what, checkpoint;
  VerbParser parser(
      context, "inspect RUN|FOLDER [FLAGS]",
      "Verifies a checkpoint, and lists the tensors of it, of a model folder or of an adapter.\n"
      "Of a run it takes the newest checkpoint that was pulled. Needs no LibTorch.",
      "  gpuctl inspect demo\n"
      "  gpuctl inspect demo-1/step-00000080");
  parser.Option("WHAT", what, "A folder, or a run of which a checkpoint was pulled").Required();
  parser.Option("--checkpoint", checkpoint, "Of a run: latest, best, a step or a name");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ModelFlags flags;
  flags.what = what;
  flags.checkpoint = checkpoint;
  ASSIGN_OR_RETURN(const std::string folder, ChooseFolder(context, flags, "inspect"));
  trainer::FolderContent content;
  RETURN_IF_ERROR(TryTrainer([&] { content = trainer::DescribeFolder(folder); }));
  if (context.json()) {
    context.PrintJson(FolderJson(folder, content));
    return kExitOk;
  }
  const std::string text = trainer::FolderText(content);
  context.PrintLines(absl::StrSplit(absl::StripSuffix(text, "\n"), '\n'));
  return kExitOk;
}

}  // namespace gpuctl
