// Judges from its own files whether a checkpoint without a manifest is whole: those of Hugging
// Face, torch.save and torch.distributed.checkpoint.
#ifndef GPUCTL_COMMON_JOB_CHECKPOINT_LAYOUT_H_
#define GPUCTL_COMMON_JOB_CHECKPOINT_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// True for a name that writers give to unfinished files: it begins with ".", has the word "tmp"
// (words are separated by '.', '-' and '_'), or ends in .temp, .part, .partial, .incomplete or "~".
bool IsTemporaryName(absl::string_view name);

// Returns the last number in a checkpoint's name, which writers use for its step; of a file's name
// without the last extension. -1 when there is none.
int64_t StepOfCheckpointName(absl::string_view name, bool is_file);

enum class Wholeness {
  kTorn,     // something is missing
  kUnknown,  // nothing is known to be missing
  kWhole,    // all that was to be written is there
};

struct LayoutFile {
  std::string path;  // relative to the checkpoint's directory
  int64_t size = 0;
};

struct LayoutVerdict {
  Wholeness wholeness = Wholeness::kUnknown;
  std::string why;  // of kTorn
};

// Judges one file by its content; its name tells the kind:
//   *.safetensors       the header's size and its last data_offsets against the file's size
//   *.json              parses
//   *.pt *.pth *.ckpt *.bin *.npz   of torch.save or numpy: the zip archive has its end
LayoutVerdict JudgeCheckpointFile(const std::string& path, int64_t size);

// Judges the directory `dir`, whose regular files are `files`: each file as above, and
//   x-00001-of-00003.y     all three are there
//   x.index.json           every file of its weight_map is there
//   x.distcp               .metadata, which is written last, is there
//   checkpoint-<number> with training_args.bin   trainer_state.json, which is written last, is
//   there
// A file with a temporary name that is not hidden means that the writer is not done.
LayoutVerdict JudgeCheckpointDirectory(const std::string& dir,
                                       const std::vector<LayoutFile>& files);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_JOB_CHECKPOINT_LAYOUT_H_
