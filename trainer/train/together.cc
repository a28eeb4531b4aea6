#include "trainer/train/together.h"

#include <ATen/ops/empty.h>

#include <numeric>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/train/resume.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

// Keys that may differ between processes: paths, and what one of them alone uses.
const std::vector<std::string> kOwnKeys = {"data.paths",      "model.init",        "lora.init",
                                           "train.threads",   "train.peak_tflops", "train.matmul",
                                           "train.log_every", "train.device",      "train.dtype"};

json SharedSettings(const Config& config) {
  json shared;
  const json all = ConfigToJson(config);
  for (const auto& [section, values] : all.items()) {
    if (section == "checkpoint" || section == "sample") continue;
    for (const auto& [key, value] : values.items()) {
      const std::string name = section + "." + key;
      if (std::find(kOwnKeys.begin(), kOwnKeys.end(), name) == kOwnKeys.end()) shared[name] = value;
    }
  }
  // These two decide together when ranks meet.
  shared["checkpoint.every"] = config.checkpoint.every;
  shared["checkpoint.keep_best"] = config.checkpoint.keep_best;
  return shared;
}

std::string FirstDifference(const json& here, const std::string& text) {
  const json first = json::parse(text, nullptr, /*allow_exceptions=*/false);
  for (const auto& [key, value] : here.items()) {
    if (!first.is_object() || !first.contains(key)) return "another version of the trainer";
    if (first[key] != value) return key + " is " + value.dump() + ", not " + first[key].dump();
  }
  return "another version of the trainer";
}

// One tensor after the other, so that the others need no file.
void ShareTensors(std::map<std::string, at::Tensor>* tensors, Group& group) {
  json list = json::array();
  for (const auto& [name, tensor] : *tensors) {
    list.push_back({{"name", name},
                    {"shape", tensor.sizes().vec()},
                    {"dtype", static_cast<int>(tensor.scalar_type())}});
  }
  const json first = json::parse(group.FromFirst(list.dump()));
  for (const json& entry : first) {
    const auto name = entry["name"].get<std::string>();
    if (group.rank() > 0) {
      (*tensors)[name] = at::empty(entry["shape"].get<std::vector<int64_t>>(),
                                   static_cast<at::ScalarType>(entry["dtype"].get<int>()));
    }
    at::Tensor& tensor = (*tensors)[name];
    tensor = tensor.contiguous();
    if (tensor.numel() == 0) continue;
    // As bytes: not all transports know all dtypes.
    group.collectives().Broadcast(tensor.view({-1}).view(at::kByte), 0);
  }
}

}  // namespace

ModelSource FindModelTogether(const Config& config, const std::string& resume, Group* group) {
  if (group == nullptr) return FindModel(config, resume);
  if (group->rank() == 0) {
    ModelSource source = FindModel(config, resume);
    group->FromFirst(source.checkpoint);
    return source;
  }
  const std::string checkpoint = group->FromFirst("");
  const auto gone = [](const std::string& folder, const char* file) {
    return !folder.empty() && !Exists(folder + "/" + file);
  };
  const bool needed =
      gone(config.model.init, "config.json") || gone(config.lora.init, "adapter_config.json");
  const bool here = !checkpoint.empty() && Exists(checkpoint + "/manifest.json");
  // The first process has verified it, and sends what it holds.
  ModelSource source = FindModelOf(config, needed && here ? checkpoint : "");
  source.checkpoint = checkpoint;
  return source;
}

int64_t HeldOnMachine(const Config& config, int64_t held, Group* group) {
  if (group == nullptr) return held;
  const int64_t first = std::stoll(group->FromFirst(std::to_string(held)));
  return group->rank() < config.train.local_processes ? first : held;
}

Agreement Agree(const Config& config, const Placement& placement, const TrainingData& data,
                int64_t micro_batch, Group* group) {
  if (group == nullptr) return {!config.checkpoint.dir.empty(), micro_batch};
  const json settings = SharedSettings(config);
  group->CheckSame(settings.dump(),
                   [&](const std::string& first) { return FirstDifference(settings, first); });
  group->CheckSame(data.digest(), [](const std::string&) { return "other data"; });
  const std::string dtype = NameOfDtype(placement.dtype);
  group->CheckSame(dtype, [&](const std::string& first) {
    return "it would train in " + dtype + ", not in " + first + "; train.dtype decides";
  });
  const bool writes = group->FromFirst(config.checkpoint.dir.empty() ? "no" : "yes") == "yes";
  return {writes, static_cast<int64_t>(group->Min(static_cast<double>(micro_batch)))};
}

LoadedCheckpoint ShareCheckpoint(LoadedCheckpoint loaded, Group& group) {
  const json about = {{"path", loaded.path},
                      {"step", loaded.step},
                      {"adapter", loaded.adapter},
                      {"model_config", loaded.model_config},
                      {"state", loaded.state}};
  const json first = json::parse(group.FromFirst(about.dump()));
  loaded.path = first["path"];
  loaded.step = first["step"];
  loaded.adapter = first["adapter"];
  loaded.model_config = first["model_config"];
  loaded.state = first["state"];
  ShareTensors(&loaded.weights, group);
  ShareTensors(&loaded.optimizer, group);
  return loaded;
}

bool FitsShares(const std::vector<int64_t>& shares, const Config& config) {
  const TrainConfig& train = config.train;
  return train.heterogeneous && static_cast<int64_t>(shares.size()) == train.processes &&
         std::accumulate(shares.begin(), shares.end(), int64_t{0}) == train.batch;
}

}  // namespace gpuctl::trainer
