#include "client/self_test/check.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"

namespace gpuctl {

nlohmann::ordered_json CheckToJson(const TestCheck& check) {
  nlohmann::ordered_json json = {{"name", check.name},
                                 {"ok", check.ok},
                                 {"found", check.found},
                                 {"took_ms", absl::ToInt64Milliseconds(check.took)}};
  if (!check.ok) json["fix"] = check.fix;
  return json;
}

std::optional<TestCheck> CheckFromJson(absl::string_view line) {
  const auto json = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string() ||
      !json.contains("ok") || !json["ok"].is_boolean()) {
    return std::nullopt;
  }
  TestCheck check;
  check.name = json["name"].get<std::string>();
  check.ok = json["ok"].get<bool>();
  for (const auto& [key, text] : {std::pair("found", &check.found), std::pair("fix", &check.fix)}) {
    if (json.contains(key) && json[key].is_string()) *text = json[key].get<std::string>();
  }
  if (json.contains("took_ms") && json["took_ms"].is_number_integer()) {
    check.took = absl::Milliseconds(json["took_ms"].get<int64_t>());
  }
  return check;
}

void Reporter::Add(absl::string_view name, const Judgement& judgement) {
  const absl::Duration now = clock_.SinceBoot();
  pass_({std::string(name), judgement.ok, judgement.found, judgement.ok ? "" : judgement.fix,
         now - begin_});
  begin_ = now;
}

void Reporter::Ok(absl::string_view name, absl::string_view found) {
  Add(name, {true, std::string(found), ""});
}

void Reporter::Fail(absl::string_view name, absl::string_view found, absl::string_view fix) {
  Add(name, {false, std::string(found), std::string(fix)});
}

std::string TestPlace::token() const {
  const std::string name = BaseName(dir);
  return name.substr(name.rfind('-') + 1);
}

std::string TestPlace::InStateDir(const std::string& state_dir) const {
  return JoinPath(state_dir, absl::StrCat(".self-test-", token()));
}

}  // namespace gpuctl
