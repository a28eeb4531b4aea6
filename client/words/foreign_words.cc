#include "client/words/foreign_words.h"

#include "absl/strings/str_cat.h"

namespace gpuctl {

const std::vector<ForeignWord>& ForeignWords() {
  static const auto* const words = new std::vector<ForeignWord>{
      {"accelerators", "resources.gpu", "gpu: A100-80GB:8"},
      {"gpu", "resources.gpu", "gpu: H100:1"},
      {"gpus", "resources.gpus",
       "gpus: 2 for a share of a machine; gpu: H100:2 says which machine"},
      {"gpu_type", "resources.gpu", "gpu: H100:1"},
      {"instance_type", "resources.gpu", "gpu: H100:1"},
      {"any_of", "resources.gpu", "gpu: [H100:1, A100-80GB:1], best first"},
      {"ordered", "resources.gpu", "gpu: [H100:1, A100-80GB:1], best first"},
      {"use_spot", "resources.spot", "spot: true"},
      {"spot", "resources.spot", "spot: true"},
      {"spot_policy", "resources.spot", "spot: true"},
      {"interruptible", "resources.spot", "spot: true"},
      {"cloud", "resources.provider", "provider: [runpod, vast]"},
      {"infra", "resources.provider", "provider: [runpod, vast]"},
      {"backends", "resources.provider", "provider: [runpod, vast]"},
      {"provider", "resources.provider", "provider: [runpod, vast]"},
      {"disk_size", "resources.disk", "disk: 100GB"},
      {"disk", "resources.disk", "disk: 100GB"},
      {"max_price", "resources.max_price", "max_price: 3.00, in USD per hour"},
      {"max_hourly_cost", "resources.max_price", "max_price: 3.00, in USD per hour"},
      {"zone", "resources.region", "region: [US, EU]"},
      {"region", "resources.region", "region: [US, EU]"},
      {"regions", "resources.region", "region: [US, EU]"},
      {"image", "resources.image", "image: ghcr.io/me/train:1"},
      {"image_id", "resources.image", "image: ghcr.io/me/train:1"},
      {"docker_image", "resources.image", "image: ghcr.io/me/train:1"},
      {"registry_auth", "resources.registry", "registry: {username: me, password: A_SECRET}"},
      {"volumes", "resources.volume", "volume: {name: sets, path: /workspace}"},
      {"file_mounts", "data", "data: {./sets: data}, from here to below the work directory"},
      {"storage_mounts", "data", "data: {./sets: data}, from here to below the work directory"},
      {"repos", "workdir", "workdir: ."},
      {"working_dir", "workdir", "workdir: ."},
      {"envs", "env", "env: {WANDB_MODE: offline}"},
      {"environment", "env", "env: {WANDB_MODE: offline}"},
      {"env_vars", "env", "env: {WANDB_MODE: offline}"},
      {"command", "run", "run: python train.py"},
      {"commands", "run", "run: python train.py; with several lines behind run: |"},
      {"cmd", "run", "run: python train.py"},
      {"script", "run", "run: python train.py"},
      {"entrypoint", "run", "run: python train.py"},
      {"outputs", "artifacts", "artifacts: [outputs/**]"},
      {"timeout", "limits.time", "time: 6h"},
      {"max_duration", "limits.time", "time: 6h"},
      {"max_cost", "limits.cost", "cost: 20"},
      {"autostop", "limits.idle", "idle: 10m"},
      {"idle_duration", "limits.idle", "idle: 10m"},
      {"job_recovery", "retry", "retry: {max: 3, on: [preempted, lost]}"},
      {"retries", "retry.max", "retry: {max: 3}"},
      {"nproc_per_node", "processes", "processes: gpus, or processes: 8"},
      {"num_processes", "processes", "processes: gpus, or processes: 8"},
      {"ntasks_per_node", "processes", "processes: gpus, or processes: 8"},
      {"num_nodes", "resources.nodes", "nodes: 2; --host A,B names machines of yours"},
      {"nodes", "resources.nodes", "nodes: 2; --host A,B names machines of yours"},
      {"sweep", "", "gpuctl submit run.yaml --sweep lr=1e-4,2e-4 starts a run for each value"},
      {"parameters", "", "gpuctl submit run.yaml --sweep lr=1e-4,2e-4 starts a run for each value"},
      {"method", "", "gpuctl submit --sweep is a grid, --sample 10 draws from it"},
      {"program", "run", "run: python train.py"},
      {"tags", "", "gpuctl launch --tag WORD, or gpuctl tag RUN WORD"},
      {"cpus", "", "gpuctl rents by GPU: resources.gpu"},
      {"memory", "", "gpuctl rents by GPU: resources.gpu, also gpu: 24GB..80GB"}};
  return *words;
}

std::string OursFor(absl::string_view name) {
  for (const ForeignWord& word : ForeignWords()) {
    if (name != word.word) continue;
    if (*word.ours == '\0') return absl::StrCat("there is no such field here: ", word.how);
    return absl::StrCat("it is ", word.ours, " here, like ", word.how);
  }
  return "";
}

}  // namespace gpuctl
