// The routes /v2/catalog, and the parts of GraphQL that REST v2 lacks.
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/cloudsim/runpod.h"

namespace gpuctl::cloudsim {
namespace {

std::set<std::string> ListOf(const Call& call, const std::string& name) {
  std::set<std::string> values;
  const auto range = call.query.equal_range(name);
  for (auto it = range.first; it != range.second; ++it) {
    for (const absl::string_view part : absl::StrSplit(it->second, ',', absl::SkipEmpty())) {
      values.insert(std::string(part));
    }
  }
  return values;
}

const char* LevelOf(int count) {
  if (count <= 0) return "NONE";
  if (count <= 2) return "LOW";
  return count <= 6 ? "MEDIUM" : "HIGH";
}

double Version(const std::string& text) {
  double number = 0;
  return absl::SimpleAtod(text, &number) ? number : 0;
}

const RunpodDataCenter* FindCenter(const World& world, const std::string& id) {
  for (const RunpodDataCenter& center : RunpodStockOf(world).centers) {
    if (center.id == id) return &center;
  }
  return nullptr;
}

// Returns the free GPUs of a type by data centre, under the filters of the request.
std::map<std::string, int> Places(const World& world, const RunpodGpu& gpu, const Call& call) {
  const std::string cloud = call.Query("cloud");
  const std::set<std::string> countries = ListOf(call, "countryCodes");
  const double least_cuda = Version(call.Query("minCudaVersion"));
  std::map<std::string, int> places;
  bool runs = least_cuda == 0;
  for (const std::string& cuda : gpu.cuda) runs = runs || Version(cuda) >= least_cuda;
  if (!runs) return places;
  auto add = [&](const std::map<std::string, int>& from) {
    for (const auto& [id, count] : from) {
      const RunpodDataCenter* center = FindCenter(world, id);
      if (!countries.empty() && (center == nullptr || countries.count(center->country) == 0)) {
        continue;
      }
      places[id] = std::max(places[id], count);
    }
  };
  if (cloud != "COMMUNITY") add(gpu.secure);
  if (cloud != "SECURE") add(gpu.community);
  return places;
}

Json GpuJson(const World& world, const RunpodGpu& gpu, const Call& call) {
  Json json = {{"id", gpu.id},
               {"name", gpu.name},
               {"pool", gpu.pool.empty() ? Json() : Json(gpu.pool)},
               {"manufacturer", gpu.manufacturer},
               {"memory", gpu.memory_gb},
               {"secure", true},
               {"community", !gpu.community.empty()},
               {"price", {{"secure", gpu.secure_usd}, {"community", gpu.community_usd}}},
               {"maxCount", {{"secure", gpu.max_count}, {"community", gpu.max_count / 2}}}};
  if (call.Query("include") != "AVAILABILITY") return json;
  int wanted = 1;
  (void)absl::SimpleAtoi(call.Query("count", "1"), &wanted);
  int most = 0;
  json["dataCenters"] = Json::array();
  for (const auto& [id, count] : Places(world, gpu, call)) {
    if (count < wanted) continue;
    most = std::max(most, count);
    json["dataCenters"].push_back({{"id", id}, {"name", id}, {"availability", LevelOf(count)}});
  }
  json["availability"] = LevelOf(most);
  json["cudaVersions"] = Json::array();
  for (const std::string& cuda : gpu.cuda) {
    json["cudaVersions"].push_back({{"version", cuda}, {"available", most > 0}});
  }
  return json;
}

Json CenterJson(const World& world, const RunpodDataCenter& center, const Call& call) {
  Json json = {{"id", center.id},
               {"name", center.id},
               {"region", center.region},
               {"globalNetwork", false},
               {"networkVolumeTypes", center.volume_types},
               {"compliance", Json::array()}};
  if (ListOf(call, "include").count("GPU_AVAILABILITY") > 0) {
    json["gpuAvailability"] = Json::array();
    for (const RunpodGpu& gpu : RunpodStockOf(world).gpus) {
      const auto found = gpu.secure.find(center.id);
      if (found == gpu.secure.end() || found->second <= 0) continue;
      json["gpuAvailability"].push_back(
          {{"id", gpu.id}, {"name", gpu.name}, {"availability", LevelOf(found->second)}});
    }
  }
  if (ListOf(call, "include").count("CPU_AVAILABILITY") > 0) {
    json["cpuAvailability"] =
        Json::array({{{"id", "cpu3g"}, {"name", "General purpose"}, {"availability", "HIGH"}}});
  }
  return json;
}

Json CpuJson(const Call& call) {
  Json json = {
      {"id", "cpu3g"},       {"name", "General purpose"},
      {"group", "cpu3"},     {"vcpu", {{"min", 2}, {"max", 32}}},
      {"ramGbPerVcpu", 4.0}, {"price", {{"securePerVcpu", 0.03}, {"serverlessPerVcpu", 0.04}}}};
  if (call.Query("include") == "AVAILABILITY") {
    json["availability"] = "HIGH";
    json["dataCenters"] =
        Json::array({{{"id", "EU-RO-1"}, {"name", "EU-RO-1"}, {"availability", "HIGH"}}});
  }
  return json;
}

}  // namespace

std::optional<Reply> RunpodCatalog(World& world, const Call& call) {
  if (call.parts.size() < 3 || call.parts[1] != "catalog" || call.method != "GET") {
    return std::nullopt;
  }
  const std::string& kind = call.parts[2];
  if ((kind == "gpus" || kind == "cpus") && !call.Query("include").empty()) {
    if (call.Query("include") != "AVAILABILITY") {
      return RunpodError(400, "include: value must be one of 'AVAILABILITY'");
    }
    if (call.Query("product").empty()) {
      return RunpodError(400, "product is required with include=AVAILABILITY");
    }
  }
  const std::string cloud = call.Query("cloud", "SECURE");
  if (cloud != "SECURE" && cloud != "COMMUNITY") {
    return RunpodError(400, "cloud: value must be one of 'SECURE', 'COMMUNITY'");
  }
  if (call.Is("GET", "/v2/catalog/gpus")) {
    Json gpus = Json::array();
    for (const RunpodGpu& gpu : RunpodStockOf(world).gpus)
      gpus.push_back(GpuJson(world, gpu, call));
    return JsonReply(200, {{"gpus", gpus}});
  }
  if (call.Is("GET", "/v2/catalog/gpus/{}")) {
    const RunpodGpu* gpu = RunpodStockOf(world).Find(call.parts[3]);
    if (gpu == nullptr) return RunpodError(404, "GPU type not found");
    return JsonReply(200, GpuJson(world, *gpu, call));
  }
  if (call.Is("GET", "/v2/catalog/cpus")) {
    return JsonReply(200, {{"cpus", Json::array({CpuJson(call)})}});
  }
  if (call.Is("GET", "/v2/catalog/cpus/{}")) {
    if (call.parts[3] != "cpu3g") return RunpodError(404, "CPU type not found");
    return JsonReply(200, CpuJson(call));
  }
  if (call.Is("GET", "/v2/catalog/datacenters")) {
    const std::set<std::string> regions = ListOf(call, "regions");
    Json centers = Json::array();
    for (const RunpodDataCenter& center : RunpodStockOf(world).centers) {
      if (!regions.empty() && regions.count(center.region) == 0) continue;
      centers.push_back(CenterJson(world, center, call));
    }
    return JsonReply(200, {{"dataCenters", centers}});
  }
  if (call.Is("GET", "/v2/catalog/datacenters/{}")) {
    const RunpodDataCenter* center = FindCenter(world, call.parts[3]);
    if (center == nullptr) return RunpodError(404, "data center not found");
    return JsonReply(200, CenterJson(world, *center, call));
  }
  if (call.Is("GET", "/v2/catalog/templates")) {
    return JsonReply(200, {{"templates", Json::array()}});
  }
  return std::nullopt;
}

}  // namespace gpuctl::cloudsim
