#include "agent/base/gpu_grant.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kMostGrantBytes = 256 << 10;

}  // namespace

absl::StatusOr<GpuGrant> ReadGpuGrant(const JobPaths& job) {
  ASSIGN_OR_RETURN(const std::string text, ReadFileToString(job.gpus, kMostGrantBytes));
  const nlohmann::json json = ParseBoundedJson(text, {.bytes = kMostGrantBytes, .depth = 4});
  const auto damaged = [&job] {
    return absl::DataLossError(absl::StrCat("read ", job.gpus, ": it is no list of GPUs"));
  };
  if (!json.is_object()) return damaged();
  const auto attempt = json.find("attempt");
  const auto gpus = json.find("gpus");
  if (attempt == json.end() || !attempt->is_number_integer() || gpus == json.end() ||
      !gpus->is_array()) {
    return damaged();
  }
  GpuGrant grant;
  grant.attempt = attempt->get<int>();
  for (const nlohmann::json& gpu : *gpus) {
    if (!gpu.is_string()) return damaged();
    grant.gpus.push_back(gpu.get<std::string>());
  }
  return grant;
}

absl::Status WriteGpuGrant(const JobPaths& job, const GpuGrant& grant) {
  const nlohmann::ordered_json json = {{"attempt", grant.attempt}, {"gpus", grant.gpus}};
  return WriteFileAtomic(
      job.gpus, json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace gpuctl
