#include "client/trainer/trainer_inputs.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/ignore/secret_files.h"
#include "client/spec/trainer_settings.h"
#include "client/terminal/console.h"
#include "client/trainer/prepare_data.h"
#include "client/trainer/try_trainer.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/sha256.h"
#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/sha256.h"
#include "trainer/checkpoint/folder_files.h"
#include "trainer/checkpoint/stored_file.h"
#include "trainer/config/adapter_config.h"
#include "trainer/config/config.h"
#include "trainer/data/bytes_of_text.h"
#include "trainer/data/prepared.h"
#include "trainer/data/prompts.h"
#include "trainer/prepare/prepare_flags.h"
#include "trainer/prepare/row_source.h"

namespace gpuctl {
namespace {

using nlohmann::json;

constexpr char kAdapterWeights[] = "adapter_model.safetensors";

bool IsBelow(const std::string& path, const std::string& directory) {
  return path == directory || absl::StartsWith(path, absl::StrCat(directory, "/"));
}

std::string Normal(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

// Returns the path without symlinks; "" when nothing is there.
std::string Resolve(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? "" : resolved;
}

// A run file has no flag of `prepare`.
absl::Status ForRunFile(const absl::Status& status) {
  const std::string hint = absl::StrReplaceAll(
      HintOf(status), {{"--bad-rows skip goes on without them",
                        "gpuctl prepare with --bad-rows skip makes data without them, which "
                        "data.paths can name (without data.held_out_fraction)"},
                       {"raise --context", "raise model.context"}});
  return WithExitCode(WithHint(absl::Status(status.code(), status.message()), hint),
                      ExitCodeOf(status));
}

// Something that the settings name.
struct Found {
  std::string shown;       // as the settings have it
  std::string local;       // absolute, without symlinks; "": not here
  std::string path;        // below the job's work directory; "" when it is not sent yet
  std::string data;        // its entry in RunSpec::data, if it is the whole of one
  bool elsewhere = false;  // the machine may have it
};

// Makes the plan for one run.
class Inputs {
 public:
  Inputs(CommandContext& context, std::string root, bool may_be_there, RunSpec& spec)
      : context_(context), root_(std::move(root)), may_be_there_(may_be_there), spec_(spec) {}

  absl::StatusOr<TrainerInputs> Plan() {
    settings_ = json::parse(spec_.trainer_json, nullptr, false);
    ASSIGN_OR_RETURN(rows_, TakeRowSettings(settings_));
    RETURN_IF_ERROR(TryTrainer([this] { config_ = trainer::ParseConfig(settings_); }));
    RETURN_IF_ERROR(PlanModel());
    RETURN_IF_ERROR(PlanAdapter());
    RETURN_IF_ERROR(PlanData());
    spec_.trainer_json = settings_.dump(-1, ' ', false, json::error_handler_t::replace);
    return std::move(inputs_);
  }

 private:
  absl::StatusOr<Found> Find(const char* key, const std::string& value) const;
  absl::Status Missing(const char* key, const Found& found) const;
  // Sees that the folder is sent, and returns its path there; `name` tells it from others of ours.
  std::string Send(const Found& found, const std::string& name);
  void SendFolder(const Found& found, const std::string& name, bool adapter, json& setting);
  absl::Status PlanModel();
  absl::Status PlanAdapter();
  absl::Status PlanData();
  // Refuses what would do nothing with this data.
  absl::Status CheckDataSettings(bool rows, bool prepared, const Found& data);
  absl::Status CheckModel(const std::string& folder);
  absl::Status CheckPrepared(const std::string& folder) const;
  bool IsMade(const std::string& folder) const {
    return trainer::IsPrepared(folder) && CheckPrepared(folder).ok();
  }
  absl::StatusOr<std::string> PrepareRows(const std::vector<Found>& data);
  // Warns when rows lose their end.
  absl::Status TellOfCutRows(const std::string& prepared);
  absl::StatusOr<trainer::PrepareOptions> RowOptions(const std::vector<Found>& data);
  absl::StatusOr<std::string> KeyOf(const trainer::PrepareOptions& options);

  CommandContext& context_;
  const std::string root_;
  const bool may_be_there_;
  RunSpec& spec_;
  json settings_;
  RowSettings rows_;
  trainer::Config config_;
  std::string model_;  // the folder of model.init here, or ""
  bool has_tokenizer_ = false;
  int64_t vocabulary_ = 0;  // of the model; 0: it is on the machine
  TrainerInputs inputs_;
};

absl::StatusOr<Found> Inputs::Find(const char* key, const std::string& value) const {
  Found found;
  found.shown = value;
  const std::string path = Normal(value);
  if (!absl::StartsWith(path, "/")) {
    for (const auto& [local, target] : spec_.data) {
      const std::string there = Normal(target);
      if (!IsBelow(path, there)) continue;
      found.path = path;
      if (path == there) found.data = local;
      const std::string here = absl::StrCat(local, path.substr(there.size()));
      found.local = Resolve(here);
      if (!found.local.empty()) return found;
      return UsageError(
          absl::StrCat("trainer: ", key, ": there is no ", here, ", which goes to ", path),
          "launch the run file again if gpuctl made it, else correct data:");
    }
  }
  const bool absolute = absl::StartsWith(path, "/");
  found.local = Resolve(absolute ? path : JoinPath(root_, path));
  if (!found.local.empty()) return found;
  if (!absolute || !may_be_there_) return Missing(key, found);
  found.elsewhere = true;
  return found;
}

absl::Status Inputs::Missing(const char* key, const Found& found) const {
  std::string hint = absl::StartsWith(found.shown, "/")
                         ? "name what is on this computer"
                         : absl::StrCat("it is relative to the work directory, ", root_);
  const std::vector<std::string> words = absl::StrSplit(found.shown, '/');
  if (absl::StartsWith(found.shown, "~")) {
    hint = "write the whole path: nothing stands for ~ in a run file";
  } else if (absl::string_view(key) == "model.init" && words.size() == 2 &&
             !absl::StartsWith(found.shown, ".")) {
    absl::StrAppend(&hint, "; gpuctl downloads no models: where that is one of Hugging Face's, hf ",
                    "download ", found.shown, " --local-dir ", words[1], " brings it");
  }
  return UsageError(absl::StrCat("trainer: ", key, ": there is no ", found.shown), hint);
}

std::string Inputs::Send(const Found& found, const std::string& name) {
  if (!found.path.empty()) return found.path;
  for (const auto& [local, target] : spec_.data) {
    if (Resolve(local) == found.local) return target;
  }
  // Its own place in the work directory, so that the settings stay as they are, where that is free.
  std::string path = Normal(found.shown);
  bool free = !absl::StartsWith(path, "/") && path != "." && path != ".." &&
              !absl::StartsWith(path, "../") && !IsBelow(path, ".gpuctl");
  for (const auto& [local, target] : spec_.data) {
    const std::string taken = Normal(target);
    free = free && !IsBelow(path, taken) && !IsBelow(taken, path);
  }
  if (!free) path = absl::StrCat(".gpuctl/", name);
  spec_.data[found.local] = path;
  return path;
}

void Inputs::SendFolder(const Found& found, const std::string& name, bool adapter, json& setting) {
  const std::string path = Send(found, name);
  setting = path;
  for (const auto& [local, target] : spec_.data) {
    if (target == path) inputs_.folders.push_back({local, path, adapter});
  }
}

absl::Status Inputs::CheckModel(const std::string& folder) {
  return TryTrainer([&] {
    const trainer::ModelFolder model = trainer::ReadModelFolder(folder);
    trainer::OpenWeights(folder);
    vocabulary_ = model.model.vocab_size;
    if (config_.model.context > model.model.context) {
      throw trainer::ConfigError(
          absl::StrCat("start from ", folder, ": model.context ", config_.model.context,
                       " is longer than the model's ", model.model.context),
          absl::StrCat("set model.context to ", model.model.context, " or less"));
    }
    config_.model.context = trainer::ContextOf(config_.model, model.model);
    has_tokenizer_ = trainer::HasTokenizer(folder);
  });
}

absl::Status Inputs::PlanModel() {
  vocabulary_ = config_.model.vocab_size;
  if (config_.model.init.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Found found, Find("model.init", config_.model.init));
  if (found.elsewhere) {
    context_.Say(absl::StrCat("model.init ", found.shown,
                              " is not on this computer; the machine must have it"));
    vocabulary_ = 0;
    return absl::OkStatus();
  }
  model_ = found.local;
  RETURN_IF_ERROR(CheckModel(model_));
  SendFolder(found, "model", /*adapter=*/false, settings_["model"]["init"]);
  return absl::OkStatus();
}

absl::Status Inputs::PlanAdapter() {
  if (config_.lora.init.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Found found, Find("lora.init", config_.lora.init));
  if (found.elsewhere) {
    context_.Say(absl::StrCat("lora.init ", found.shown,
                              " is not on this computer; the machine must have it"));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(TryTrainer([&] {
    const std::string path = found.local + "/adapter_config.json";
    const json config = trainer::ReadJsonObject(path);
    trainer::LoraFromPeft(config, path);
    const trainer::StoredFile file(JoinPath(found.local, kAdapterWeights));
    std::vector<std::string> modules;
    for (const trainer::StoredTensor& tensor : file.tensors()) {
      modules.push_back(tensor.name.substr(0, tensor.name.rfind('.')));
    }
    trainer::CheckSaved(trainer::ParseAdapterConfig(config, path), modules, found.local);
  }));
  SendFolder(found, "adapter", /*adapter=*/true, settings_["lora"]["init"]);
  return absl::OkStatus();
}

absl::Status Inputs::CheckPrepared(const std::string& folder) const {
  return TryTrainer([&] {
    const trainer::PreparedData data = trainer::OpenPrepared(folder);
    if (vocabulary_ == 0) return;
    const std::string tokenizer = model_ + "/tokenizer.json";
    const bool known = !model_.empty() && trainer::IsFile(tokenizer);
    trainer::CheckFitsModel(data, folder, vocabulary_,
                            known ? trainer::Sha256HexOfFile(tokenizer) : "");
  });
}

absl::Status Inputs::CheckDataSettings(bool rows, bool prepared, const Found& data) {
  trainer::DataConfig settings = config_.data;
  // It is done with when rows are prepared. Settings of older runs still have it.
  const absl::StatusOr<ClientPaths> paths = context_.Paths();
  const bool ours =
      prepared && paths.ok() && DirName(data.local) == Resolve(DirName(paths->PreparedRows("key")));
  if (rows || ours) {
    settings.held_out_fraction = trainer::DataConfig().held_out_fraction;
  }
  RETURN_IF_ERROR(TryTrainer([&] { trainer::CheckDataSettings(settings, rows || prepared); }));
  if (ours && settings_.contains("data")) settings_["data"].erase("held_out_fraction");
  return absl::OkStatus();
}

absl::Status Inputs::PlanData() {
  std::vector<Found> data;
  bool prepared = false;
  bool elsewhere = false;
  for (const std::string& path : config_.data.paths) {
    ASSIGN_OR_RETURN(data.emplace_back(), Find("data.paths", path));
    elsewhere = elsewhere || data.back().elsewhere;
    prepared = prepared || (!data.back().elsewhere && trainer::IsPrepared(data.back().local));
  }
  if (prepared && data.size() > 1) {
    return UsageError("trainer: data.paths: prepared data stands beside other paths",
                      "name it alone");
  }
  const bool rows = !prepared && !elsewhere && has_tokenizer_ && config_.data.tokens != "bytes";
  // Says more than what follows.
  if (!rows && !prepared && !elsewhere && !model_.empty()) {
    trainer::DataConfig here = config_.data;
    here.paths.clear();
    for (const Found& found : data) here.paths.push_back(found.local);
    RETURN_IF_ERROR(TryTrainer([&] { trainer::CheckBytesAreMeant(model_, here); }));
  }
  if (!rows && !rows_.empty()) {
    return UsageError(absl::StrCat("trainer: ", rows_.mask.empty() ? "data.template" : "data.mask",
                                   " is for rows that are prepared here, and ",
                                   prepared ? "data.paths is prepared already"
                                            : "there is no model.init with a tokenizer for them"),
                      "leave it out");
  }
  if (!elsewhere) RETURN_IF_ERROR(CheckDataSettings(rows, prepared, data[0]));
  if (rows) {
    ASSIGN_OR_RETURN(const std::string folder, PrepareRows(data));
    RETURN_IF_ERROR(TellOfCutRows(folder));
    Found made;
    made.shown = made.local = folder;
    data = {made};
    if (settings_.contains("data")) settings_["data"].erase("held_out_fraction");
  }
  constexpr int64_t kByteTokens = 257;
  if (!rows && !prepared && !model_.empty() && vocabulary_ < kByteTokens) {
    return UsageError(
        absl::StrCat("trainer: text is trained as bytes, which need ", kByteTokens,
                     " tokens; the model of ", config_.model.init, " has ", vocabulary_),
        "a tokenizer.json in its folder lets gpuctl make its tokens of the text");
  }
  if (!rows && !prepared) return absl::OkStatus();  // text lies in the work directory
  RETURN_IF_ERROR(CheckPrepared(data[0].local));
  if (config_.sample.tokens > 0) {
    RETURN_IF_ERROR(TryTrainer([&] { trainer::FindPrompts(config_.sample, data[0].local); }));
  }
  settings_["data"]["paths"] = {Send(data[0], "data")};
  return absl::OkStatus();
}

absl::StatusOr<trainer::PrepareOptions> Inputs::RowOptions(const std::vector<Found>& data) {
  trainer::PrepareOptions options;
  options.model = model_;
  for (const Found& found : data) options.data.push_back(found.local);
  options.context = config_.model.context;
  RETURN_IF_ERROR(
      TryTrainer([&] { options.mask = trainer::MaskOf(rows_.mask, "trainer: data.mask"); }));
  if (settings_.contains("data") && settings_["data"].contains("held_out_fraction")) {
    options.held_out = config_.data.held_out_fraction;
  }
  options.samples = 0;
  if (config_.sample.tokens > 0) options.prompts = config_.sample.AllPrompts();
  if (rows_.template_file.empty()) return options;
  ASSIGN_OR_RETURN(const Found found, Find("data.template", rows_.template_file));
  if (found.elsewhere) return Missing("data.template", found);
  options.template_file = found.local;
  return options;
}

// Returns a digest of all that decides how the rows become tokens, but for today's date, which some
// templates print. Notes the files of rows.
absl::StatusOr<std::string> Inputs::KeyOf(const trainer::PrepareOptions& options) {
  json key = {{"format", trainer::kPreparedFormat},
              {"context", options.context},
              {"mask", static_cast<int>(options.mask)},
              {"held_out", options.held_out},
              {"rows", json::array()}};
  // Keys of data without prompts stay what they were.
  if (!options.prompts.empty()) key["prompts"] = options.prompts;
  RETURN_IF_ERROR(TryTrainer([&] {
    for (const trainer::DataFile& file : trainer::FindDataFiles(options.data, false)) {
      if (!trainer::IsFile(file.path)) {
        throw trainer::DataError("read data " + file.path + ": it is no file");
      }
      if (const std::string real = Resolve(file.path); IsBelow(real, root_) && real != root_) {
        inputs_.rows.push_back(real.substr(root_.size() + (root_ == "/" ? 0 : 1)));
      }
      const std::string ending = std::filesystem::path(file.path).extension().string();
      key["rows"].push_back({ending, trainer::Sha256HexOfFile(file.path)});
    }
    std::vector<std::string> files;
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      files.push_back(absl::StrCat(model_, "/", name));
    }
    if (!options.template_file.empty()) files.push_back(options.template_file);
    for (const std::string& file : files) {
      key["model"].push_back(trainer::IsFile(file) ? trainer::Sha256HexOfFile(file) : "");
    }
  }));
  return Sha256HexOf(key.dump(-1, ' ', false, json::error_handler_t::replace)).substr(0, 24);
}

absl::StatusOr<std::string> Inputs::PrepareRows(const std::vector<Found>& data) {
  ASSIGN_OR_RETURN(trainer::PrepareOptions options, RowOptions(data));
  ASSIGN_OR_RETURN(const std::string key, KeyOf(options));
  ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
  options.out = paths.PreparedRows(key);
  if (IsMade(options.out)) return options.out;
  RETURN_IF_ERROR(MakeDirectories(DirName(options.out)));
  // Several runs of one experiment may start at the same time.
  const std::string lock = absl::StrCat(options.out, ".lock");
  absl::StatusOr<UniqueFd> turn = TryLock(lock);
  if (absl::IsUnavailable(turn.status())) {
    context_.Say("another gpuctl prepares the same rows; waiting for it");
    turn = WaitForLock(lock);
  }
  RETURN_IF_ERROR(turn.status());
  if (IsMade(options.out)) return options.out;
  context_.Say(absl::StrCat("preparing the rows of ", data[0].shown,
                            data.size() > 1 ? " and others" : "", " with the tokenizer of ",
                            config_.model.init));
  const absl::StatusOr<trainer::PrepareReport> made = PrepareData(context_, options);
  if (!made.ok()) return ForRunFile(made.status());
  const trainer::PrepareReport& report = *made;
  const trainer::PartCounts& train = report.parts[trainer::kTrain];
  context_.Say(absl::StrCat("prepared ", train.rows, " rows with ", train.tokens,
                            " tokens, of which ", train.learned, " are learned, and ",
                            report.parts[trainer::kHeldOut].rows, " held-out rows"));
  return options.out;
}

absl::Status Inputs::TellOfCutRows(const std::string& prepared) {
  json told;
  RETURN_IF_ERROR(
      TryTrainer([&] { told = trainer::OpenPrepared(prepared).description["report"]; }));
  if (!told.is_object()) return absl::OkStatus();
  const int64_t cut = told.value("truncated_rows", int64_t{0});
  if (cut == 0) return absl::OkStatus();
  context_.Warn(absl::StrCat(cut, " of ", told.value("rows", int64_t{0}),
                             " rows are longer than model.context (", config_.model.context,
                             ") and lose their end, ", told.value("dropped_tokens", int64_t{0}),
                             " tokens in all"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrainerInputs> PlanTrainerInputs(CommandContext& context, const std::string& root,
                                                bool may_be_there, RunSpec& spec) {
  absl::StatusOr<TrainerInputs> inputs = absl::UnknownError("not planned");
  // What cannot be looked at throws.
  RETURN_IF_ERROR(TryTrainer([&] { inputs = Inputs(context, root, may_be_there, spec).Plan(); }));
  return inputs;
}

absl::StatusOr<DataTree> ScanModelInput(CommandContext& context, const ModelInput& input) {
  const std::string folder = Resolve(input.local);
  std::set<std::string> names;
  RETURN_IF_ERROR(TryTrainer([&] {
    if (input.adapter) {
      names.insert(kAdapterWeights);
    } else {
      for (const auto& [name, place] : trainer::OpenWeights(folder)) {
        names.insert(BaseName(place.file->path()));
      }
    }
    for (const std::string& name : trainer::ListDirectory(folder)) {
      for (const char* ending : {".json", ".jinja", ".txt", ".model"}) {
        if (absl::EndsWith(name, ending) && !LooksLikeSecret(name)) names.insert(name);
      }
    }
  }));
  std::vector<GatheredFile> files;
  RETURN_IF_ERROR(TryTrainer([&] {
    for (const std::string& name : names) {
      const std::string source = Resolve(JoinPath(folder, name));
      if (trainer::IsFile(source)) files.push_back({name, source});
    }
  }));
  std::sort(files.begin(), files.end(), [](const GatheredFile& one, const GatheredFile& other) {
    return PathLess(one.path, other.path);
  });
  absl::StatusOr<DataTree> tree = ScanGatheredFiles(
      context, files, input.path, absl::StrCat("model-", Sha256HexOf(folder).substr(0, 24)),
      FileModes::kReadable);
  if (!tree.ok()) return Annotate(tree.status(), absl::StrCat("read ", folder));
  tree->origin = folder;
  return tree;
}

json SettingsHere(const RunSpec& spec, const std::string& root) {
  json settings = json::parse(spec.trainer_json, nullptr, false);
  const auto here = [&](json& value) {
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) return;
    const std::string path = Normal(value.get<std::string>());
    if (absl::StartsWith(path, "/")) return;
    value = JoinPath(root, path);
    for (const auto& [local, target] : spec.data) {
      const std::string there = Normal(target);
      if (IsBelow(path, there)) value = absl::StrCat(local, path.substr(there.size()));
    }
  };
  constexpr std::pair<const char*, const char*> kPaths[] = {
      {"model", "init"}, {"lora", "init"}, {"data", "paths"}, {"checkpoint", "dir"}};
  for (const auto& [section, key] : kPaths) {
    if (!settings.is_object() || !settings.contains(section)) continue;
    json& keys = settings[section];
    if (!keys.is_object() || !keys.contains(key)) continue;
    if (keys[key].is_array()) {
      for (json& path : keys[key]) here(path);
    } else {
      here(keys[key]);
    }
  }
  return settings;
}

}  // namespace gpuctl
