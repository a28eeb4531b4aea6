// gpuctl config: the defaults for launches: what counts and where it comes from; set, unset.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/suggest.h"
#include "client/config/read_run_file.h"
#include "client/config/settings.h"
#include "client/config/toml_text.h"
#include "client/results/pull_files.h"
#include "client/terminal/console.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

const char* NameOf(Origin origin) {
  switch (origin) {
    case Origin::kUser:
      return "user";
    case Origin::kProject:
      return "project";
    case Origin::kEnvironment:
      break;
  }
  return "environment";
}

Json SettingJson(const Setting& setting) {
  Json value = setting.value;
  if (const std::string shown = ShownSetting(setting); shown == "(an address)") value = shown;
  Json json = {{"key", setting.key.key},
               {"value", std::move(value)},
               {"origin", NameOf(setting.origin)},
               {"from", setting.where},
               {"ignored", nullptr}};
  if (!setting.ignored.empty()) json["ignored"] = setting.ignored;
  return json;
}

const Setting* FindEffective(const Settings& settings, absl::string_view key) {
  for (const Setting& setting : settings.effective()) {
    if (key == setting.key.key) return &setting;
  }
  return nullptr;
}

absl::StatusOr<int> List(CommandContext& context) {
  ASSIGN_OR_RETURN(const Settings settings, ReadSettings(context, "."));
  if (context.json()) {
    std::vector<Json> rows;
    for (const SettingKey& key : SettingKeys()) {
      const Setting* const setting = FindEffective(settings, key.key);
      rows.push_back(setting != nullptr ? SettingJson(*setting)
                                        : Json{{"key", key.key},
                                               {"value", nullptr},
                                               {"origin", nullptr},
                                               {"from", nullptr},
                                               {"ignored", nullptr}});
    }
    for (const Setting& setting : settings.ignored()) rows.push_back(SettingJson(setting));
    context.PrintJsonList("settings", rows);
    return kExitOk;
  }
  std::vector<TableRow> rows = {{"SETTING", "VALUE", "FROM", "IS"}};
  for (const SettingKey& key : SettingKeys()) {
    const Setting* const setting = FindEffective(settings, key.key);
    if (setting == nullptr) {
      rows.push_back({key.key, "-", "-", key.about});
    } else {
      rows.push_back({key.key, ShownSetting(*setting), setting->where, key.about});
    }
  }
  context.PrintTable(rows);
  return kExitOk;
}

absl::StatusOr<int> Get(CommandContext& context, const std::string& name) {
  ASSIGN_OR_RETURN(const SettingKey key, FindSettingKey(name));
  ASSIGN_OR_RETURN(const Settings settings, ReadSettings(context, "."));
  const Setting* const setting = FindEffective(settings, key.key);
  if (setting == nullptr) {
    return WithHint(absl::NotFoundError(absl::StrCat(key.key, " is not set")),
                    absl::StrCat("gpuctl config set ", key.key, " VALUE"));
  }
  if (context.json()) {
    // Whoever asks for this one wants it.
    Json json = SettingJson(*setting);
    json["value"] = setting->value;
    context.PrintJson(json);
  } else if (setting->value.is_array()) {
    for (const auto& element : setting->value) context.PrintLine(element.get<std::string>());
  } else {
    context.PrintLine(setting->value.is_string() ? setting->value.get<std::string>()
                                                 : setting->value.dump());
  }
  return kExitOk;
}

struct Target {
  std::string file;
  Origin origin = Origin::kUser;
};

// Returns the file to change; one that is not there yet when there is none.
absl::StatusOr<Target> TargetOf(CommandContext& context, bool project) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  if (!project) return Target{UserConfigFile(paths.config_dir), Origin::kUser};
  ASSIGN_OR_RETURN(const std::string here, AbsolutePath("."));
  std::string file = FindProjectFile(here);
  if (file.empty()) file = JoinPath(here, "gpuctl.toml");
  return Target{file, Origin::kProject};
}

// Changes the file by `change`, alone. Nothing happens when the result would not be accepted.
template <typename Change>
absl::Status ChangeFile(CommandContext& context, const Target& target, Change change) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  RETURN_IF_ERROR(MakeDirectories(paths.config_dir));
  RETURN_IF_ERROR(MakeDirectories(paths.state_dir));
  ASSIGN_OR_RETURN(const UniqueFd lock, WaitForLock(JoinPath(paths.state_dir, "config.lock")));
  absl::StatusOr<std::string> before = ReadFileToString(target.file, 1 << 20);
  if (absl::IsNotFound(before.status())) before = std::string();
  RETURN_IF_ERROR(before.status());
  ASSIGN_OR_RETURN(const std::string after, change(*before));
  RETURN_IF_ERROR(ParseSettings(after, target.file, target.origin).status());
  if (after == *before) return absl::OkStatus();
  // A link to a file among the user's dotfiles stays a link.
  std::string file = target.file;
  if (char* const real = realpath(file.c_str(), nullptr); real != nullptr) {
    file = real;
    free(real);
  }
  const mode_t mode = target.origin == Origin::kProject ? 0644 : 0600;
  return WriteFileAtomic(file, after, mode);
}

absl::StatusOr<int> Set(CommandContext& context, const std::string& name,
                        const std::vector<std::string>& values, bool project) {
  if (name.empty() || values.empty()) {
    return UsageError("config set needs a setting and its value",
                      "gpuctl config set max_price 3; gpuctl config lists the settings");
  }
  ASSIGN_OR_RETURN(const SettingKey key, FindSettingKey(name));
  if (values.size() > 1 && !key.list) {
    return UsageError(
        absl::StrCat("config set ", key.key, ": one value, please, not ", values.size()),
        "put quotes around a value with spaces");
  }
  nlohmann::json value = SettingValue(key, values[0]);
  if (values.size() > 1) value = values;
  if (absl::Status status = CheckSetting(key, value, "config set"); !status.ok()) {
    return WithExitCode(WithHint(status, "gpuctl config lists the settings"), kExitUsage);
  }
  ASSIGN_OR_RETURN(const Target target, TargetOf(context, project));
  RETURN_IF_ERROR(ChangeFile(context, target, [&](const std::string& text) {
    return SetInToml(text, target.file, key.key, value);
  }));
  Setting setting{key, std::move(value), target.origin, target.file, ""};
  if (context.json()) {
    context.PrintJson(SettingJson(setting));
  } else {
    context.Say(absl::StrCat(key.key, " is ", ShownSetting(setting), " in ", target.file));
  }
  return kExitOk;
}

absl::StatusOr<int> Unset(CommandContext& context, const std::string& name, bool project) {
  ASSIGN_OR_RETURN(const SettingKey key, FindSettingKey(name));
  ASSIGN_OR_RETURN(const Target target, TargetOf(context, project));
  RETURN_IF_ERROR(ChangeFile(context, target, [&](const std::string& text) {
    return RemoveFromToml(text, target.file, key.key);
  }));
  if (context.json()) {
    context.PrintJson({{"key", key.key}, {"from", target.file}});
  } else {
    context.Say(absl::StrCat(target.file, " no longer sets ", key.key));
  }
  return kExitOk;
}

absl::StatusOr<int> Path(CommandContext& context) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const std::string here, AbsolutePath("."));
  const std::string user = UserConfigFile(paths.config_dir), project = FindProjectFile(here);
  if (context.json()) {
    context.PrintJson({{"user", user}, {"project", project.empty() ? Json() : Json(project)}});
    return kExitOk;
  }
  context.PrintLine(user);
  if (!project.empty()) context.PrintLine(project);
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> CmdConfig(CommandContext& context, std::vector<std::string> args) {
  std::string what, name;
  std::vector<std::string> values;
  bool project = false;
  VerbParser parser(
      context, "config [list|get|set|unset|path] [KEY] [VALUE...] [FLAGS]",
      "Shows the defaults for launches and where each comes from, or changes one. A flag\n"
      "counts before a variable (GPUCTL_MAX_PRICE), this before the run file, this before\n"
      "the project's gpuctl.toml, and this before your config.toml. A project can only\n"
      "lower what limits your money, and cannot set commands and addresses.",
      "  gpuctl config\n"
      "  gpuctl config set max_price 3\n"
      "  gpuctl config set resources.region US,EU --project\n"
      "  gpuctl config unset max_price");
  parser.Option("WHAT", what, "list (default), get, set, unset, path");
  parser.Option("KEY", name, "Setting, like limits.time; its last word will do");
  parser.Option("VALUE", values, "What it shall be; a list is several, or one with commas");
  parser.Switch("--project", project, "Change the project's gpuctl.toml, not your config.toml");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (what == "set") return Set(context, name, values, project);
  if (!values.empty()) {
    return UsageError(absl::StrCat("config ", what, " takes no value"), "gpuctl config --help");
  }
  if (project && what != "unset") {
    return UsageError("config: --project goes with set and unset", "gpuctl config --help");
  }
  if (what == "get" || what == "unset") {
    if (name.empty()) {
      return UsageError(absl::StrCat("config ", what, " needs a setting"),
                        "gpuctl config lists them");
    }
    return what == "get" ? Get(context, name) : Unset(context, name, project);
  }
  if (!name.empty()) {
    return UsageError(absl::StrCat("config: unknown command \"", what, "\"",
                                   DidYouMean(what, {"list", "get", "set", "unset", "path"})),
                      "gpuctl config --help");
  }
  if (what.empty() || what == "list") return List(context);
  if (what == "path") return Path(context);
  return UsageError(absl::StrCat("config: unknown command \"", what, "\"",
                                 DidYouMean(what, {"list", "get", "set", "unset", "path"})),
                    "gpuctl config --help");
}

}  // namespace gpuctl
