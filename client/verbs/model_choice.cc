#include "client/verbs/model_choice.h"

#include <climits>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/home/checkpoint_keep.h"
#include "client/results/checkpoint_choice.h"
#include "client/runs/pulled_record.h"
#include "client/runs/run_store.h"
#include "client/spec/launch_record.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/shown_name.h"
#include "client/trainer/trainer_inputs.h"
#include "client/trainer/try_trainer.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/data/prepared.h"

namespace gpuctl {
namespace {

std::string ResolvedPath(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? "" : resolved;
}

bool HoldsWeights(const std::string& folder) {
  return PathExists(JoinPath(folder, "config.json")) || trainer::HoldsAdapter(folder);
}

// What a run was launched with.
struct RunInputs {
  std::string model;  // model.init, absolute; ""
  std::string data;   // prepared data
};

RunInputs InputsOf(const RunRow& row) {
  RunInputs inputs;
  const absl::StatusOr<LaunchRecord> record = ParseLaunchRecord(row.launch_json);
  if (!record.ok() || record->spec.trainer_json.empty()) return inputs;
  const nlohmann::json settings = SettingsHere(record->spec, row.workdir);
  if (!settings.is_object()) return inputs;
  const auto text = [&settings](const char* section, const char* key) {
    const nlohmann::json found = settings.value(
        nlohmann::json::json_pointer(absl::StrCat("/", section, "/", key)), nlohmann::json());
    if (found.is_array() && found.size() == 1 && found[0].is_string()) {
      return found[0].get<std::string>();
    }
    return found.is_string() ? found.get<std::string>() : std::string();
  };
  inputs.model = text("model", "init");
  inputs.data = text("data", "paths");
  if (!trainer::IsPrepared(inputs.data)) inputs.data = "";
  return inputs;
}

// Finds the folder of one verb's command line.
class Choice {
 public:
  // `alone`: the model of adapters is not looked for.
  Choice(CommandContext& context, const ModelFlags& flags, const std::string& verb, bool alone)
      : context_(context), flags_(flags), verb_(verb), alone_(alone) {}

  absl::StatusOr<ChosenModel> Find() {
    if (flags_.what.empty()) return OfFlags();
    if (!flags_.adapter.empty()) {
      return UsageError(
          absl::StrCat(verb_, ": --adapter goes with --model, not with ", flags_.what),
          "name the folder of the adapter alone, with --model MODEL");
    }
    ASSIGN_OR_RETURN(const bool folder, MeansFolder());
    return folder ? OfFolder(flags_.what) : OfRun();
  }

 private:
  // The flags alone mean what they mean to gpuctl-trainer.
  absl::StatusOr<ChosenModel> OfFlags() {
    if (!flags_.checkpoint.empty()) {
      if (!flags_.adapter.empty()) {
        return UsageError(
            absl::StrCat(verb_, ": --adapter belongs to --model, not to --checkpoint"),
            "name one of them");
      }
      return OfFolder(flags_.checkpoint);
    }
    if (flags_.model.empty() && flags_.adapter.empty()) {
      return UsageError(absl::StrCat(verb_, ": no model"),
                        absl::StrCat("gpuctl ", verb_, " FOLDER, or RUN after gpuctl pull RUN"));
    }
    ChosenModel chosen;
    chosen.model = flags_.model;
    chosen.adapter = flags_.adapter;
    return chosen;
  }

  // True when `what` means a folder and not a run.
  absl::StatusOr<bool> MeansFolder() {
    const std::string& what = flags_.what;
    if (absl::StrContains(what, '/') || what == "." || what == "..") return true;
    const bool here = IsDirectory(what) && HoldsWeights(what);
    ASSIGN_OR_RETURN(RunStore * store, context_.Store());
    absl::StatusOr<RunRow> row = store->Get(what);
    if (row.ok()) row_ = *std::move(row);
    if (!here) {
      // The folder ./RUN of pull's is no model itself.
      if (row_.has_value()) return false;
      if (IsDirectory(what)) return true;
      if (!absl::IsNotFound(row.status())) return row.status();
      const std::string message =
          absl::StrCat(verb_, ": there is no folder ", what, ", and ", row.status().message());
      return WithExitCode(WithHint(absl::NotFoundError(message), HintOf(row.status())),
                          ExitCodeOf(row.status()));
    }
    if (row_.has_value() && (row_->name == what || row_->run_id == what ||
                             absl::StartsWith(row_->name, absl::StrCat(what, "-")))) {
      return UsageError(
          absl::StrCat(verb_, ": ", what, " is a folder here and the run ", row_->name),
          absl::StrCat("write ./", TypedName(what, "FOLDER"), " for the folder, ", row_->run_id,
                       " for the run"));
    }
    return true;
  }

  absl::StatusOr<ChosenModel> OfFolder(const std::string& path) {
    if (!flags_.what.empty() && !flags_.checkpoint.empty()) {
      return UsageError(
          absl::StrCat(verb_, ": --checkpoint goes with a run, not with the folder ", flags_.what),
          "name the folder of the checkpoint itself");
    }
    if (!IsDirectory(path)) {
      return UsageError(absl::StrCat(verb_, ": there is no folder ", path), "");
    }
    std::string folder = path;
    if (!HoldsWeights(folder)) {
      const std::vector<int64_t> steps = trainer::ListCheckpoints(folder);
      if (steps.empty()) {
        return UsageError(absl::StrCat(verb_, ": ", path,
                                       " holds no model: it has no config.json, no "
                                       "adapter_config.json and no checkpoint"),
                          "name the folder of a model, of a checkpoint or of an adapter");
      }
      folder = JoinPath(folder, trainer::CheckpointName(steps.back()));
      if (!HoldsWeights(folder)) {
        return UsageError(absl::StrCat(verb_, ": ", folder, " holds no weights"), "");
      }
      context_.Say(absl::StrCat("taking ", folder));
    }
    return Complete(folder, RunInputs());
  }

  // Returns `folder` with its model.
  absl::StatusOr<ChosenModel> Complete(const std::string& folder, RunInputs inputs) {
    ChosenModel chosen;
    chosen.checkpoint = PathExists(JoinPath(folder, trainer::kManifestName));
    if (alone_) {
      chosen.model = folder;
      return chosen;
    }
    if (chosen.checkpoint && inputs.data.empty() && inputs.model.empty()) {
      inputs = InputsOfItsRun(folder);
    }
    chosen.data = inputs.data;
    if (!trainer::HoldsAdapter(folder)) {
      chosen.model = folder;
      if (flags_.model.empty()) return chosen;
      return UsageError(absl::StrCat(verb_, ": ", folder,
                                     " holds the whole model; --model goes "
                                     "with a folder of adapters"),
                        "leave out --model");
    }
    chosen.adapter = folder;
    chosen.model = flags_.model.empty() ? inputs.model : flags_.model;
    if (!chosen.model.empty() && IsDirectory(chosen.model)) return chosen;
    if (chosen.model.empty()) {
      return UsageError(absl::StrCat(verb_, ": ", folder, " holds adapters and not their model"),
                        "add --model DIR, the folder that the run began with");
    }
    return UsageError(absl::StrCat(verb_, ": ", folder,
                                   " holds adapters, and their model is not "
                                   "in ",
                                   chosen.model),
                      "add --model DIR with the place where the model is now");
  }

  // Looks for the run that the checkpoint was pulled of.
  RunInputs InputsOfItsRun(const std::string& folder) {
    const std::string real = ResolvedPath(folder);
    absl::StatusOr<RunStore*> store = context_.Store();
    const absl::StatusOr<ClientPaths> paths = context_.Paths();
    if (real.empty() || !store.ok() || !paths.ok()) return {};
    const absl::StatusOr<std::vector<RunRow>> rows = (*store)->List();
    if (!rows.ok()) return {};
    for (const RunRow& row : *rows) {
      const absl::StatusOr<std::vector<PulledItem>> items =
          PulledRecord(paths->MirrorDir(row.run_id)).Read();
      if (!items.ok()) continue;
      for (const PulledItem& item : *items) {
        if (item.kind == PulledItem::Kind::kFiles || ResolvedPath(item.path) != real) continue;
        const absl::StatusOr<RunRow> whole = (*store)->Get(row.run_id);
        return whole.ok() ? InputsOf(*whole) : RunInputs();
      }
    }
    return {};
  }

  absl::StatusOr<ChosenModel> OfRun() {
    ASSIGN_OR_RETURN(const PulledItem item, PulledCheckpoint());
    context_.Say(absl::StrCat("taking ", item.path));
    if (!IsDirectory(item.path) || !HoldsWeights(item.path)) {
      return UsageError(absl::StrCat(verb_, ": ", item.path,
                                     " is no checkpoint of the built-in "
                                     "trainer, and no model folder"),
                        "");
    }
    return Complete(item.path, InputsOf(*row_));
  }

  absl::StatusOr<PulledItem> PulledCheckpoint() {
    const std::string& name = row_->name;
    ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
    ASSIGN_OR_RETURN(const std::vector<PulledItem> items,
                     PulledRecord(paths.MirrorDir(row_->run_id)).Read());
    std::vector<PulledItem> there;  // oldest first
    std::string gone;
    for (const PulledItem& item : NewestFirst(items)) {
      if (PathExists(item.path)) {
        there.insert(there.begin(), item);
      } else if (gone.empty()) {
        gone = item.path;
      }
    }
    if (there.empty()) {
      return WithHint(
          absl::NotFoundError(absl::StrCat(verb_, " ", name, ": no checkpoint of it is at home",
                                           gone.empty() ? "" : "; this one is gone: ", gone)),
          absl::StrCat("gpuctl pull ", name, " brings one"));
    }
    std::vector<gpuctl::v1::CheckpointInfo> listed;
    for (const PulledItem& item : there) {
      gpuctl::v1::CheckpointInfo& info = listed.emplace_back();
      info.set_path(item.from);
      info.set_name(BaseName(item.path));
      info.set_step(item.step);
      info.set_kind(item.kind == PulledItem::Kind::kTrainer
                        ? gpuctl::v1::CheckpointInfo::KIND_TRAINER
                        : gpuctl::v1::CheckpointInfo::KIND_FOREIGN);
    }
    MirrorReader mirror(paths.MirrorDir(row_->run_id), row_->output_segment_bytes);
    RETURN_IF_ERROR(mirror.RefreshAll());
    const absl::StatusOr<gpuctl::v1::CheckpointInfo> chosen =
        ChooseCheckpoint(listed, flags_.checkpoint.empty() ? "latest" : flags_.checkpoint,
                         mirror.progress().eval_losses());
    if (!chosen.ok()) {
      return WithHint(Annotate(chosen.status(), absl::StrCat(verb_, " ", name, ", at home")),
                      absl::StrCat("gpuctl pull ", name, " --checkpoint brings others"));
    }
    for (size_t i = 0; i < there.size(); ++i) {
      if (listed[i].name() == chosen->name() && listed[i].path() == chosen->path()) return there[i];
    }
    return there.back();
  }

  CommandContext& context_;
  const ModelFlags& flags_;
  const std::string& verb_;
  const bool alone_;
  std::optional<RunRow> row_;
};

absl::StatusOr<ChosenModel> FindModel(CommandContext& context, const ModelFlags& flags,
                                      const std::string& verb, bool alone) {
  absl::StatusOr<ChosenModel> chosen = absl::UnknownError("not looked for");
  // What cannot be looked at throws.
  RETURN_IF_ERROR(TryTrainer([&] { chosen = Choice(context, flags, verb, alone).Find(); }));
  return chosen;
}

}  // namespace

void AddModelFlags(FlagSet& set, ModelFlags& flags) {
  set.Option("WHAT", flags.what,
             "The folder of a model, a checkpoint or an adapter; or a run, by its name or id, of "
             "which a checkpoint was pulled");
  set.Option("--checkpoint", flags.checkpoint,
             "Of a run: latest (the default), best, a step or a name. Alone: a folder");
  set.Option("--model", flags.model, "A model folder; of an adapter, the model that it belongs to");
  set.Option("--adapter", flags.adapter, "A PEFT adapter for that model");
}

void ChosenModel::AddTo(std::vector<std::string>& words) const {
  if (!adapter.empty()) {
    words.push_back(absl::StrCat(checkpoint ? "--checkpoint=" : "--adapter=", adapter));
    words.push_back(absl::StrCat("--model=", model));
  } else {
    words.push_back(absl::StrCat(checkpoint ? "--checkpoint=" : "--model=", model));
  }
}

absl::StatusOr<ChosenModel> ChooseModel(CommandContext& context, const ModelFlags& flags,
                                        const std::string& verb) {
  return FindModel(context, flags, verb, /*alone=*/false);
}

absl::StatusOr<std::string> ChooseFolder(CommandContext& context, const ModelFlags& flags,
                                         const std::string& verb) {
  ASSIGN_OR_RETURN(const ChosenModel chosen, FindModel(context, flags, verb, /*alone=*/true));
  return chosen.itself();
}

}  // namespace gpuctl
