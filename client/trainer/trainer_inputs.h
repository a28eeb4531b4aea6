// What a run of the built-in trainer takes from this laptop besides text: the model folder of
// model.init, the adapter of lora.init, and tokens that are made of rows of text.
#ifndef GPUCTL_CLIENT_TRAINER_TRAINER_INPUTS_H_
#define GPUCTL_CLIENT_TRAINER_TRAINER_INPUTS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/spec/run_spec.h"
#include "client/workdir/data_trees.h"

namespace gpuctl {

// A folder of which only the files are sent that the trainer reads.
struct ModelInput {
  std::string local;  // its entry in RunSpec::data
  std::string path;   // below the job's work directory
  bool adapter = false;
};

struct TrainerInputs {
  std::vector<ModelInput> folders;
  // Files of rows below the work directory. Their tokens are sent instead.
  std::vector<std::string> rows;
};

// Finds and checks the folders that the trainer's settings name, and prepares rows of text with the
// model's tokenizer: in a folder that gpuctl keeps, unless the same rows were prepared in the same
// way before. Then `spec.data` has all folders that must be sent, and `spec.trainer_json` their
// places on the machine.
//
// Paths are relative to the work directory `root`. What `spec.data` has already stays as it is. A
// folder with an absolute path that is not here is an error, unless `may_be_there`: the machine may
// have it. Errors are for the user, with hints, and CANCELLED for an interruption.
absl::StatusOr<TrainerInputs> PlanTrainerInputs(CommandContext& context, const std::string& root,
                                                bool may_be_there, RunSpec& spec);

// Scans such a folder. Links to files are followed, as caches of models are full of them.
absl::StatusOr<DataTree> ScanModelInput(CommandContext& context, const ModelInput& input);

// Returns the settings `spec.trainer_json` with absolute paths on this computer in the place of
// those on the machine, for the work directory `root`: what a run of the trainer here takes. Looks
// at no file.
nlohmann::json SettingsHere(const RunSpec& spec, const std::string& root);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRAINER_TRAINER_INPUTS_H_
