#include "client/base/other_tools.h"

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

struct OtherWord {
  const char* word;
  const char* ours;
};

constexpr OtherWord kOtherWords[] = {
    {"sbatch", "gpuctl submit, or gpuctl launch -d for one run"},
    {"srun", "gpuctl launch"},
    {"salloc", "gpuctl launch, and then gpuctl ssh"},
    {"squeue", "gpuctl queue, or gpuctl ps"},
    {"scancel", "gpuctl cancel --running, or gpuctl stop for one run"},
    {"sacct", "gpuctl ps -a, and gpuctl cost"},
    {"sinfo", "gpuctl offers, and gpuctl instances"},
    {"scontrol", "gpuctl show"},
    {"scrontab", "gpuctl submit --every"},
    {"sattach", "gpuctl attach"},
    {"run", "gpuctl launch"},
    {"start", "gpuctl launch"},
    {"create", "gpuctl launch"},
    {"rent", "gpuctl launch"},
    {"list", "gpuctl ps"},
    {"ls", "gpuctl ps"},
    {"status", "gpuctl ps"},
    {"kill", "gpuctl stop"},
    {"terminate", "gpuctl down"},
    {"destroy", "gpuctl down"},
    {"delete", "gpuctl down for a machine, and gpuctl rm for a run"},
    {"download", "gpuctl pull"},
    {"fetch", "gpuctl pull"},
    {"upload", "gpuctl sync, or gpuctl cp"},
    {"sweep", "gpuctl submit --sweep"},
    {"results", "gpuctl queue BATCH --results"},
    {"shell", "gpuctl ssh"},
    {"jupyter", "gpuctl launch --forward 8888 -- jupyter lab --no-browser"},
    {"bill", "gpuctl instances for now, and gpuctl cost for all"},
    {"billing", "gpuctl instances for now, and gpuctl cost for all"},
    {"logout", "gpuctl login PROVIDER --remove"},
    {"--gres", "--gpu MODEL:8 for the machine, and --gpus 1 for a run's share of it"},
    {"--gpus-per-task", "--gpus"},
    {"--gpus-per-node", "--gpu MODEL:8"},
    {"--array", "submit --sweep i=0..5 --max-parallel 2"},
    {"--dependency", "submit --after RUN, which is Slurm's afterok"},
    {"--begin", "submit --every, for a job that comes again"},
    {"--job-name", "--name"},
    {"--output", "gpuctl logs"},
    {"--chdir", "--workdir"},
    {"--wait", "gpuctl wait --batch"},
    {"--requeue", "--retry-max"},
    {"--resume", "gpuctl resume RUN"},
    {"--mem", "part of the machine that --gpu names"},
    {"--cpus-per-task", "part of the machine that --gpu names"},
    {"--partition", "--provider, and --region"},
    {"--nodes", "one machine for a run"},
    {"--ntasks", "one command for a run, such as torchrun"}};

}  // namespace

std::string OursForOthers(absl::string_view word) {
  for (const OtherWord& one : kOtherWords) {
    if (word == one.word) return absl::StrCat("; it is ", one.ours, " here");
  }
  return "";
}

}  // namespace gpuctl
