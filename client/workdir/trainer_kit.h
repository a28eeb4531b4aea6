// The built-in trainer for other machines: the program, its dynamic loader and every library that
// it needs, so that it runs on any Linux of this processor's kind, whatever is installed there.
#ifndef GPUCTL_CLIENT_WORKDIR_TRAINER_KIT_H_
#define GPUCTL_CLIENT_WORKDIR_TRAINER_KIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/base/paths.h"

namespace gpuctl {

struct KitFile {
  std::string path;    // in the kit: "gpuctl-trainer", "lib/libc.so.6"
  std::string source;  // absolute, on this machine, no symlink
};

struct TrainerKit {
  std::string shown;           // the program or directory that it is made of
  std::vector<KitFile> files;  // by path, in the order of PathLess
  std::string loader;          // the dynamic loader's path in the kit
  int64_t bytes = 0;
  bool has_cuda = false;  // linked to a LibTorch that can use NVIDIA GPUs
};

// The kit of `trainer_kit` in `paths`, when there is such a directory; else that of the trainer,
// whose dynamic loader is asked for the libraries. Reads no library. FAILED_PRECONDITION with a
// hint when there is neither, or when what is there cannot run elsewhere.
absl::StatusOr<TrainerKit> FindTrainerKit(const BundlePaths& paths);

// "499 MB, 288 files, for the CPU only"
std::string DescribeTrainerKit(const TrainerKit& kit);

// Copies the kit to the new directory `directory`.
absl::Status WriteTrainerKit(const TrainerKit& kit, const std::string& directory);

// What the trainer of `trainer_json` is to compute on: its setting train.device, "auto" by default.
std::string TrainerDevice(absl::string_view trainer_json);

// FAILED_PRECONDITION with a hint when the trainer would leave the GPUs of `place` idle, or cannot
// do without them, and was not told to use the CPU.
absl::Status CheckTrainerUsesGpus(const TrainerKit& kit, absl::string_view trainer_json,
                                  absl::string_view place);

// Below: parts of FindTrainerKit.

// The dynamic loader that the ELF program `bytes` asks for.
// INVALID_ARGUMENT for anything else than a dynamically linked program of 64 bits for Linux.
absl::StatusOr<std::string> InterpreterOf(absl::string_view bytes);

struct NeededLibrary {
  std::string name;  // as the program asks for it
  std::string path;  // where the loader found it
};
// Reads what a dynamic loader of glibc prints for --list. Leaves out the kernel's own, the loader,
// and what belongs to the NVIDIA driver, which only the node can have. FAILED_PRECONDITION names a
// library that is missing or bound to a place.
absl::StatusOr<std::vector<NeededLibrary>> ParseLibraryList(absl::string_view text);

// True for libraries that LibTorch or CUDA open while they run, so that no list names them, and
// that lie beside `library`, which is in the list.
bool IsOpenedLater(absl::string_view library, absl::string_view neighbour);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORKDIR_TRAINER_KIT_H_
