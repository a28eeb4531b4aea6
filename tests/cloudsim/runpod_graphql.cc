// The part of GraphQL that clients still use: balance, spot prices, renting a spot pod. Queries are
// not parsed: only their words are checked, and the input of the mutation comes as a variable.
#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/cloudsim/runpod.h"

namespace gpuctl::cloudsim {
namespace {

constexpr char kRent[] = "podRentInterruptable";

Reply GraphqlError(int status, const std::string& message, const std::string& code) {
  Json error = {{"message", message}};
  if (!code.empty()) error["extensions"] = {{"code", code}};
  Json body = {{"errors", Json::array({error})}};
  if (status == 200) body["data"] = nullptr;
  return JsonReply(status, body);
}

// Returns the first word, outside of strings, that is neither a field nor part of the language; ""
// when there is none.
std::string UnknownWord(const std::string& query) {
  static const auto* const known = new std::set<std::string>{
      // the language
      "query", "mutation", "true", "false", "null", "input", "PodRentInterruptableInput",
      // fields
      "myself", "id", "email", "clientBalance", "currentSpendPerHr", "spendLimit", "gpuTypes",
      "displayName", "manufacturer", "memoryInGb", "secureCloud", "communityCloud", "securePrice",
      "communityPrice", "secureSpotPrice", "communitySpotPrice", "maxGpuCount", "lowestPrice",
      "gpuCount", "dataCenterId", "uninterruptablePrice", "minimumBidPrice", "stockStatus",
      "minVcpu", "minMemory", "maxUnreservedGpuCount", "availableGpuCounts", kRent, "costPerHr",
      "desiredStatus", "name", "imageName", "machineId", "podType"};
  bool named = false;  // an operation's own name comes next
  for (size_t i = 0; i < query.size();) {
    if (query[i] == '"') {
      i = query.find('"', i + 1);
      if (i == std::string::npos) return "\"";
      ++i;
      continue;
    }
    if (!absl::ascii_isalpha(static_cast<unsigned char>(query[i])) && query[i] != '_') {
      if (query[i] == '{' || query[i] == '(') named = false;
      ++i;
      continue;
    }
    size_t end = i;
    while (end < query.size() &&
           (absl::ascii_isalnum(static_cast<unsigned char>(query[end])) || query[end] == '_')) {
      ++end;
    }
    const std::string word = query.substr(i, end - i);
    const bool variable = i > 0 && query[i - 1] == '$';
    if (!named && !variable && known->count(word) == 0) return word;
    named = word == "query" || word == "mutation";
    i = end;
  }
  return "";
}

Json GpuTypes(const World& world, const std::string& query) {
  Json types = Json::array();
  const bool community_only = absl::StrContains(absl::StrCat(query, " "), "secureCloud: false");
  for (const RunpodGpu& gpu : world.stock.runpod) {
    if (absl::StrContains(query, "id:") && !absl::StrContains(query, gpu.id)) continue;
    int most = 0;
    for (const auto& place : community_only ? gpu.community : gpu.secure) {
      most = std::max(most, place.second);
    }
    const double price = community_only ? gpu.community_usd : gpu.secure_usd;
    const bool any = most > 0 && gpu.manufacturer == "NVIDIA";
    types.push_back({{"id", gpu.id},
                     {"displayName", gpu.name},
                     {"memoryInGb", gpu.memory_gb},
                     {"secureCloud", true},
                     {"communityCloud", !gpu.community.empty()},
                     {"lowestPrice",
                      {{"uninterruptablePrice", any ? Json(price) : Json()},
                       {"minimumBidPrice", any ? Json(price / 2) : Json()},
                       {"stockStatus", any ? Json(most > 6   ? "High"
                                                  : most > 2 ? "Medium"
                                                             : "Low")
                                           : Json()}}}});
  }
  return types;
}

const Json& RentSchema() {
  static const auto* const schema = new Json(Json::parse(R"({
    "type": "object", "additionalProperties": false,
    "required": ["gpuTypeId", "bidPerGpu"], "properties": {
      "name": {"type": "string"}, "imageName": {"type": "string"},
      "gpuTypeId": {"type": "string"}, "gpuCount": {"type": "integer", "minimum": 1},
      "cloudType": {"type": "string", "enum": ["SECURE", "COMMUNITY", "ALL"]},
      "bidPerGpu": {"type": "number"}, "containerDiskInGb": {"type": "integer"},
      "volumeInGb": {"type": "integer"}, "volumeMountPath": {"type": "string"},
      "ports": {"type": "string"}, "dockerArgs": {"type": "string"},
      "env": {"type": "array", "items": {"type": "object", "required": ["key", "value"],
        "additionalProperties": false,
        "properties": {"key": {"type": "string"}, "value": {"type": "string"}}}},
      "dataCenterId": {"type": "string"}, "startSsh": {"type": "boolean"},
      "supportPublicIp": {"type": "boolean"}, "minVcpuCount": {"type": "integer"},
      "minMemoryInGb": {"type": "integer"}, "networkVolumeId": {"type": "string"},
      "terminateAfter": {"type": "string"}}})"));
  return *schema;
}

// Returns the REST API's body for the same pod.
Json PodBody(const Json& input) {
  Json body = {{"name", StringAt(input, "name", "pod")},
               {"image", StringAt(input, "imageName")},
               {"args", StringAt(input, "dockerArgs")},
               {"gpu", {{"id", input["gpuTypeId"]}, {"count", IntegerAt(input, "gpuCount", 1)}}},
               {"cloud", StringAt(input, "cloudType") == "COMMUNITY" ? "COMMUNITY" : "SECURE"},
               {"disk", IntegerAt(input, "containerDiskInGb", 20)},
               {"startSsh", BoolAt(input, "startSsh")},
               {"env", Json::object()},
               {"ports", Json::array()}};
  if (!StringAt(input, "ports").empty()) body["ports"].push_back(StringAt(input, "ports"));
  for (const Json& variable : input.value("env", Json::array())) {
    body["env"][StringAt(variable, "key")] = StringAt(variable, "value");
  }
  if (input.contains("dataCenterId")) body["dataCenterIds"] = {input["dataCenterId"]};
  if (input.contains("networkVolumeId")) {
    body["mounts"]["network"] = Json::array(
        {{{"volumeId", input["networkVolumeId"]}, {"path", StringAt(input, "volumeMountPath")}}});
  }
  return body;
}

Reply Rent(World& world, const Call& call, Account& account) {
  const Json variables = call.json.value("variables", Json::object());
  const Json input = variables.value("input", Json());
  const std::vector<std::string> wrong = CheckJson(input, RentSchema());
  if (!wrong.empty()) {
    return GraphqlError(400, absl::StrCat("Variable \"$input\" got invalid value: ", wrong[0]),
                        "GRAPHQL_VALIDATION_FAILED");
  }
  const RunpodGpu* gpu = world.stock.FindRunpod(StringAt(input, "gpuTypeId"));
  const bool community = StringAt(input, "cloudType") == "COMMUNITY";
  const double bid = NumberAt(input, "bidPerGpu");
  if (gpu != nullptr && bid < (community ? gpu->community_usd : gpu->secure_usd) / 2) {
    return GraphqlError(200, "Your bid is too low.", "");
  }
  Caller caller;
  caller.account = &account;
  caller.name = account.name;
  Reply made = RunpodMakePod(world, caller, PodBody(input), bid);
  const Json pod = Json::parse(made.body, nullptr, false);
  if (made.status != 201) {
    const std::string detail = StringAt(pod, "detail");
    return GraphqlError(200, detail, detail == kRunpodNoCapacity ? "SUPPLY_CONSTRAINT" : "");
  }
  Reply reply = JsonReply(
      200,
      {{"data",
        {{kRent, {{"id", pod["id"]}, {"costPerHr", pod["cost"]}, {"desiredStatus", "RUNNING"}}}}}});
  reply.instance = made.instance;
  return reply;
}

}  // namespace

bool RunpodRentsByGraphql(const Call& call) {
  return call.path == "/graphql" && absl::StrContains(StringAt(call.json, "query"), kRent);
}

Reply RunpodGraphql(World& world, const Call& call) {
  std::string key = call.Key();
  if (key.empty()) key = call.Query("api_key");
  Account* account = world.FindAccount("runpod", key);
  if (account == nullptr) return JsonReply(401, {{"error", Json::object()}});
  const std::string query = StringAt(call.json, "query");
  if (query.empty()) return GraphqlError(400, "Must provide query string.", "BAD_REQUEST");
  const std::string unknown = UnknownWord(query);
  const bool mutation = absl::StrContains(query, "mutation");
  Reply reply;
  if (!unknown.empty()) {
    return GraphqlError(400,
                        absl::StrCat("Cannot query field \"", unknown, "\" on type \"",
                                     mutation ? "Mutation" : "Query", "\"."),
                        "GRAPHQL_VALIDATION_FAILED");
  }
  if (RunpodRentsByGraphql(call)) {
    reply = Rent(world, call, *account);
  } else if (absl::StrContains(query, "myself")) {
    const Json myself = {{"id", absl::StrCat("user_", account->user_id)},
                         {"clientBalance", world.Balance(*account)},
                         {"currentSpendPerHr", world.SpendRate(*account)},
                         {"spendLimit", account->spend_limit_usd_per_hour}};
    reply = JsonReply(200, {{"data", {{"myself", myself}}}});
  } else if (absl::StrContains(query, "gpuTypes")) {
    reply = JsonReply(200, {{"data", {{"gpuTypes", GpuTypes(world, query)}}}});
  } else {
    return GraphqlError(400, "There is nothing to query.", "GRAPHQL_VALIDATION_FAILED");
  }
  reply.account = account->name;
  return reply;
}

}  // namespace gpuctl::cloudsim
