// Fuzzes what lies in a job's directory and what a GPU's tools print: lifecycle, checkpoint
// manifests, nvidia-smi's lines and /proc.
#include <cstdint>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "agent/telemetry/gpu_probe.h"
#include "agent/telemetry/host_probe.h"
#include "common/files/relative_path.h"
#include "common/job/checkpoint.h"
#include "common/job/lifecycle.h"

namespace {

// A line that is accepted is the same after it is written and read again.
void CheckLifecycle(absl::string_view text) {
  const gpuctl::Lifecycle lifecycle = gpuctl::ParseLifecycle(text);
  for (const gpuctl::LifecycleEvent& event : lifecycle.events) {
    const std::string line = gpuctl::FormatLifecycleEvent(event);
    if (!absl::EndsWith(line, "\n")) abort();
    const auto again =
        gpuctl::ParseLifecycleEvent(absl::string_view(line).substr(0, line.size() - 1));
    if (!again.ok() || gpuctl::FormatLifecycleEvent(*again) != line) abort();
    const int code = gpuctl::ShellExitCode(event);
    if (code < 0 || code > 255) abort();
  }
  (void)gpuctl::IsOver(lifecycle);
  (void)gpuctl::LastStateEvent(lifecycle);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  CheckLifecycle(text);
  if (const auto manifest = gpuctl::ParseCheckpointManifest(text); manifest.ok()) {
    for (const gpuctl::CheckpointFile& file : manifest->files) {
      if (file.size < 0 || !gpuctl::IsSafeRelativePath(file.path)) abort();
    }
  } else if (manifest.status().code() != absl::StatusCode::kInvalidArgument) {
    abort();
  }
  gpuctl::NvidiaSmiParser gpus;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) (void)gpus.AddLine(line);
  gpuctl::HostCounters counters;
  gpuctl::ParseProcStat(text, counters);
  gpuctl::ParseMeminfo(text, counters);
  gpuctl::ParseDiskstats(text, counters);
  gpuctl::ParseNetDev(text, counters);
  return 0;
}
