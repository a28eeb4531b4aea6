#include "client/base/other_tools.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpuctl {
namespace {

struct OtherWord {
  const char* word;
  const char* ours;
};

// Jupyter refuses root, which users of most rented machines are, without --allow-root.
constexpr char kJupyter[] =
    "gpuctl launch --forward 8888 -- jupyter lab --ip 127.0.0.1 --no-browser --allow-root";

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
    {"apply", "gpuctl submit run.yaml, or gpuctl launch run.yaml"},
    {"get", "gpuctl ps for runs, gpuctl queue for batches, gpuctl instances for machines"},
    {"pods", "gpuctl ps"},
    {"describe", "gpuctl show"},
    {"events", "gpuctl show"},
    {"port-forward", "gpuctl forward"},
    {"explain", "gpuctl run-schema"},
    {"scale", "gpuctl submit --max-parallel"},
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
    {"--sweep", "gpuctl submit --sweep"},
    {"results", "gpuctl queue BATCH --results"},
    {"shell", "gpuctl ssh"},
    {"jupyter", kJupyter},
    {"notebook", kJupyter},
    {"tensorboard", "gpuctl ssh RUN -L 6006 -- tensorboard --logdir DIR"},
    {"best", "gpuctl pull --best BATCH"},
    {"bill", "gpuctl instances for now, and gpuctl cost for all"},
    {"billing", "gpuctl instances for now, and gpuctl cost for all"},
    {"logout", "gpuctl login PROVIDER --remove"},
    {"--gres", "--gpu MODEL:8 for the machine, and --gpus 1 for a run's share of it"},
    {"--gpus-per-task", "--gpus"},
    {"--gpus-per-node", "--gpu MODEL:8"},
    {"--array", "submit --sweep SLURM_ARRAY_TASK_ID=0..5 --max-parallel 2"},
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
    {"--partition",
     "--provider and --region, or slurm: {partition: NAME} in resources of the run file"},
    {"-t", "--time, with a unit, like 1h30m"},
    {"-J", "--name"},
    {"-a", "submit --sweep SLURM_ARRAY_TASK_ID=0..5 --max-parallel 2"},
    {"-G", "--gpu MODEL:8"},
    {"--gpus-per-socket", "--gpu MODEL:8"},
    {"-w", "--host"},
    {"--nodelist", "--host"},
    {"-C", "--gpu MODEL"},
    {"--constraint", "--gpu MODEL"},
    {"-c", "part of the machine that --gpu names"},
    {"--mem-per-cpu", "part of the machine that --gpu names"},
    {"--mem-per-gpu", "part of the machine that --gpu names, also --gpu 24GB..80GB"},
    {"--exclusive", "what each run has without --gpus: a machine for itself"},
    {"--signal", "--grace, the time between SIGTERM and SIGKILL"},
    {"--export", "--env NAME=VALUE, and --secret NAME"},
    {"--nice", "submit --priority"},
    {"--mail-type", "notify: in the run file"},
    {"--mail-user", "notify: in the run file"},
    {"-N", "nodes: 4 below resources:; --host A,B,C,D names machines of yours"},
    {"-n", "--processes N"},
    {"--ntasks-per-node", "--processes N"},
    {"--nodes", "nodes: 4 below resources:; --host A,B,C,D names machines of yours"},
    {"--ntasks", "--processes N"},
    {"-A", "slurm: {account: NAME} in resources of the run file"},
    {"--account", "slurm: {account: NAME} in resources of the run file"},
    {"--qos", "slurm: {qos: NAME} in resources of the run file"},
    {"--wrap", "the command behind --"},
    {"--parsable", "what submit and launch -d print: names alone"},
    {"--error", "gpuctl logs"},
    {"--test-only", "--dry-run"}};

}  // namespace

std::string OursForOthers(absl::string_view word) {
  for (const OtherWord& one : kOtherWords) {
    if (word == one.word) return absl::StrCat("; it is ", one.ours, " here");
  }
  return "";
}

std::string DurationOfSlurm(absl::string_view text) {
  const std::vector<absl::string_view> days_and_rest = absl::StrSplit(text, '-');
  if (text.empty() || days_and_rest.size() > 2) return "";
  const bool has_days = days_and_rest.size() == 2;
  std::vector<int64_t> numbers;
  for (const absl::string_view part : absl::StrSplit(days_and_rest.back(), ':')) {
    int64_t number = 0;
    const bool digits = part.find_first_not_of("0123456789") == part.npos;
    if (!digits || !absl::SimpleAtoi(part, &number) || number > 1'000'000) return "";
    numbers.push_back(number);
  }
  if (numbers.size() > 3) return "";
  int64_t seconds = 0;
  if (has_days) {
    int64_t days = 0;
    if (!absl::SimpleAtoi(days_and_rest.front(), &days) || days < 0 || days > 10'000) return "";
    numbers.resize(3);  // behind days come hours first
    seconds = days * 86'400 + numbers[0] * 3600 + numbers[1] * 60 + numbers[2];
  } else if (numbers.size() == 3) {
    seconds = numbers[0] * 3600 + numbers[1] * 60 + numbers[2];
  } else {
    seconds = numbers[0] * 60 + (numbers.size() == 2 ? numbers[1] : 0);
  }
  std::string ours;
  for (const auto& [unit, of_unit] : {std::pair("d", int64_t{86'400}),
                                      {"h", int64_t{3600}},
                                      {"m", int64_t{60}},
                                      {"s", int64_t{1}}}) {
    if (seconds >= of_unit) absl::StrAppend(&ours, seconds / of_unit, unit);
    seconds %= of_unit;
  }
  return ours;
}

}  // namespace gpuctl
