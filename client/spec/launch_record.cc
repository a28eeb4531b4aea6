#include "client/spec/launch_record.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

using Json = nlohmann::json;

// Passes each field with its name to `visit`: one list of fields for both directions.
template <typename Spec, typename Visitor>
void VisitSpec(Spec& spec, Visitor& visit) {
  visit("name", spec.name);
  visit("gpus", spec.gpus);
  visit("nodes", spec.nodes);
  visit("providers", spec.providers);
  visit("max_price_usd_per_hour", spec.max_price_usd_per_hour);
  visit("on_price_rise", spec.on_price_rise);
  visit("spot", spec.spot);
  visit("regions", spec.regions);
  visit("image", spec.image);
  visit("disk_bytes", spec.disk_bytes);
  visit("workdir", spec.workdir);
  visit("data", spec.data);
  visit("env", spec.env);
  visit("secrets", spec.secrets);
  visit("run", spec.run);
  visit("command", spec.command);
  visit("trainer", spec.trainer_json);
  visit("checkpoints", spec.checkpoints);
  visit("artifacts", spec.artifacts);
  visit("ports", spec.ports);
  visit("time_ms", spec.time_limit);
  visit("grace_ms", spec.grace);
  visit("cost_usd", spec.cost_limit_usd);
  visit("idle_ms", spec.idle_limit);
  visit("salvage_ms", spec.salvage);
  visit("lease_ms", spec.contact_limit);
  visit("output_limit_bytes", spec.output_limit_bytes);
  visit("max_retries", spec.max_retries);
  visit("retry_on", spec.retry_on);
  visit("retry_backoff_ms", spec.retry_backoff);
}

template <typename Wishes, typename Visitor>
void VisitSlurm(Wishes& slurm, Visitor& visit) {
  visit("partition", slurm.partition);
  visit("account", slurm.account);
  visit("qos", slurm.qos);
  visit("constraint", slurm.constraint);
  visit("time_ms", slurm.time);
  visit("flags", slurm.flags);
}

class Writer {
 public:
  explicit Writer(Json& out) : out_(out) {}
  template <typename T>
  void operator()(const char* name, const T& value) {
    out_[name] = value;
  }
  void operator()(const char* name, const std::optional<double>& value) {
    if (value.has_value()) out_[name] = *value;
  }
  void operator()(const char* name, const std::optional<int>& value) {
    if (value.has_value()) out_[name] = *value;
  }
  void operator()(const char* name, const std::optional<absl::Duration>& value) {
    if (value.has_value()) (*this)(name, *value);
  }
  void operator()(const char* name, absl::Duration value) {
    out_[name] = absl::ToInt64Milliseconds(value);
  }

 private:
  Json& out_;
};

class Reader {
 public:
  explicit Reader(const Json& in) : in_(in) {}
  bool good() const { return good_; }

  void operator()(const char* name, std::string& value) {
    if (const Json* field = Find(name, &Json::is_string)) value = field->get<std::string>();
  }
  void operator()(const char* name, bool& value) {
    if (const Json* field = Find(name, &Json::is_boolean)) value = field->get<bool>();
  }
  void operator()(const char* name, int& value) {
    if (const Json* field = Find(name, &Json::is_number_integer)) value = field->get<int>();
  }
  void operator()(const char* name, int64_t& value) {
    if (const Json* field = Find(name, &Json::is_number_integer)) value = field->get<int64_t>();
  }
  void operator()(const char* name, absl::Duration& value) {
    int64_t ms = absl::ToInt64Milliseconds(value);
    (*this)(name, ms);
    value = absl::Milliseconds(ms);
  }
  void operator()(const char* name, std::optional<absl::Duration>& value) {
    if (!in_.contains(name)) return;
    (*this)(name, value.emplace());
  }
  void operator()(const char* name, std::optional<int>& value) {
    if (!in_.contains(name)) return;
    (*this)(name, value.emplace());
  }
  void operator()(const char* name, std::optional<double>& value) {
    if (!in_.contains(name)) return;
    if (const Json* field = Find(name, &Json::is_number)) value = field->get<double>();
  }
  void operator()(const char* name, std::vector<std::string>& values) {
    const Json* field = Find(name, &Json::is_array);
    if (field == nullptr) return;
    values.clear();
    for (const Json& element : *field) {
      good_ = good_ && element.is_string();
      if (element.is_string()) values.push_back(element.get<std::string>());
    }
  }
  void operator()(const char* name, std::map<std::string, std::string>& values) {
    const Json* field = Find(name, &Json::is_object);
    if (field == nullptr) return;
    for (const auto& [key, element] : field->items()) {
      good_ = good_ && element.is_string();
      if (element.is_string()) values[key] = element.get<std::string>();
    }
  }

 private:
  const Json* Find(const char* name, bool (Json::*is_right)() const noexcept) {
    const auto field = in_.find(name);
    const bool right = field != in_.end() && ((*field).*is_right)();
    good_ = good_ && right;
    return right ? &*field : nullptr;
  }

  const Json& in_;
  bool good_ = true;
};

}  // namespace

std::string FormatLaunchRecord(const LaunchRecord& record) {
  Json spec = Json::object();
  Writer writer(spec);
  VisitSpec(record.spec, writer);
  std::vector<std::string> gpus;
  for (const GpuRequirement& gpu : record.spec.gpu) gpus.push_back(gpu.text);
  spec["gpu"] = gpus;
  spec["trainer_build"] = std::string(TrainerBuildName(record.spec.trainer_build));
  if (!record.spec.volume.name.empty()) {
    spec["volume"] = record.spec.volume.name;
    spec["volume_path"] = record.spec.volume.path;
  }
  if (const RegistryRequest& registry = record.spec.registry; !registry.empty()) {
    spec["registry"] = {{"server", registry.server},
                        {"username", registry.username},
                        {"password", registry.password}};
  }
  if (const SchedulerWishes& slurm = record.spec.slurm; !slurm.empty()) {
    Writer wishes(spec["slurm"] = Json::object());
    VisitSlurm(slurm, wishes);
  }
  if (!record.spec.setup.empty()) spec["setup"] = record.spec.setup;
  if (record.spec.processes != 0) spec["processes"] = record.spec.processes;
  if (!record.spec.stop_if.empty()) spec["stop_if"] = record.spec.stop_if;
  for (const Plateau& plateau : record.spec.plateaus) {
    spec["plateau"].push_back(
        {{"metric", plateau.metric}, {"steps", plateau.steps}, {"min_delta", plateau.min_delta}});
  }
  if (const NotifyRequest& notify = record.spec.notify; notify.given) {
    spec["notify"] = {
        {"desktop", notify.desktop}, {"command", notify.command}, {"webhook", notify.webhook}};
  }
  const Json whole = {{"spec", spec},
                      {"include", record.include},
                      {"leave_out", record.leave_out},
                      {"no_workdir", record.no_workdir},
                      {"pull_dir", record.pull_dir},
                      {"like", record.like}};
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<LaunchRecord> ParseLaunchRecord(absl::string_view text) {
  const absl::Status bad = absl::InvalidArgumentError("what it was launched with is not readable");
  Json whole = Json::parse(text, nullptr, false);
  if (!whole.is_object() || !whole.contains("spec") || !whole["spec"].is_object()) return bad;
  LaunchRecord record;
  // An older gpuctl did not write it.
  if (!whole["spec"].contains("on_price_rise")) whole["spec"]["on_price_rise"] = "tell";
  Reader reader(whole["spec"]);
  VisitSpec(record.spec, reader);
  std::vector<std::string> gpus;
  reader("gpu", gpus);
  for (const std::string& gpu : gpus) {
    ASSIGN_OR_RETURN(record.spec.gpu.emplace_back(), ParseGpuRequirement(gpu));
  }
  if (whole["spec"].contains("trainer_build")) {
    std::string build;
    reader("trainer_build", build);
    ASSIGN_OR_RETURN(record.spec.trainer_build, ParseTrainerBuild(build));
  }
  if (whole["spec"].contains("volume")) {
    reader("volume", record.spec.volume.name);
    reader("volume_path", record.spec.volume.path);
  }
  bool parts_good = true;
  if (whole["spec"].contains("setup")) reader("setup", record.spec.setup);
  if (whole["spec"].contains("processes")) reader("processes", record.spec.processes);
  if (whole["spec"].contains("stop_if")) reader("stop_if", record.spec.stop_if);
  if (const Json& plateaus = whole["spec"]["plateau"]; plateaus.is_array()) {
    for (const Json& one : plateaus) {
      Plateau& plateau = record.spec.plateaus.emplace_back();
      Reader fields(one);
      std::optional<double> min_delta;
      fields("metric", plateau.metric);
      fields("steps", plateau.steps);
      fields("min_delta", min_delta);
      plateau.min_delta = min_delta.value_or(0);
      parts_good = parts_good && one.is_object() && fields.good();
    }
  }
  if (whole["spec"].contains("notify")) {
    Reader notify(whole["spec"]["notify"]);
    record.spec.notify.given = true;
    notify("desktop", record.spec.notify.desktop);
    notify("command", record.spec.notify.command);
    notify("webhook", record.spec.notify.webhook);
    parts_good = notify.good();
  }
  if (whole["spec"].contains("slurm")) {
    Reader wishes(whole["spec"]["slurm"]);
    VisitSlurm(record.spec.slurm, wishes);
    parts_good = parts_good && wishes.good();
  }
  if (whole["spec"].contains("registry")) {
    Reader login(whole["spec"]["registry"]);
    login("server", record.spec.registry.server);
    login("username", record.spec.registry.username);
    login("password", record.spec.registry.password);
    parts_good = parts_good && login.good();
  }
  Reader rest(whole);
  rest("include", record.include);
  rest("no_workdir", record.no_workdir);
  if (whole.contains("leave_out")) rest("leave_out", record.leave_out);
  if (whole.contains("pull_dir")) rest("pull_dir", record.pull_dir);
  if (whole.contains("like")) rest("like", record.like);
  if (!reader.good() || !parts_good || !rest.good()) return bad;
  return record;
}

}  // namespace gpuctl
