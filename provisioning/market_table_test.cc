// Plays the tables of docs/markets.md to the adapters.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files/files.h"
#include "provisioning/http/http.h"
#include "provisioning/markets.h"
#include "tests/support/matchers.h"
#include "tests/support/shared_material.h"

namespace gpuctl {
namespace {

constexpr char kTableKey[] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHt0";

// Answers every request about keys with ours, and every other with `answer`.
class TableHttp : public Http {
 public:
  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    HttpResponse response;
    response.status = 200;
    if (absl::StrContains(request.url, "/v2/account/keys") ||
        absl::StrContains(request.url, "/v1/sshkeys")) {
      response.body = absl::StrCat(R"({"ssh_keys":[{"id":1,"name":"k","public_key":")", kTableKey,
                                   R"("}],"links":{}})");
    } else if (absl::StrContains(request.url, "/api/whoami-v2")) {
      response.body = R"({"id":"u1","name":"ada","canPay":true})";
    } else if (absl::StrContains(request.url, "/ssh-keys")) {
      response.body =
          absl::StrCat(R"({"data":[{"id":"1","name":"k","public_key":")", kTableKey, R"("}]})");
    } else if (absl::StrContains(request.url, "/api/v0/ssh/")) {
      response.body = absl::StrCat(R"([{"id":1,"public_key":")", kTableKey, R"("}])");
    } else {
      response = answer;
    }
    return response;
  }
  HttpResponse answer;
};

using TableCells = std::vector<std::string>;

// Returns the rows of the table below `heading`, without its head.
std::vector<TableCells> RowsOf(absl::string_view heading) {
  const char* directory = getenv("GPUCTL_DOCS_DIR");
  const auto text =
      ReadFileToString(JoinPath(directory == nullptr ? "docs" : directory, "markets.md"));
  EXPECT_OK(text);
  std::vector<TableCells> rows;
  bool here = false;
  for (absl::string_view line : absl::StrSplit(text.value_or(""), '\n')) {
    if (absl::StartsWith(line, "#")) here = line == heading;
    if (!here || !absl::StartsWith(line, "| ") || absl::StartsWith(line, "| market ")) continue;
    TableCells cells;
    for (absl::string_view cell : absl::StrSplit(line.substr(1, line.size() - 2), " | ")) {
      cell = absl::StripAsciiWhitespace(cell);
      if (absl::ConsumePrefix(&cell, "`")) absl::ConsumeSuffix(&cell, "`");
      cells.emplace_back(cell);
    }
    rows.push_back(std::move(cells));
  }
  return rows;
}

// A running machine of each market; the table's fields replace these.
nlohmann::json RunningRow(absl::string_view market) {
  if (market == "runpod") {
    return nlohmann::json::parse(R"({"id":"i1","name":"n","status":"RUNNING","cost":0.7,
        "createdAt":"2026-03-13T20:00:00Z","gpu":{"id":"NVIDIA GeForce RTX 4090","count":1},
        "ssh":{"direct":{"host":"203.0.113.7","port":35558,"username":"root"}}})");
  }
  if (market == "lambda") {
    return nlohmann::json::parse(R"json({"id":"i1","name":"n","status":"active","ip":"203.0.113.7",
        "region":{"name":"us-west-1","description":"California, USA"},
        "instance_type":{"name":"gpu_1x_a10","description":"1x A10 (24 GB PCIe)",
        "gpu_description":"A10 (24 GB PCIe)","price_cents_per_hour":75,
        "specs":{"vcpus":30,"memory_gib":200,"storage_gib":1400,"gpus":1}}})json");
  }
  if (market == "digitalocean") {
    return nlohmann::json::parse(R"({"id":1,"name":"n","status":"active","size_slug":"s",
        "networks":{"v4":[{"ip_address":"203.0.113.7","type":"public"}]},
        "region":{"slug":"nyc2"},"size":{"slug":"s","price_hourly":3.39}})");
  }
  if (market == "shadeform") {
    return nlohmann::json::parse(R"({"id":"i1","name":"n","status":"active","cloud":"hyperstack",
        "region":"canada-1","shade_instance_type":"A6000","ip":"203.0.113.7","ssh_port":22,
        "ssh_user":"shadeform","hourly_price":210,
        "configuration":{"num_gpus":1,"gpu_type":"A6000","vram_per_gpu_in_gb":48}})");
  }
  if (market == "huggingface") {
    return nlohmann::json::parse(R"({"id":"i1","createdAt":"2026-03-13T20:00:00Z",
        "flavor":"a10g-small","labels":{"name":"n"},"timeout":7200,
        "status":{"stage":"RUNNING","message":null,"sshUrl":"ssh://i1@ssh.hf.jobs"}})");
  }
  return nlohmann::json::parse(R"({"id":1,"label":"n","actual_status":"running",
      "cur_state":"running","next_state":"running","intended_status":"running",
      "status_msg":"","public_ipaddr":"203.0.113.7",
      "ports":{"22/tcp":[{"HostIp":"0.0.0.0","HostPort":"20000"}]},"ssh_host":"ssh1.example",
      "ssh_port":10600,"machine_id":12,"gpu_name":"RTX 4090","gpu_ram":24564,"num_gpus":1,
      "dph_total":0.3})");
}

std::string LookBody(absl::string_view market, const nlohmann::json& row) {
  if (market == "runpod" || market == "shadeform" || market == "huggingface") return row.dump();
  if (market == "digitalocean") return nlohmann::json({{"droplet", row}}).dump();
  return nlohmann::json({{market == "lambda" ? "data" : "instances", row}}).dump();
}

std::string ListBody(absl::string_view market, const nlohmann::json& row) {
  const nlohmann::json rows = nlohmann::json::array({row});
  if (market == "runpod") return nlohmann::json({{"pods", rows}}).dump();
  if (market == "huggingface") return rows.dump();
  if (market == "lambda") return nlohmann::json({{"data", rows}}).dump();
  if (market == "digitalocean") return nlohmann::json({{"droplets", rows}}).dump();
  return nlohmann::json({{"instances", rows}, {"next_token", nullptr}, {"total_instances", 1}})
      .dump();
}

std::string WordOf(Instance::State state) {
  switch (state) {
    case Instance::State::kStarting:
      return "starting";
    case Instance::State::kRunning:
      return "running";
    case Instance::State::kStopping:
      return "stopping";
    case Instance::State::kFailed:
      return "failed";
    case Instance::State::kSilent:
      return "silent";
  }
  return "";
}

std::unique_ptr<Provider> AdapterOf(const std::string& market, std::shared_ptr<Http> http) {
  auto provider = MakeMarket(market, {"http://market.test", "key-1"}, std::move(http));
  EXPECT_OK(provider);
  return provider.ok() ? *std::move(provider) : nullptr;
}

Offer OfferOf(const std::string& market) {
  Offer offer;
  offer.provider = market;
  offer.ref = market == "runpod"         ? "SECURE|EU-RO-1|1|NVIDIA GeForce RTX 4090"
              : market == "lambda"       ? "gpu_1x_a10/us-west-1"
              : market == "digitalocean" ? "1/gpu-h100x1-80gb/nyc2"
              : market == "shadeform"    ? "hyperstack|canada-1|A6000|on_demand|os"
              : market == "huggingface"  ? "a10g-small"
                                         : "77";
  offer.price_usd_per_hour = 0.75;
  offer.disk_bytes = 1400LL << 30;
  return offer;
}

TEST(MarketTable, EachStateIsWhatTheTableSays) {
  const std::vector<TableCells> rows = RowsOf("## States of a machine");
  ASSERT_GT(rows.size(), 25u);
  for (const TableCells& row : rows) {
    ASSERT_EQ(row.size(), 5u) << row[0];
    SCOPED_TRACE(absl::StrCat(row[0], " ", row[1]));
    nlohmann::json machine = RunningRow(row[0]);
    const nlohmann::json said = nlohmann::json::parse(row[1], nullptr, false);
    ASSERT_TRUE(said.is_object());
    for (const auto& [field, value] : said.items()) {
      // Of an object, only the fields that are named.
      if (value.is_object() && machine[field].is_object()) {
        machine[field].merge_patch(value);
      } else {
        machine[field] = value;
      }
    }
    const auto http = std::make_shared<TableHttp>();
    const std::unique_ptr<Provider> provider = AdapterOf(row[0], http);
    ASSERT_NE(provider, nullptr);
    http->answer.status = 200;
    http->answer.body = LookBody(row[0], machine);
    const auto looked =
        provider->Describe(row[0] == "vast" || row[0] == "digitalocean" ? "1" : "i1");
    const bool bills = row[3] == "yes";
    if (looked.ok()) {
      EXPECT_EQ(WordOf(looked->state), row[2]);
    } else {
      // A machine that is over may also be told as gone.
      EXPECT_TRUE(!bills && absl::IsNotFound(looked.status())) << looked.status();
    }
    http->answer.body = ListBody(row[0], machine);
    const auto listed = provider->ListInstances();
    ASSERT_OK(listed);
    EXPECT_EQ(listed->size(), bills ? 1u : 0u);
  }
}

TEST(MarketTable, EachErrorMeansWhatTheTableSays) {
  const std::vector<TableCells> rows = RowsOf("## Errors");
  ASSERT_GT(rows.size(), 40u);
  for (const TableCells& row : rows) {
    ASSERT_EQ(row.size(), 5u) << row[0];
    SCOPED_TRACE(absl::StrCat(row[0], " ", row[1], " ", row[2], " ", row[3]));
    const auto http = std::make_shared<TableHttp>();
    const std::unique_ptr<Provider> provider = AdapterOf(row[0], http);
    ASSERT_NE(provider, nullptr);
    ASSERT_TRUE(absl::SimpleAtoi(row[2], &http->answer.status));
    http->answer.body = row[3];
    RentOptions options;
    options.ssh_public_key = kTableKey;
    const absl::Status status =
        row[1] == "rent"
            ? provider->Rent(OfferOf(row[0]), options, "gpuctl-1").status()
            : provider->Describe(row[0] == "vast" || row[0] == "digitalocean" ? "1" : "i1")
                  .status();
    EXPECT_EQ(absl::StatusCodeToString(status.code()), row[4]) << status;
  }
}

// Returns the values of `field` that the rows of `market` have.
std::set<std::string> Told(absl::string_view heading, const std::string& market, size_t column,
                           const std::string& field) {
  std::set<std::string> told;
  for (const TableCells& row : RowsOf(heading)) {
    if (row[0] != market) continue;
    nlohmann::json json = nlohmann::json::parse(row[column], nullptr, false);
    if (json.is_object() && json.contains("error") && json["error"].is_object()) {
      json = json["error"];
    }
    if (json.is_object() && json.contains(field)) {
      told.insert(json[field].is_string() ? json[field].get<std::string>() : "null");
    }
  }
  return told;
}

TEST(MarketTable, EachPublishedStateHasARow) {
  GPUCTL_SHARED_OR_SKIP(runpod, "providers/runpod/rest-v2.openapi.json");
  GPUCTL_SHARED_OR_SKIP(lambda, "providers/lambda/cloud-api-1.10.0.openapi.json");
  GPUCTL_SHARED_OR_SKIP(shadeform, "providers/shadeform/shadeform-2026-04.openapi.json");
  const std::map<std::string, nlohmann::json> published = {
      {"shadeform", shadeform["components"]["schemas"]["Status"]["enum"]},
      {"runpod", runpod["components"]["schemas"]["PodStatus"]["enum"]},
      {"lambda", lambda["components"]["schemas"]["InstanceStatus"]["enum"]}};
  for (const auto& [market, states] : published) {
    ASSERT_GE(states.size(), 6u) << market;
    const std::set<std::string> told = Told("## States of a machine", market, 1, "status");
    for (const auto& state : states) {
      EXPECT_EQ(told.count(state.get<std::string>()), 1u) << market << " " << state;
    }
  }
  const std::set<std::string> droplets =
      Told("## States of a machine", "digitalocean", 1, "status");
  for (const char* state : {"new", "active", "off", "archive"}) {
    EXPECT_EQ(droplets.count(state), 1u) << state;
  }
  GPUCTL_SHARED_OR_SKIP(jobs, "providers/huggingface/hub-jobs.openapi.json");
  std::set<std::string> stages;
  for (const TableCells& row : RowsOf("## States of a machine")) {
    if (row[0] != "huggingface") continue;
    stages.insert(nlohmann::json::parse(row[1])["status"].value("stage", ""));
  }
  const nlohmann::json job = jobs["paths"]["/api/jobs/{namespace}"]["post"]["responses"]["200"]
                                 ["content"]["application/json"]["schema"]["properties"];
  const nlohmann::json published_stages = job["status"]["properties"]["stage"]["enum"];
  ASSERT_GE(published_stages.size(), 6u);
  for (const auto& stage : published_stages) {
    EXPECT_EQ(stages.count(stage.get<std::string>()), 1u) << stage;
  }
  const std::set<std::string> vast = Told("## States of a machine", "vast", 1, "actual_status");
  for (const char* state : {"null", "created", "loading", "running", "stopped", "frozen", "exited",
                            "rebooting", "unknown", "offline"}) {
    EXPECT_EQ(vast.count(state), 1u) << state;
  }
}

// Collects the codes of errors from the description's constants.
void CollectCodes(const nlohmann::json& json, std::set<std::string>& codes) {
  if (json.is_object() && json.contains("code") && json["code"].is_object()) {
    const nlohmann::json& code = json["code"];
    if (code.contains("const")) codes.insert(code["const"].get<std::string>());
    if (code.contains("enum")) {
      for (const auto& one : code["enum"]) codes.insert(one.get<std::string>());
    }
  }
  if (json.is_structured()) {
    for (const auto& child : json) CollectCodes(child, codes);
  }
}

TEST(MarketTable, EachPublishedErrorOfALaunchHasARow) {
  GPUCTL_SHARED_OR_SKIP(lambda, "providers/lambda/cloud-api-1.10.0.openapi.json");
  std::set<std::string> codes;
  CollectCodes(lambda["components"]["schemas"], codes);
  ASSERT_GE(codes.size(), 8u);
  const std::set<std::string> told = Told("## Errors", "lambda", 3, "code");
  for (const std::string& code : codes) {
    // These concern other requests than those of the table.
    if (code == "global/duplicate" || absl::StartsWith(code, "filesystem") ||
        absl::StartsWith(code, "ssh-keys/") || absl::StartsWith(code, "firewall-")) {
      continue;
    }
    EXPECT_EQ(told.count(code), 1u) << code;
  }
}

}  // namespace
}  // namespace gpuctl
