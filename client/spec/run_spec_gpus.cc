// What a run spec says about the GPUs and processes of a run.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/spec/run_spec.h"

namespace gpuctl {

absl::Status CheckGpus(const RunSpec& spec) {
  if (!spec.gpus.has_value()) return absl::OkStatus();
  constexpr char kVariable[] = "CUDA_VISIBLE_DEVICES";
  if (spec.env.count(kVariable) > 0 ||
      std::count(spec.secrets.begin(), spec.secrets.end(), kVariable) > 0) {
    return absl::InvalidArgumentError(
        "resources.gpus sets CUDA_VISIBLE_DEVICES; take the variable out of env, or leave out "
        "gpus");
  }
  for (const GpuRequirement& gpu : spec.gpu) {
    if (gpu.count >= *spec.gpus) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("resources.gpus: ", *spec.gpus, " GPUs of a machine with ", gpu.count,
                     " (gpu: ", gpu.text, "); ask for a larger machine or fewer GPUs"));
  }
  return absl::OkStatus();
}

absl::Status CheckProcesses(const RunSpec& spec) {
  if (spec.processes != kOneForEachGpu || spec.gpus.value_or(1) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "processes: gpus starts one process for each GPU, and resources.gpus: 0 gives the run none");
}

absl::Status CheckShareOfRented(const RunSpec& spec) {
  if (spec.gpus.value_or(0) == 0 || !spec.gpu.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("gpus: ", *spec.gpus,
                   " says how much of a machine the run gets, and nothing "
                   "says which machine is rented"));
}

absl::StatusOr<int> ParseProcesses(absl::string_view word) {
  int number = 0;
  if (word == "gpus") return kOneForEachGpu;
  if (absl::SimpleAtoi(word, &number) && number >= 1 && number <= kMostProcesses) return number;
  return absl::InvalidArgumentError(absl::StrCat("\"", word, "\" is neither a number from 1 to ",
                                                 kMostProcesses, " nor the word gpus"));
}

std::string ProcessesWord(int processes) {
  if (processes == 0) return "";
  return processes == kOneForEachGpu ? "gpus" : absl::StrCat(processes);
}

}  // namespace gpuctl
