#include "client/spec/run_spec.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/cron.h"
#include "client/base/port_pair.h"
#include "client/base/quantity.h"
#include "client/base/suggest.h"
#include "client/spec/slurm_request.h"
#include "client/spec/trainer_settings.h"
#include "client/spec/yaml_reader.h"
#include "common/base/status_macros.h"
#include "common/files/relative_path.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// The same as IsVariableName and CheckName, for the schema.
constexpr char kVariablePattern[] = "^[A-Za-z_][A-Za-z0-9_]*$";
constexpr char kNamePattern[] = "^([A-Za-z0-9][A-Za-z0-9._-]{0,47})?$";

bool IsVariableName(absl::string_view name) {
  if (name.empty() || absl::ascii_isdigit(static_cast<unsigned char>(name[0]))) return false;
  for (const char c : name) {
    if (c != '_' && !absl::ascii_isalnum(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

absl::Status SetVariable(absl::string_view name, absl::string_view value, RunSpec& spec) {
  if (!IsVariableName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("env: \"", name, "\" cannot name a variable; write NAME=VALUE"));
  }
  // What trainer/build.sh reads is the user's to set.
  const bool of_trainer =
      name == "GPUCTL_TORCH" || name == "GPUCTL_TRAINER_CACHE" || name == "GPUCTL_TRAINER_CXXFLAGS";
  if (absl::StartsWith(name, "GPUCTL_") && !of_trainer) {
    return absl::InvalidArgumentError(
        absl::StrCat("env: names that begin with GPUCTL_ are gpuctl's own: ", name));
  }
  spec.env[std::string(name)] = std::string(value);
  return absl::OkStatus();
}

absl::Status CheckName(absl::string_view name) {
  bool good = name.size() <= 48;
  for (const char c : name) {
    good = good &&
           (c == '-' || c == '_' || c == '.' || absl::ascii_isalnum(static_cast<unsigned char>(c)));
  }
  if (!name.empty()) good = good && absl::ascii_isalnum(static_cast<unsigned char>(name[0]));
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("name \"", name,
                   "\": use up to 48 letters, digits, '-', '_' and '.', beginning with a letter "
                   "or digit"));
}

absl::Status CheckRetryCondition(const std::string& condition) {
  int code = 0;
  for (const char* known : {"lost", "failed", "preempted"}) {
    if (condition == known) return absl::OkStatus();
  }
  if (condition.rfind("exit:", 0) == 0 && absl::SimpleAtoi(condition.substr(5), &code) &&
      code > 0 && code < 256) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("retry.on: unknown condition \"", condition, "\"",
                   DidYouMean(condition, {"lost", "failed", "preempted", "exit:75"}),
                   "; use lost, failed, preempted or exit:CODE"));
}

absl::Status CheckSecretName(const std::string& secret) {
  if (IsVariableName(secret)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("secrets: \"", secret, "\" cannot name a variable; give names, never values"));
}

std::vector<std::string> ProviderNames() {
  std::vector<std::string> names = {"local", "ssh"};
  for (const std::string& rental : RentalNames()) names.push_back(rental);
  return names;
}

using Schema = nlohmann::ordered_json;

// The schemas of a scalar: YAML tells numbers and truth values from text, and a run file need not.
Schema ScalarSchema() { return {{"type", {"string", "number", "boolean"}}}; }
Schema PatternSchema(const char* pattern) {
  Schema schema = ScalarSchema();
  schema["pattern"] = pattern;
  return schema;
}
Schema ListSchema(const Schema& item) {
  return {{"anyOf", {item, {{"type", "array"}, {"items", item}}}}};
}
Schema MapSchema(const char* names) {
  return {{"type", "object"},
          {"propertyNames", {{"pattern", names}}},
          {"additionalProperties", ScalarSchema()}};
}
Schema VariableSchema() { return PatternSchema(kVariablePattern); }

// The type of a text that `check` accepts.
YamlType Text(std::string* out, std::function<absl::Status(const std::string&)> check,
              Schema schema) {
  return {[out, check](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(*out, YamlString(place, node));
            const absl::Status status = check(*out);
            return status.ok() ? status : YamlError(place, node, status.message());
          },
          std::move(schema)};
}

YamlType String(std::string* out) {
  return Text(
      out, [](const std::string&) { return absl::OkStatus(); }, ScalarSchema());
}

// The type of a list of texts that `check` accepts one by one.
YamlType Texts(std::vector<std::string>* out, std::function<absl::Status(const std::string&)> check,
               const Schema& item) {
  return {[out, check](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(*out, YamlStrings(place, node));
            for (size_t i = 0; i < out->size(); ++i) {
              const absl::Status status = check((*out)[i]);
              if (status.ok()) continue;
              return YamlError(place, node.IsSequence() ? YAML::Node(node[i]) : node,
                               status.message());
            }
            return absl::OkStatus();
          },
          ListSchema(item)};
}

YamlType Strings(std::vector<std::string>* out) {
  return Texts(
      out, [](const std::string&) { return absl::OkStatus(); }, ScalarSchema());
}

YamlType Ports(std::vector<std::string>* out) {
  return {[out](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(*out, YamlStrings(place, node));
            const absl::Status status = ParsePortPairs(*out).status();
            return status.ok() ? status : YamlError(place, node, status.message());
          },
          ListSchema(PatternSchema("^[0-9]+(:[0-9]+)?$"))};
}

YamlType Size(int64_t* out) {
  return {[out](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(*out, YamlSize(place, node));
            return absl::OkStatus();
          },
          {{"type", {"string", "number"}},
           {"minimum", 0},
           {"pattern", "^\\s*[0-9.]+\\s*([KMGTPkmgtp]?B?|[KMGTPkmgtp]iB?)\\s*$"}}};
}

// Fills an absl::Duration or an optional one.
template <typename T>
YamlType Duration(T* out) {
  return {[out](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(*out, YamlDuration(place, node));
            return absl::OkStatus();
          },
          {{"type", "string"}, {"pattern", "^\\s*([0-9.]+(ms|s|m|min|h|d|w))+\\s*$"}}};
}

YamlType Gpu(RunSpec* spec) {
  return {[spec](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(const std::vector<std::string> texts, YamlStrings(place, node));
            spec->gpu.clear();
            for (size_t i = 0; i < texts.size(); ++i) {
              absl::StatusOr<GpuRequirement> requirement = ParseGpuRequirement(texts[i]);
              if (!requirement.ok()) {
                return YamlError(place, node.IsSequence() ? YAML::Node(node[i]) : node,
                                 requirement.status().message());
              }
              spec->gpu.push_back(*std::move(requirement));
            }
            return absl::OkStatus();
          },
          ListSchema(ScalarSchema())};
}

YamlType Providers(RunSpec* spec) {
  return {[spec](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(const std::vector<std::string> names, YamlStrings(place, node));
            for (size_t i = 0; i < names.size(); ++i) {
              if (absl::Status status = CheckProviderName(names[i]); !status.ok()) {
                return YamlError(place, node.IsSequence() ? YAML::Node(node[i]) : node,
                                 status.message());
              }
            }
            if (absl::Status status = CheckProviders(names); !status.ok()) {
              return YamlError(place, node, absl::StrCat(place.field, ": ", status.message()));
            }
            spec->providers = names;
            return absl::OkStatus();
          },
          ListSchema({{"enum", ProviderNames()}})};
}

YamlType Price(std::optional<double>* out) {
  return {[out](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(const std::string text, YamlString(place, node));
            const absl::StatusOr<double> price = ParsePrice(text);
            if (!price.ok()) {
              return YamlError(place, node,
                               absl::StrCat(place.field, ": ", price.status().message()));
            }
            *out = *price;
            return absl::OkStatus();
          },
          {{"type", {"number", "string"}},
           {"exclusiveMinimum", 0},
           {"exclusiveMaximum", 1e6},
           {"pattern", "^\\s*[$]?[0-9.]+\\s*$"}}};
}

YamlType PriceRule(std::string* out) {
  return {[out](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(*out, YamlString(place, node));
            const absl::Status status = CheckPriceRule(*out);
            if (status.ok()) return status;
            return YamlError(place, node, absl::StrCat(place.field, ": ", status.message()));
          },
          {{"enum", kPriceRules}}};
}

YamlType Bool(bool* out) {
  return {[out](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(*out, YamlBool(place, node));
            return absl::OkStatus();
          },
          {{"type", "boolean"}}};
}

YamlType Int(int* out, int low, int high) {
  return {[out, low, high](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(const int64_t value, YamlInt(place, node, low, high));
            *out = static_cast<int>(value);
            return absl::OkStatus();
          },
          {{"type", "integer"}, {"minimum", low}, {"maximum", high}}};
}

// A number, unlike `gpu`, for which it is easily taken.
YamlType Gpus(std::optional<int>* out) {
  return {[out](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            const absl::StatusOr<int64_t> value = YamlInt(place, node, 0, kMostGpus);
            if (!value.ok()) {
              return YamlError(
                  place, node,
                  absl::StrCat(place.field,
                               " is the number of GPUs that the run gets, "
                               "0 to ",
                               kMostGpus, "; resources.gpu says which machine it needs"));
            }
            *out = static_cast<int>(*value);
            return absl::OkStatus();
          },
          {{"type", "integer"}, {"minimum", 0}, {"maximum", kMostGpus}}};
}

YamlType Processes(int* out) {
  return {[out](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(const std::string text, YamlString(place, node));
            const absl::StatusOr<int> value = ParseProcesses(text);
            if (!value.ok()) {
              return YamlError(place, node,
                               absl::StrCat(place.field, ": ", value.status().message()));
            }
            *out = *value;
            return absl::OkStatus();
          },
          {{"anyOf",
            {{{"enum", {"gpus"}}},
             {{"type", "integer"}, {"minimum", 1}, {"maximum", kMostProcesses}}}}}};
}

YamlType Int64(int64_t* out) {
  return {[out](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(*out, YamlInt(place, node, 1, int64_t{1} << 53));
            return absl::OkStatus();
          },
          {{"type", "integer"}, {"minimum", 1}}};
}

YamlType Number(double* out) {
  return {[out](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(const std::string text, YamlString(place, node));
            if (absl::SimpleAtod(text, out)) return absl::OkStatus();
            return YamlError(place, node,
                             absl::StrCat(place.field, " must be a number, not \"", text, "\""));
          },
          {{"type", "number"}, {"minimum", 0}}};
}

absl::Status CheckVolume(const VolumeRequest& volume) {
  if (volume.name.empty()) {
    return absl::InvalidArgumentError("no volume is named; gpuctl volumes lists them");
  }
  if (volume.path.empty()) return absl::OkStatus();
  bool good = volume.path.size() > 1 && volume.path.size() <= 256 && volume.path[0] == '/' &&
              IsSafeRelativePath(volume.path.substr(1));
  for (const char c : volume.path) {
    good = good && (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                    absl::string_view("/-_.").find(c) != absl::string_view::npos);
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", volume.path, "\" is no path to mount it at; write an absolute one, like /workspace"));
}

// The fields of a volume, or of a registry, fill an object that is checked as a whole.
std::vector<YamlField> VolumeFields(std::string* name, std::string* id, std::string* path) {
  return {{"name", String(name), "name at the provider"},
          {"id", String(id), "id at the provider, instead of the name"},
          {"path", String(path), "where it is mounted; default: the provider's own"}};
}

std::vector<YamlField> RegistryFields(RegistryRequest* registry) {
  return {{"server", String(&registry->server), "default: that of the image"},
          {"username", String(&registry->username), "as the registry knows it"},
          {"password", String(&registry->password), "the name of a secret, never its value"}};
}

// A name or id alone, or a mapping with a path.
YamlType Volume(RunSpec* spec) {
  const auto read = [spec](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
    VolumeRequest volume;
    if (node.IsMap()) {
      std::string name, id;
      RETURN_IF_ERROR(ReadYamlMap(place, node, VolumeFields(&name, &id, &volume.path)));
      if (!name.empty() && !id.empty()) {
        return YamlError(place, node, absl::StrCat(place.field, ": give its name or its id"));
      }
      volume.name = name.empty() ? id : name;
    } else {
      ASSIGN_OR_RETURN(volume.name, YamlString(place, node));
    }
    if (absl::Status status = CheckVolume(volume); !status.ok()) {
      return YamlError(place, node, absl::StrCat(place.field, ": ", status.message()));
    }
    spec->volume = std::move(volume);
    return absl::OkStatus();
  };
  std::string unused;
  return {read,
          {{"anyOf", {ScalarSchema(), YamlMapSchema(VolumeFields(&unused, &unused, &unused))}}}};
}

YamlType Registry(RunSpec* spec) {
  const auto read = [spec](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
    RegistryRequest registry;
    RETURN_IF_ERROR(ReadYamlMap(place, node, RegistryFields(&registry)));
    if (absl::Status status = CheckRegistryRequest(registry); !status.ok()) {
      return YamlError(place, node, absl::StrCat(place.field, ": ", status.message()));
    }
    spec->registry = std::move(registry);
    return absl::OkStatus();
  };
  return {read, YamlMapSchema(RegistryFields(&spec->registry))};
}

YamlType Slurm(SchedulerWishes* slurm) {
  return YamlMapOf(
      {{"partition", Text(&slurm->partition, CheckSlurmName, ScalarSchema()), "the only one"},
       {"account", Text(&slurm->account, CheckSlurmName, ScalarSchema()), "that pays"},
       {"qos", Text(&slurm->qos, CheckSlurmName, ScalarSchema()), "quality of service"},
       {"constraint", Text(&slurm->constraint, CheckSlurmName, ScalarSchema()), "of the nodes"},
       {"time", Duration(&slurm->time), "of the allocation, where it is longer than needed"},
       {"flags", Texts(&slurm->flags, CheckSlurmFlag, ScalarSchema()), "more words for sbatch"}});
}

YamlType Resources(RunSpec* spec) {
  return YamlMapOf(
      {{"gpu", Gpu(spec), "model:count or a range of memory, like 24GB..80GB; best first"},
       {"gpus", Gpus(&spec->gpus),
        "how many of the machine's GPUs the run gets for itself; it waits there until they are "
        "free"},
       {"nodes", Int(&spec->nodes, 1, kMostNodes),
        "machines that the run has at once, a part of it on each: docs/several-machines.md"},
       {"provider", Providers(spec), "where to look for a machine; default: all with a key"},
       {"disk", Size(&spec->disk_bytes), "free space that the machine must have"},
       {"max_price", Price(&spec->max_price_usd_per_hour), "USD per hour of the whole machine"},
       {"on_price_rise", PriceRule(&spec->on_price_rise), "the answer of gpuctl keep"},
       {"spot", Bool(&spec->spot), "cheaper, but can be taken away"},
       {"region", Strings(&spec->regions), "where the machine may be, like US or EU"},
       {"image", String(&spec->image), "container image, where the provider takes one"},
       {"registry", Registry(spec), "the login for a private image"},
       {"volume", Volume(spec), "storage of yours that the machine mounts"},
       {"slurm", Slurm(&spec->slurm), "what counts more than the settings of your cluster"}});
}

YamlType Environment(RunSpec* spec) {
  return {[spec](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(const auto values, YamlStringMap(place, node));
            for (const auto& [key, value] : values) {
              if (absl::Status status = SetVariable(key, value, *spec); !status.ok()) {
                return YamlError(place, node, status.message());
              }
            }
            return absl::OkStatus();
          },
          MapSchema(kVariablePattern)};
}

absl::Status SetData(const std::string& local, const std::string& path, RunSpec& spec) {
  if (local.empty() || !IsSafeRelativePath(path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data: \"", path, "\" is no path below the work directory; write DIRECTORY: PATH"));
  }
  for (const auto& [other, taken] : spec.data) {
    if (other != local && (taken == path || absl::StartsWith(taken, absl::StrCat(path, "/")) ||
                           absl::StartsWith(path, absl::StrCat(taken, "/")))) {
      return absl::InvalidArgumentError(
          absl::StrCat("data: ", other, " and ", local, " cannot both go to ", path));
    }
  }
  spec.data[local] = path;
  return absl::OkStatus();
}

YamlType Data(RunSpec* spec) {
  return {[spec](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
            ASSIGN_OR_RETURN(const auto values, YamlStringMap(place, node));
            for (const auto& [local, path] : values) {
              if (absl::Status status = SetData(local, path, *spec); !status.ok()) {
                return YamlError(place, node, status.message());
              }
            }
            return absl::OkStatus();
          },
          MapSchema(".")};
}

// Returns an error with the place of the first setting that the trainer would refuse.
absl::Status CheckTrainerMap(const YamlPlace& place, const YAML::Node& node) {
  const auto check = [&place](const YAML::Node& key, const std::string& section,
                              const nlohmann::json& values) {
    nlohmann::json settings;
    settings[section] = values;
    const absl::Status status = CheckTrainerKeys(settings);
    return status.ok() ? status : YamlError(place, key, status.message());
  };
  for (const auto& section : node) {
    const std::string name = section.first.Scalar();
    if (name == "build") continue;
    const bool keys = section.second.IsMap();
    nlohmann::json values = nlohmann::json::object();
    if (!keys) {
      ASSIGN_OR_RETURN(values, YamlToJson(place, section.second));
    }
    RETURN_IF_ERROR(check(section.first, name, values));
    if (!keys) continue;
    for (const auto& setting : section.second) {
      nlohmann::json value;
      ASSIGN_OR_RETURN(value[setting.first.Scalar()], YamlToJson(place, setting.second));
      RETURN_IF_ERROR(check(setting.first, name, value));
    }
  }
  return absl::OkStatus();
}

// `build` is gpuctl's; the trainer gets the other settings.
YamlType Trainer(RunSpec* spec) {
  Schema sections = TrainerSettingsSchema();
  sections["build"] = {{"enum", Schema::array()},
                       {"description", "where the trainer for another machine comes from"}};
  for (const TrainerBuild build : {TrainerBuild::kAuto, TrainerBuild::kNode, TrainerBuild::kKit}) {
    sections["build"]["enum"].push_back(std::string(TrainerBuildName(build)));
  }
  const auto read = [spec](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
    if (!node.IsMap()) return YamlError(place, node, "trainer must be a mapping of its settings");
    ASSIGN_OR_RETURN(nlohmann::json json, YamlToJson(place, node));
    if (const YAML::Node build = node["build"]; build.IsDefined()) {
      const absl::StatusOr<TrainerBuild> parsed =
          ParseTrainerBuild(build.IsScalar() ? build.Scalar() : "");
      if (!parsed.ok()) return YamlError(place, build, parsed.status().message());
      spec->trainer_build = *parsed;
      json.erase("build");
    }
    RETURN_IF_ERROR(CheckTrainerMap(place, node));
    spec->trainer_json = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return absl::OkStatus();
  };
  return {
      read,
      {{"type", "object"}, {"additionalProperties", false}, {"properties", std::move(sections)}}};
}

YamlType Limits(RunSpec* spec) {
  return YamlMapOf(
      {{"time", Duration(&spec->time_limit), "of running"},
       {"cost", Price(&spec->cost_limit_usd), "USD in all; default: the price of time and salvage"},
       {"idle", Duration(&spec->idle_limit), "how long a machine waits after its job"},
       {"salvage", Duration(&spec->salvage), "how long results that are not home are kept"},
       {"lease", Duration(&spec->contact_limit), "without contact, while no job runs"}});
}

YamlType Retry(RunSpec* spec) {
  return YamlMapOf(
      {{"max", Int(&spec->max_retries, 0, 1000), "attempts after the first one"},
       {"on",
        Texts(&spec->retry_on, CheckRetryCondition,
              PatternSchema("^(lost|failed|preempted|exit:[0-9]+)$")),
        "lost, failed, preempted or exit:CODE"},
       {"backoff", Duration(&spec->retry_backoff), "pause before the second attempt"}});
}

absl::Status CheckStopIf(const std::string& text) {
  const absl::Status status = ParseStopCondition(text).status();
  return status.ok() ? status
                     : absl::InvalidArgumentError(absl::StrCat("stop_if: ", status.message()));
}

absl::Status CheckEvery(const std::string& text) {
  const absl::Status status = ParseCron(text).status();
  return status.ok() ? status
                     : absl::InvalidArgumentError(absl::StrCat("every: ", status.message()));
}

// "500 steps" or a mapping, or several of them.
YamlType Plateaus(RunSpec* spec) {
  const auto fields = [](Plateau* plateau) -> std::vector<YamlField> {
    return {{"metric", String(&plateau->metric), "loss (default) or eval_loss"},
            {"steps", Int64(&plateau->steps), "without a lower value"},
            {"min_delta", Number(&plateau->min_delta), "how much lower it must be; default 0"}};
  };
  const auto read = [spec, fields](const YamlPlace& place, const YAML::Node& node) -> absl::Status {
    spec->plateaus.clear();
    for (size_t i = 0; i < (node.IsSequence() ? node.size() : 1); ++i) {
      const YAML::Node one = node.IsSequence() ? YAML::Node(node[i]) : node;
      Plateau plateau;
      RETURN_IF_ERROR(ReadYamlMap(place, one, fields(&plateau)));
      if (absl::Status status = CheckPlateau(plateau); !status.ok()) {
        return YamlError(place, one, status.message());
      }
      spec->plateaus.push_back(std::move(plateau));
    }
    return absl::OkStatus();
  };
  Plateau unused;
  Schema one = YamlMapSchema(fields(&unused));
  one["required"] = {"steps"};
  one["properties"]["metric"] = {{"enum", {"loss", "eval_loss"}}};
  return {read, ListSchema(one)};
}

YamlType Notify(RunSpec* spec) {
  NotifyRequest* const notify = &spec->notify;
  YamlType type =
      YamlMapOf({{"desktop", Bool(&notify->desktop), "a message on the screen of this computer"},
                 {"command", String(&notify->command), "a script for sh on this computer"},
                 {"webhook", Text(&notify->webhook, CheckWebhookName, VariableSchema()),
                  "the name of a secret with the address, like that of a Slack webhook"}});
  type.read = [notify, read = type.read](const YamlPlace& place, const YAML::Node& node) {
    notify->given = true;
    return read(place, node);
  };
  return type;
}

// True when a line "---" has anything but comments and directives before it.
bool HasSecondDocument(absl::string_view yaml) {
  bool content = false;
  for (const absl::string_view line : absl::StrSplit(yaml, '\n')) {
    const bool marker = absl::StartsWith(line, "---") &&
                        (line.size() == 3 || line[3] == ' ' || line[3] == '\t' || line[3] == '\r');
    if (marker && content) return true;
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (marker || (!text.empty() && text[0] != '#' && line[0] != '%')) content = true;
  }
  return false;
}

// The whole run file. This table is all that knows its fields.
std::vector<YamlField> RunFields(RunSpec* spec) {
  return {
      {"name", Text(&spec->name, CheckName, PatternSchema(kNamePattern)),
       "of the run, with a number behind it; default: a readable one is made"},
      {"resources", Resources(spec), "the machine"},
      {"workdir", String(&spec->workdir), "directory that is sent, relative to this file"},
      {"env", Environment(spec), "the job's environment"},
      {"secrets", Texts(&spec->secrets, CheckSecretName, VariableSchema()),
       "names of variables; their values come from elsewhere"},
      {"setup", String(&spec->setup),
       "a script for bash that makes the environment in $GPUCTL_ENV_DIR; runs once for each "
       "machine "
       "and content of what it reads"},
      {"run", String(&spec->run), "the job: a script for bash -eo pipefail"},
      {"processes", Processes(&spec->processes),
       "starts the command so often, each time with a rank: a number, or gpus for one a GPU"},
      {"trainer", Trainer(spec), "instead of run: settings of the built-in trainer"},
      {"checkpoints", Strings(&spec->checkpoints), "patterns of a script's checkpoints"},
      {"artifacts", Strings(&spec->artifacts), "patterns of files that come home"},
      {"ports", Ports(&spec->ports), "of the machine that are ports here while the run is shown"},
      {"limits", Limits(spec), "what ends the job or the machine"},
      {"grace", Duration(&spec->grace), "from SIGTERM to SIGKILL"},
      {"output_limit", Size(&spec->output_limit_bytes), "the oldest output beyond it is removed"},
      {"retry", Retry(spec), "when the job is started again"},
      {"after", Strings(&spec->after), "runs that must have succeeded first; for submit"},
      {"every", Text(&spec->every, CheckEvery, ScalarSchema()),
       "times at which gpuctl keep starts it, as in a crontab, like 0 3 * * *; for submit"},
      {"stop_if", Texts(&spec->stop_if, CheckStopIf, ScalarSchema()),
       "the node stops the job when one holds, like loss is nan or loss > 20"},
      {"plateau", Plateaus(spec), "the node stops the job when the loss no longer falls"},
      {"notify", Notify(spec), "whom the end of the run is told"},
      {"data", Data(spec), "more directories: here -> path in the work directory"}};
}

absl::Status ReadRunSpec(const YamlPlace& place, const YAML::Node& root, RunSpec* spec) {
  if (!root.IsDefined() || root.IsNull()) {
    return absl::InvalidArgumentError(absl::StrCat(place.file, ": the run file is empty"));
  }
  RETURN_IF_ERROR(ReadYamlMap(place, root, RunFields(spec)));
  for (const auto& field : root) {
    const std::string& name = field.first.Scalar();
    spec->given.insert(name);
    if (!field.second.IsMap()) continue;
    for (const auto& inner : field.second) {
      if (inner.first.IsScalar()) {
        spec->given.insert(absl::StrCat(name, ".", inner.first.Scalar()));
      }
    }
  }
  return absl::OkStatus();
}

YAML::Node NodeOf(const nlohmann::json& value) {
  YAML::Node node;
  if (value.is_array()) {
    node = YAML::Node(YAML::NodeType::Sequence);
    for (const nlohmann::json& element : value) node.push_back(NodeOf(element));
  } else {
    node = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return node;
}

}  // namespace

absl::StatusOr<RunSpec> ParseRunSpec(absl::string_view yaml, absl::string_view file) {
  RunSpec spec;
  const YamlPlace place{std::string(file), ""};
  absl::Status status;
  // yaml-cpp reports errors by exception; they end here.
  try {
    // Avoids YAML::LoadAll, which makes documents without end from some malformed text.
    if (HasSecondDocument(yaml)) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": holds several documents; one file describes one run"));
    }
    status = ReadRunSpec(place, YAML::Load(std::string(yaml)), &spec);
  } catch (const YAML::Exception& error) {
    status = YamlErrorAt(place.file, error.mark, error.msg);
  }
  if (!status.ok()) return WithYamlLine(std::move(status), yaml);
  return spec;
}

absl::Status SetRunField(absl::string_view field, const nlohmann::json& value,
                         absl::string_view where, RunSpec& spec) {
  const std::vector<std::string> names = absl::StrSplit(field, '.');
  YAML::Node node = NodeOf(value);
  for (size_t i = names.size(); i-- > 1;) {
    YAML::Node map(YAML::NodeType::Map);
    map[names[i]] = node;
    node = map;
  }
  for (const YamlField& known : RunFields(&spec)) {
    if (names[0] == known.name) {
      return known.type.read(YamlPlace{std::string(where), names[0]}, node);
    }
  }
  return absl::NotFoundError(absl::StrCat("run files have no field ", field));
}

nlohmann::ordered_json RunFileSchema() {
  RunSpec spec;
  Schema schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                   {"title", "gpuctl run file"}};
  schema.update(YamlMapSchema(RunFields(&spec)));
  // A command behind -- stands for both.
  schema["not"] = {{"required", {"run", "trainer"}}};
  return schema;
}

absl::Status CheckRunSpec(const RunSpec& spec) {
  const int given = (spec.run.empty() ? 0 : 1) + (spec.command.empty() ? 0 : 1) +
                    (spec.trainer_json.empty() ? 0 : 1);
  if (given == 0) {
    return absl::InvalidArgumentError(
        "nothing to run: give a command after --, or run: or trainer: in the run file");
  }
  if (given > 1) {
    return absl::InvalidArgumentError(
        "run, trainer and a command after -- exclude each other; give one");
  }
  if (!spec.trainer_json.empty()) RETURN_IF_ERROR(CheckTrainerSettings(spec.trainer_json));
  RETURN_IF_ERROR(CheckName(spec.name));
  if (spec.on_price_rise == "accept" && !spec.max_price_usd_per_hour.has_value()) {
    return absl::InvalidArgumentError(
        "on_price_rise: accept needs max_price, the most that is accepted");
  }
  RETURN_IF_ERROR(Annotate(ParsePortPairs(spec.ports).status(), "ports"));
  for (const std::string& condition : spec.retry_on) {
    RETURN_IF_ERROR(CheckRetryCondition(condition));
  }
  for (const std::string& secret : spec.secrets) {
    RETURN_IF_ERROR(CheckSecretName(secret));
    if (spec.env.count(secret) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(secret, " is both in env and in secrets; give one"));
    }
  }
  RETURN_IF_ERROR(CheckGpus(spec));
  RETURN_IF_ERROR(CheckProcesses(spec));
  RETURN_IF_ERROR(CheckRegistryFits(spec.registry, spec.image));
  RETURN_IF_ERROR(CheckScheduler(spec));
  if (spec.time_limit < absl::Seconds(1)) {
    return absl::InvalidArgumentError("limits.time must be at least 1s");
  }
  if (spec.idle_limit < absl::Seconds(1) || spec.contact_limit < absl::Seconds(1)) {
    return absl::InvalidArgumentError("limits.idle and limits.lease must be at least 1s");
  }
  if (spec.output_limit_bytes != 0 && spec.output_limit_bytes < (1 << 20)) {
    return absl::InvalidArgumentError("output_limit must be at least 1MiB");
  }
  return absl::OkStatus();
}

absl::Status CheckProviderName(absl::string_view provider) {
  const std::vector<std::string> names = ProviderNames();
  if (std::find(names.begin(), names.end(), provider) != names.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("unknown provider \"", provider, "\"",
                                                 DidYouMean(provider, names), "; there are ",
                                                 absl::StrJoin(names, ", ")));
}

absl::Status CheckProviders(const std::vector<std::string>& providers) {
  for (size_t i = 0; i < providers.size(); ++i) {
    RETURN_IF_ERROR(CheckProviderName(providers[i]));
    if (!IsRental(providers[i]) && providers.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(providers[i], " rents nothing out and stands alone"));
    }
    if (std::find(providers.begin(), providers.begin() + static_cast<int64_t>(i), providers[i]) !=
        providers.begin() + static_cast<int64_t>(i)) {
      return absl::InvalidArgumentError(absl::StrCat(providers[i], " is named twice"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<VolumeRequest> ParseVolumeRequest(absl::string_view text) {
  // Names may contain a colon, so look for the absolute path at the end.
  const size_t colon = text.rfind(":/");
  VolumeRequest volume;
  volume.name = std::string(text.substr(0, colon));
  if (colon != text.npos) volume.path = std::string(text.substr(colon + 1));
  RETURN_IF_ERROR(CheckVolume(volume));
  return volume;
}

absl::Status AddData(absl::string_view assignment, RunSpec& spec) {
  const size_t equals = assignment.rfind('=');
  if (equals == assignment.npos) {
    return absl::InvalidArgumentError(absl::StrCat("\"", assignment, "\" is not DIRECTORY=PATH"));
  }
  return SetData(std::string(assignment.substr(0, equals)),
                 std::string(assignment.substr(equals + 1)), spec);
}

absl::Status AddEnvironment(absl::string_view assignment, RunSpec& spec) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(assignment, absl::MaxSplits('=', 1));
  if (!absl::StrContains(assignment, '=')) {
    return absl::InvalidArgumentError(
        absl::StrCat("env: \"", assignment, "\" has no value; write ", assignment, "=VALUE"));
  }
  return SetVariable(parts.first, parts.second, spec);
}

}  // namespace gpuctl
