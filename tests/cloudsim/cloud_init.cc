#include "tests/cloudsim/cloud_init.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/cloudsim/json_check.h"

namespace gpuctl::cloudsim {
namespace {

// Returns a #cloud-config that is written as JSON, as an object; null for any other user data.
Json JsonConfig(absl::string_view user_data) {
  if (!absl::ConsumePrefix(&user_data, "#cloud-config\n")) return nullptr;
  Json config = Json::parse(user_data, nullptr, false);
  return config.is_object() ? config : Json();
}

}  // namespace

std::string CloudInitHostKey(const std::string& user_data) {
  const Json config = JsonConfig(user_data);
  if (!config.is_object() || !config.contains("ssh_keys")) return "";
  return StringAt(config["ssh_keys"], "ed25519_private");
}

std::string CloudInitScript(const std::string& user_data) {
  if (absl::StartsWith(user_data, "#!")) return user_data;
  if (!absl::StartsWith(user_data, "#cloud-config")) return "";
  std::string script;
  if (const Json config = JsonConfig(user_data); config.is_object()) {
    for (const Json& command : config.value("runcmd", Json::array())) {
      if (command.is_string()) absl::StrAppend(&script, command.get<std::string>(), "\n");
    }
    return script;
  }
  bool inside = false;
  bool block = false;
  for (const absl::string_view line : absl::StrSplit(user_data, '\n')) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (absl::StartsWith(line, "runcmd:") || absl::StartsWith(line, "bootcmd:")) {
      inside = true;
    } else if (!line.empty() && line[0] != ' ' && line[0] != '-' && line[0] != '#') {
      inside = false;
    } else if (inside && absl::StartsWith(text, "- |")) {
      block = true;
    } else if (inside && absl::StartsWith(text, "- ")) {
      block = false;
      absl::string_view command = text.substr(2);
      if (command.size() > 1 && command.front() == '"' && command.back() == '"') {
        const Json plain = Json::parse(command, nullptr, false);
        absl::StrAppend(&script, plain.is_string() ? plain.get<std::string>() : "", "\n");
        continue;
      }
      if (command.size() > 1 && command.front() == '\'' && command.back() == '\'') {
        command = command.substr(1, command.size() - 2);
      }
      absl::StrAppend(&script, command, "\n");
    } else if (inside && block) {
      absl::StrAppend(&script, line, "\n");
    }
  }
  return script;
}

}  // namespace gpuctl::cloudsim
