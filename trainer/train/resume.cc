#include "trainer/train/resume.h"

#include <torch/version.h>

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/sha256.h"
#include "trainer/base/text.h"
#include "trainer/linear/matmul.h"
#include "trainer/train/schedule.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

constexpr double kLargestCount = 9007199254740992.0;  // 2^53

// Keys that have no effect on the numbers of the run.
const std::vector<std::string> kHarmless = {
    "train.log_every", "train.eval_every", "train.peak_tflops", "train.threads",   "train.matmul",
    "train.patience",  "data.paths",       "data.exclude",      "data.extensions", "data.max_bytes",
    "lora.init",       "optimizer.zero",   "train.peer_timeout"};

bool Harmless(const std::string& name) {
  return name.rfind("checkpoint.", 0) == 0 || name.rfind("sample.", 0) == 0 ||
         std::find(kHarmless.begin(), kHarmless.end(), name) != kHarmless.end();
}

// Returns a value of an object, or null when there is none, whatever `value` is.
json Member(const json& value, const std::string& key) {
  return value.is_object() ? value.value(key, json()) : json();
}

// Returns "section.key was X, is Y" for every key that differs.
std::vector<std::pair<std::string, std::string>> Differences(const json& before, const json& now) {
  const json defaults = ConfigToJson(Config());
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& [section, values] : now.items()) {
    for (const auto& [key, value] : values.items()) {
      const std::string name = section + "." + key;
      // A key that the checkpoint's version did not have yet had its default value.
      const json& known = defaults[section][key];
      const json of = Member(before, section);
      const json old = of.is_object() ? of.value(key, known) : of.is_null() ? known : of;
      if (old != value) {
        found.emplace_back(name, name + " was " + old.dump() + ", is " + value.dump());
      }
    }
  }
  return found;
}

// True when both runs began from a folder; its path may change.
bool MovedInit(const json& before, const Config& now) {
  const json init = Member(Member(before, "model"), "init");
  return init.is_string() && init != "" && !now.model.init.empty();
}

// Returns a count from 0 to 2^53.
int64_t Integer(const json& state, const char* key, const std::string& path) {
  if (!state.contains(key) || !state[key].is_number_integer()) {
    throw DataError("resume from " + path + ": state.json has no number \"" + key + "\"");
  }
  const auto number = state[key].get<double>();
  if (number < 0 || number > kLargestCount) {
    throw DataError("resume from " + path + ": state.json: \"" + key + "\" " + state[key].dump() +
                    " is not possible");
  }
  return state[key].get<int64_t>();
}

void ReadLossScale(const json& stored, const std::string& path, Progress* progress) {
  const json scale = Member(stored, "scale");
  if (!scale.is_number() || !(scale.get<double>() >= 1) || !(scale.get<double>() < 1e30)) {
    throw DataError("resume from " + path + ": state.json has no possible loss_scale");
  }
  progress->loss_scale.scale = scale.get<double>();
  progress->loss_scale.good_updates = Integer(stored, "good_updates", path);
  progress->skipped = Integer(stored, "skipped", path);
}

}  // namespace

json StateToJson(const Config& config, const Placement& placement, const std::string& data_digest,
                 const Progress& progress) {
  const json written = ConfigToJson(config);
  json state = {
      {"format", 1},
      {"step", progress.step},
      {"tokens", progress.tokens},
      {"next_window", progress.next_window},
      {"loss", progress.loss},
      {"held_out_loss", nullptr},
      {"best", nullptr},
      {"micro_batch", progress.micro_batch},
      {"random",
       {{"generator", "philox4x32-10"},
        {"seed", config.train.seed},
        {"counter", progress.next_window}}},
      {"schedule",
       {{"total_steps", config.train.steps},
        {"next_lr", LearningRate(config.optimizer, progress.step, config.train.steps)}}},
      {"data_digest", data_digest},
      {"config", written},
      {"config_digest", Sha256Hex(written.dump())},
      {"threads", placement.workers},  // the workers, whose number decides the last bits
      {"processes", config.train.processes},
      {"device", placement.device.str()},
      {"dtype", NameOfDtype(placement.dtype)},
      {"torch", TORCH_VERSION},
      {"matmul", MatMulLibrary()},
  };
  if (placement.dtype == at::kHalf) {
    state["loss_scale"] = {{"scale", progress.loss_scale.scale},
                           {"good_updates", progress.loss_scale.good_updates},
                           {"skipped", progress.skipped}};
  }
  if (!progress.shares.empty()) state["shares"] = progress.shares;
  if (progress.held_out_loss) state["held_out_loss"] = *progress.held_out_loss;
  if (progress.best_loss) {
    state["best"] = {{"held_out_loss", *progress.best_loss},
                     {"step", progress.best_step},
                     {"worse_evaluations", progress.worse_evaluations}};
  }
  return state;
}

Progress ProgressFromJson(const json& state, const std::string& path) {
  Progress progress;
  progress.step = Integer(state, "step", path);
  progress.tokens = Integer(state, "tokens", path);
  progress.next_window = Integer(state, "next_window", path);
  if (state.contains("loss") && state["loss"].is_number()) progress.loss = state["loss"];
  if (state.contains("held_out_loss") && state["held_out_loss"].is_number()) {
    progress.held_out_loss = state["held_out_loss"].get<double>();
  }
  if (state.contains("micro_batch")) progress.micro_batch = Integer(state, "micro_batch", path);
  if (state.contains("loss_scale")) ReadLossScale(state["loss_scale"], path, &progress);
  const json shares = Member(state, "shares");
  const auto is_share = [](const json& share) {
    return share.is_number_integer() && share.get<double>() >= 1 &&
           share.get<double>() <= kLargestCount;
  };
  if (shares.is_array() && std::all_of(shares.begin(), shares.end(), is_share)) {
    progress.shares = shares.get<std::vector<int64_t>>();
  }
  if (state.contains("best") && state["best"].is_object()) {
    const json& best = state["best"];
    if (best.contains("held_out_loss") && best["held_out_loss"].is_number()) {
      progress.best_loss = best["held_out_loss"].get<double>();
      progress.best_step = Integer(best, "step", path);
      progress.worse_evaluations = Integer(best, "worse_evaluations", path);
    }
  }
  return progress;
}

bool KeepsMicroBatch(const json& state, const Config& config) {
  return Member(Member(Member(state, "config"), "train"), "micro_batch") ==
         config.train.micro_batch;
}

std::string NoteOfOtherInit(const json& state, const Config& config) {
  const json before = Member(Member(state, "config"), "model");
  if (!MovedInit(Member(state, "config"), config) || before["init"] == config.model.init) return "";
  return "the weights are the checkpoint's, which began with " + before["init"].get<std::string>() +
         "; those of " + config.model.init + " are not read";
}

std::vector<std::string> CheckResumable(const json& state, const Config& config,
                                        const Placement& placement, const std::string& data_digest,
                                        const std::string& path) {
  if (!state.contains("config") || !state["config"].is_object()) {
    throw DataError("resume from " + path + ": state.json has no configuration");
  }
  std::vector<std::string> notes;
  for (const auto& [name, difference] : Differences(state["config"], ConfigToJson(config))) {
    if (name == "model.init" && MovedInit(state["config"], config)) continue;
    if (name == "train.freeze") {
      throw ConfigError("resume from " + path + ": other frozen weights: " + difference);
    }
    if (name.rfind("lora.", 0) == 0 && name != "lora.dropout" && name != "lora.init") {
      throw ConfigError("resume from " + path + ": other adapters: " + difference);
    }
    if (name.rfind("model.", 0) == 0) {
      throw ConfigError("resume from " + path + ": another model: " + difference);
    }
    if (!Harmless(name)) notes.push_back(difference);
  }
  if (Member(state, "data_digest") != data_digest) {
    throw DataError("resume from " + path + ": it was trained on other data",
                    "give the same files in data.paths, or start afresh elsewhere");
  }
  const json here = StateToJson(config, placement, data_digest, {});
  for (const char* key : {"threads", "processes", "device", "dtype", "torch", "matmul"}) {
    json before = Member(state, key);
    // Older versions trained in one process and did not say it.
    if (before.is_null() && std::string(key) == "processes") before = 1;
    if (before != here[key]) {
      notes.push_back(std::string(key) + " was " + before.dump() + ", is " + here[key].dump());
    }
  }
  return notes;
}

}  // namespace gpuctl::trainer
