#include "common/release/slurm_job.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace gpuctl {
namespace {

bool ReadNumber(absl::string_view text, int64_t& number) {
  constexpr size_t kMostDigits = 11;
  return !text.empty() && text.size() <= kMostDigits &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }) &&
         absl::SimpleAtoi(text, &number);
}

}  // namespace

std::optional<SlurmJob> ParseSlurmJob(absl::string_view text) {
  SlurmJob job;
  const size_t line = text.find('_');
  if (!ReadNumber(text.substr(0, line), job.number) || job.number < 1) return std::nullopt;
  if (line == absl::string_view::npos) return job;
  if (!ReadNumber(text.substr(line + 1), job.task)) return std::nullopt;
  return job;
}

}  // namespace gpuctl
