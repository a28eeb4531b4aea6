#include "client/config/cluster_fields.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/quantity.h"
#include "common/base/status_macros.h"
#include "provisioning/market/gpu_models.h"

namespace gpuctl {
namespace {

absl::StatusOr<std::string> TextOf(const nlohmann::json& value) {
  if (value.is_number_integer()) return absl::StrCat(value.get<int64_t>());
  if (!value.is_string()) return absl::InvalidArgumentError("must be a text");
  std::string text = value.get<std::string>();
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 127; });
  if (text.empty() || !printable) return absl::InvalidArgumentError("must be a line of text");
  return text;
}

absl::StatusOr<std::vector<std::string>> ListOf(const nlohmann::json& value) {
  std::vector<std::string> list;
  const nlohmann::json array = value.is_array() ? value : nlohmann::json::array({value});
  for (const nlohmann::json& item : array) {
    ASSIGN_OR_RETURN(std::string text, TextOf(item));
    list.push_back(std::move(text));
  }
  return list;
}

absl::Status SetGpus(const std::vector<std::string>& list, SlurmOptions& options) {
  options.gpus.clear();
  for (const std::string& item : list) {
    const std::vector<std::string> parts = absl::StrSplit(item, absl::MaxSplits('=', 1));
    if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", item, "\" is no PARTITION=GPU, like \"gpu=A100\""));
    }
    options.gpus[parts[0]] = FindGpuName(parts[1]).value_or(CanonicalGpuName(parts[1], 0));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsClusterKey(absl::string_view key) { return absl::StartsWith(key, "slurm."); }

absl::Status SetClusterField(absl::string_view key, const nlohmann::json& value,
                             ClusterSettings& settings) {
  SlurmOptions& options = settings.options;
  if (key == "slurm.gpus" || key == "slurm.flags" || key == "slurm.without") {
    ASSIGN_OR_RETURN(std::vector<std::string> list, ListOf(value));
    if (key == "slurm.gpus") return SetGpus(list, options);
    for (const std::string& flag : list) {
      if (!absl::StartsWith(flag, "-")) {
        return absl::InvalidArgumentError(absl::StrCat("\"", flag, "\" does not begin with -"));
      }
    }
    if (key == "slurm.flags") {
      options.flags = std::move(list);
    } else {
      options.without = {list.begin(), list.end()};
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::string text, TextOf(value));
  if (key == "slurm.time") {
    const absl::StatusOr<absl::Duration> time = ParseDuration(text);
    if (!time.ok() || *time < absl::Minutes(1)) {
      return absl::InvalidArgumentError("must be a time of at least a minute, like \"12h\"");
    }
    options.time = *time;
    return absl::OkStatus();
  }
  if (key == "slurm.results") {
    const bool off = text == "off";
    if (!off && !absl::StartsWith(text, "/") && !absl::StartsWith(text, "~/")) {
      return absl::InvalidArgumentError("must begin with / or ~/, or be off");
    }
    options.results = off ? "" : std::string(absl::StripSuffix(text, "/"));
    return absl::OkStatus();
  }
  if (absl::StartsWith(text, "-")) return absl::InvalidArgumentError("must not begin with -");
  if (key == "slurm.host")
    settings.host = std::move(text);
  else if (key == "slurm.partition")
    options.partition = std::move(text);
  else if (key == "slurm.account")
    options.account = std::move(text);
  else if (key == "slurm.qos")
    options.qos = std::move(text);
  else if (key == "slurm.constraint")
    options.constraint = std::move(text);
  else
    return absl::InvalidArgumentError("is no setting of a cluster");
  return absl::OkStatus();
}

}  // namespace gpuctl
