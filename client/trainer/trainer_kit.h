// The built-in trainer for other machines: the program, its dynamic loader and every library that
// it needs. It runs on any Linux of this processor architecture, whatever is installed there.
#ifndef GPUCTL_CLIENT_TRAINER_TRAINER_KIT_H_
#define GPUCTL_CLIENT_TRAINER_TRAINER_KIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/base/paths.h"
#include "client/runs/context.h"
#include "client/workdir/data_trees.h"

namespace gpuctl {

// By its path in the kit: "gpuctl-trainer", "lib/libc.so.6".
using KitFile = GatheredFile;

struct TrainerKit {
  std::string shown;           // the program or directory that it is made of
  std::vector<KitFile> files;  // by path, in the order of PathLess
  std::string loader;          // the dynamic loader's path in the kit
  int64_t bytes = 0;
  bool has_cuda = false;  // linked to a LibTorch that can use NVIDIA GPUs
};

// Returns the kit in the directory `trainer_kit` of `paths` if there is one. Else makes the kit of
// the trainer, and asks its dynamic loader for the libraries. Reads no library. FAILED_PRECONDITION
// with a hint when there is neither, or when the kit cannot run elsewhere.
absl::StatusOr<TrainerKit> FindTrainerKit(const BundlePaths& paths);

// Returns "499 MB, 288 files, for the CPU only".
std::string DescribeTrainerKit(const TrainerKit& kit);

// Returns the kit as one more tree of the job.
absl::StatusOr<DataTree> ScanTrainerKit(CommandContext& context, const TrainerKit& kit);

// Copies the kit to the new directory `directory`.
absl::Status WriteTrainerKit(const TrainerKit& kit, const std::string& directory);

// Returns the device of `trainer_json`: its setting train.device, "auto" by default.
std::string TrainerDevice(absl::string_view trainer_json);

// Returns FAILED_PRECONDITION with a hint when the settings do not choose the CPU and the trainer
// would leave the GPUs of `place` idle, or cannot work without them.
absl::Status CheckTrainerUsesGpus(const TrainerKit& kit, absl::string_view trainer_json,
                                  absl::string_view place);

// The functions below are parts of FindTrainerKit.

// Returns the dynamic loader that the ELF program `bytes` names. INVALID_ARGUMENT for anything but
// a dynamically linked 64-bit program for Linux.
absl::StatusOr<std::string> InterpreterOf(absl::string_view bytes);

struct NeededLibrary {
  std::string name;  // as in the program
  std::string path;  // path that the loader found
};
// Parses the output of a glibc dynamic loader for --list. Leaves out the kernel's library, the
// loader, and the libraries of the NVIDIA driver, which only the node has. FAILED_PRECONDITION
// names a library that is missing or bound to a fixed path.
absl::StatusOr<std::vector<NeededLibrary>> ParseLibraryList(absl::string_view text);

// True when LibTorch or CUDA open `neighbour` while they run, so that no list names it. It lies
// beside `library`, which is in the list.
bool IsOpenedLater(absl::string_view library, absl::string_view neighbour);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRAINER_TRAINER_KIT_H_
