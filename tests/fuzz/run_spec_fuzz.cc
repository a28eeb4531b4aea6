// Fuzzes a run file, and the small grammars of its values.
#include <cstdint>
#include <cstdlib>

#include "client/base/quantity.h"
#include "client/spec/gpu_names.h"
#include "client/spec/run_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto spec = gpuctl::ParseRunSpec(text, "fuzz.yaml");
  if (spec.ok()) {
    // Accepted values are within their bounds.
    if (spec->max_retries < 0 || spec->max_retries > 1000) abort();
    if (spec->time_limit < absl::ZeroDuration() || spec->disk_bytes < 0) abort();
    (void)gpuctl::CheckRunSpec(*spec);
  } else if (spec.status().code() != absl::StatusCode::kInvalidArgument) {
    abort();
  }
  if (const auto gpu = gpuctl::ParseGpuRequirement(text); gpu.ok() && gpu->count < 1) abort();
  if (const auto bytes = gpuctl::ParseSize(text); bytes.ok() && *bytes < 0) abort();
  if (const auto time = gpuctl::ParseDuration(text); time.ok() && *time < absl::ZeroDuration()) {
    abort();
  }
  gpuctl::RunSpec flags;
  (void)gpuctl::AddEnvironment(text, flags);
  (void)gpuctl::SetTrainerOption(text, flags);
  return 0;
}
