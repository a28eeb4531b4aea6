#include "provisioning/market/user_data.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "provisioning/market/rent_options.h"

namespace gpuctl {
namespace {

std::string UserData(absl::string_view script, const HostKeyPair& host_key) {
  if (host_key.private_key.empty()) {
    return script.empty() ? "" : absl::StrCat("#!/bin/bash\n", script);
  }
  // JSON is YAML too. cloud-init makes no keys of its own beside those of ssh_keys, and a text in
  // runcmd is a part of a shell script.
  nlohmann::ordered_json config;
  config["ssh_keys"] = {{"ed25519_private", host_key.private_key},
                        {"ed25519_public", host_key.public_key}};
  if (!script.empty()) config["runcmd"] = nlohmann::ordered_json::array({std::string(script)});
  return absl::StrCat("#cloud-config\n", config.dump(), "\n");
}

}  // namespace

absl::StatusOr<std::string> CloudInitData(const RentOptions& options, absl::string_view title,
                                          size_t max_bytes) {
  std::string script;
  for (const auto& variable : options.env) {
    if (!IsEnvName(variable.first) || absl::StrContains(variable.second, "\n")) {
      return absl::InvalidArgumentError(
          absl::StrCat("the environment variable \"", variable.first, "\" cannot be passed on"));
    }
    const std::string line = absl::StrCat(variable.first, "=", variable.second);
    absl::StrAppend(&script, "export ", variable.first, "=", QuoteForShell(variable.second),
                    "\nprintf '%s\\n' ", QuoteForShell(line), " >> /etc/environment\n");
  }
  absl::StrAppend(&script, options.start_script);
  std::string data = UserData(script, options.host_key);
  if (data.size() <= max_bytes) return data;
  return absl::InvalidArgumentError(
      absl::StrCat("the start script has ", data.size(), " bytes; ", title, " takes ", max_bytes));
}

}  // namespace gpuctl
