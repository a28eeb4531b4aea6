// The model that a verb works with: a folder, or what was pulled of a run.
#ifndef GPUCTL_CLIENT_VERBS_MODEL_CHOICE_H_
#define GPUCTL_CLIENT_VERBS_MODEL_CHOICE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/flag_set.h"
#include "client/runs/context.h"

namespace gpuctl {

struct ModelFlags {
  std::string what;  // a folder, or RUN
  std::string model, adapter, checkpoint;
};
// Declares the argument and the three flags.
void AddModelFlags(FlagSet& set, ModelFlags& flags);

struct ChosenModel {
  std::string model;        // the folder with all weights, or the model of the adapter; may be ""
  std::string adapter;      // a folder with an adapter, or ""
  bool checkpoint = false;  // the adapter, or without one the model, is a checkpoint
  std::string data;         // prepared data on which the run trained, or ""

  // The folder that was chosen itself.
  const std::string& itself() const { return adapter.empty() ? model : adapter; }
  // Adds the flags that name it to the trainer.
  void AddTo(std::vector<std::string>& words) const;
};

// Finds the folder of `flags`; of a run the checkpoint that --checkpoint names, the newest by
// default, and for adapters also the model that the run began with. Says which checkpoint it is.
// `verb` begins the messages. INVALID_ARGUMENT for flags that do not go together, and for a name
// that a folder and a run have; NOT_FOUND with a hint when nothing was pulled.
absl::StatusOr<ChosenModel> ChooseModel(CommandContext& context, const ModelFlags& flags,
                                        const std::string& verb);

// Does the same for a verb that needs the folder alone, and not the model of its adapters.
absl::StatusOr<std::string> ChooseFolder(CommandContext& context, const ModelFlags& flags,
                                         const std::string& verb);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_MODEL_CHOICE_H_
