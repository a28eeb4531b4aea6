// The firewall of an account at Lambda: its global rules, and rulesets of single regions.
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "tests/cloudsim/lambda_parts.h"

namespace gpuctl::cloudsim {
namespace {

Json DefaultRules() {
  return Json::array({{{"protocol", "tcp"},
                       {"port_range", {22, 22}},
                       {"source_network", "0.0.0.0/0"},
                       {"description", "SSH"}}});
}

// Returns the errors of `rules`, as of a member of that name.
std::vector<std::string> BadRules(const Json& rules, const char* name) {
  static const auto* const schema = new Json(Json::parse(R"({"type": "array", "items": {
    "type": "object", "required": ["protocol", "source_network", "description"], "properties": {
      "protocol": {"type": "string", "enum": ["tcp", "udp", "icmp", "all"]},
      "port_range": {"type": "array", "minItems": 2, "maxItems": 2,
        "items": {"type": "integer", "minimum": 1, "maximum": 65535}},
      "source_network": {"type": "string", "pattern": "^[0-9.]+(/[0-9]+)?$"},
      "description": {"type": "string", "maxLength": 128}}}})"));
  std::vector<std::string> wrong = CheckJson(rules, *schema);
  if (!wrong.empty()) return wrong;
  for (const Json& rule : rules) {
    if ((StringAt(rule, "protocol") == "icmp") == rule.contains("port_range")) {
      wrong.push_back(absl::StrCat(name, ": port_range is for all protocols but icmp"));
    }
  }
  return wrong;
}

// True when a live instance was launched with that ruleset.
bool IsUsed(const World& world, const std::string& ruleset, Json* instances) {
  for (const auto& instance : world.instances) {
    if (instance->service != "lambda" || !instance->alive()) continue;
    for (const Json& entry : instance->request.value("firewall_rulesets", Json::array())) {
      if (StringAt(entry, "id") == ruleset) instances->push_back(instance->id);
    }
  }
  return !instances->empty();
}

Json RulesetJson(const World& world, Json ruleset) {
  ruleset["instance_ids"] = Json::array();
  (void)IsUsed(world, StringAt(ruleset, "id"), &ruleset["instance_ids"]);
  return ruleset;
}

Reply AddRuleset(World& world, const Call& call, Json& table) {
  std::vector<std::string> wrong = CheckJson(call.json, Json::parse(R"({"type": "object",
    "required": ["name", "region", "rules"], "properties": {
      "name": {"type": "string", "maxLength": 64}, "region": {"type": "string"},
      "rules": {"type": "array"}}})"));
  if (!call.json.is_discarded() && wrong.empty()) wrong = BadRules(call.json["rules"], "rules");
  if (call.json.is_discarded() || !wrong.empty()) return LambdaInvalid(wrong);
  const std::string region = StringAt(call.json, "region");
  if (LambdaStockOf(world).regions.count(region) == 0) return LambdaInvalid({"region: unknown"});
  const std::string id = RandomHex(16);
  table[id] = {{"id", id},
               {"name", call.json["name"]},
               {"region", LambdaRegion(world, region)},
               {"rules", call.json["rules"]},
               {"created", Rfc3339(world.Now())}};
  return LambdaData(RulesetJson(world, table[id]));
}

Reply OneRuleset(World& world, const Call& call, Json& table, const std::string& id) {
  if (!table.contains(id)) {
    return LambdaError(
        404, "global/object-does-not-exist",
        "Firewall ruleset does not exist or you do not have permission to access it.");
  }
  if (call.method == "PATCH") {
    if (!call.json.is_object()) return LambdaInvalid({});
    if (call.json.contains("rules")) {
      const std::vector<std::string> wrong = BadRules(call.json["rules"], "rules");
      if (!wrong.empty()) return LambdaInvalid(wrong);
    }
    for (const char* name : {"name", "rules"}) {
      if (call.json.contains(name)) table[id][name] = call.json[name];
    }
  }
  if (call.method == "DELETE") {
    Json users = Json::array();
    if (IsUsed(world, id, &users)) {
      return LambdaError(400, "firewall-rulesets/firewall-ruleset-in-use",
                         "Firewall ruleset is in use by one or more instances.");
    }
    table.erase(id);
    return LambdaData(Json::object());
  }
  return LambdaData(RulesetJson(world, table[id]));
}

}  // namespace

std::optional<Reply> LambdaFirewall(World& world, const Call& call, const Account& account) {
  Json& everywhere = LambdaTable(world, account, "rules");
  if (!everywhere.contains("all")) everywhere["all"] = DefaultRules();
  Json& rules = everywhere["all"];
  const bool put = call.Is("PUT", "/api/v1/firewall-rules");
  const bool patch = call.Is("PATCH", "/api/v1/firewall-rulesets/global");
  if (put || patch) {
    const char* name = put ? "data" : "rules";
    if (!call.json.is_object() || (put && !call.json.contains(name))) return LambdaInvalid({});
    if (call.json.contains(name)) {
      const std::vector<std::string> wrong = BadRules(call.json[name], name);
      if (!wrong.empty()) return LambdaInvalid(wrong);
      rules = call.json[name];
    }
  }
  if (put || call.Is("GET", "/api/v1/firewall-rules")) return LambdaData(rules);
  if (patch || call.Is("GET", "/api/v1/firewall-rulesets/global")) {
    return LambdaData({{"id", "global"}, {"name", "Global"}, {"rules", rules}});
  }
  Json& table = LambdaTable(world, account, "rulesets");
  if (call.Is("GET", "/api/v1/firewall-rulesets")) {
    Json all = Json::array();
    for (const auto& entry : table.items()) all.push_back(RulesetJson(world, entry.value()));
    return LambdaData(all);
  }
  if (call.Is("POST", "/api/v1/firewall-rulesets")) return AddRuleset(world, call, table);
  for (const char* method : {"GET", "PATCH", "DELETE"}) {
    if (call.Is(method, "/api/v1/firewall-rulesets/{}")) {
      return OneRuleset(world, call, table, call.parts[3]);
    }
  }
  return std::nullopt;
}

}  // namespace gpuctl::cloudsim
