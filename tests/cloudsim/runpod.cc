#include "tests/cloudsim/runpod.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "tests/cloudsim/registries.h"

namespace gpuctl::cloudsim {
namespace {

const char* TitleOf(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 402:
      return "Payment Required";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 422:
      return "Unprocessable Entity";
    case 429:
      return "Too Many Requests";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

constexpr char kRatePolicy[] =
    "\"minute\";q=60;w=60, \"hour\";q=3000;w=3600, \"day\";q=50000;w=86400";

// True when a key of one pod may make this call: read its pod, stop or end it.
bool PodKeyMay(const Call& call, const Instance& pod) {
  if (call.parts.size() < 3 || call.parts[1] != "pods" || call.parts[2] != pod.id) return false;
  if (call.Is("GET", "/v2/pods/{}") || call.Is("DELETE", "/v2/pods/{}")) return true;
  return call.Is("POST", "/v2/pods/{}/action");
}

std::optional<Reply> OverLimit(World& world, const std::string& key, std::string* rate) {
  if (!world.options.rate_limits) return std::nullopt;
  struct Window {
    const char* name;
    double count;
    double seconds;
  };
  double longest = 0;
  for (const Window& window :
       {Window{"minute", 60, 60}, Window{"hour", 3000, 3600}, Window{"day", 50000, 86400}}) {
    double wait = 0;
    double left = 0;
    world.Allow(absl::StrCat("runpod/", window.name, "/", key), window.count,
                window.count / window.seconds, &wait, &left);
    longest = std::max(longest, wait);
    absl::StrAppend(rate, rate->empty() ? "" : ", ", "\"", window.name,
                    "\";r=", static_cast<int>(std::max(0.0, left)),
                    ";t=", static_cast<int>(std::ceil(wait)));
  }
  if (longest == 0) return std::nullopt;
  Reply reply = RunpodError(429, "Too many requests.");
  reply.headers.emplace_back("Retry-After", absl::StrCat(static_cast<int>(std::ceil(longest))));
  return reply;
}

Reply DispatchRunpod(World& world, const Call& call, const Caller& caller) {
  if (auto reply = RunpodPods(world, call, caller)) return *std::move(reply);
  if (auto reply = RunpodCatalog(world, call)) return *std::move(reply);
  if (auto reply = RunpodStorage(world, call, caller)) return *std::move(reply);
  if (auto reply = RunpodRegistries(world, call, caller)) return *std::move(reply);
  return RunpodError(404, absl::StrCat("no route ", call.method, " ", call.path));
}

Reply Checked(World& world, const Call& call, std::string* account, std::string* rate) {
  const std::string key = call.Key();
  if (key.empty()) return RunpodError(401, "missing bearer token");
  Caller caller;
  caller.account = world.FindAccount("runpod", key);
  caller.name = key;
  if (caller.account == nullptr) {
    caller.instance = world.ByOwnKey("runpod", key);
    if (caller.instance == nullptr) return RunpodError(401, "invalid API key");
    caller.account = world.AccountNamed("runpod", caller.instance->account);
    caller.name = absl::StrCat("instance ", caller.instance->id);
  }
  *account = caller.name;
  if (auto reply = OverLimit(world, key, rate)) return *std::move(reply);
  if (caller.account->inactive) return RunpodError(403, "access denied");
  if (caller.instance != nullptr && !PodKeyMay(call, *caller.instance)) {
    return RunpodError(403, "access denied");
  }
  return DispatchRunpod(world, call, caller);
}

}  // namespace

Reply RunpodError(int status, const std::string& detail, const Json& errors) {
  Json body = {{"title", TitleOf(status)}, {"status", status}, {"detail", detail}};
  if (!errors.is_null()) body["errors"] = errors;
  Reply reply = JsonReply(status, body);
  reply.type = "application/problem+json";
  return reply;
}

std::optional<Reply> RunpodBadBody(const Call& call, const Json& schema) {
  if (call.json.is_discarded()) return RunpodError(400, "request body is not valid JSON");
  const std::vector<std::string> wrong = CheckJson(call.json, schema);
  if (wrong.empty()) return std::nullopt;
  return RunpodError(422, "Request validation failed.", wrong);
}

namespace {

std::string RunpodRoute(const Call& call) {
  if (call.Is("POST", "/v2/pods")) return "create";
  if (call.Is("GET", "/v2/pods")) return "list";
  if (call.Is("GET", "/v2/pods/{}")) return "describe";
  if (call.Is("DELETE", "/v2/pods/{}")) return "terminate";
  if (call.Is("POST", "/v2/pods/{}/action")) {
    return StringAt(call.json, "action") == "terminate" ? "terminate" : "action";
  }
  if (call.Is("PATCH", "/v2/pods/{}")) return "update";
  if (call.Is("GET", "/v2/pods/{}/logs")) return "logs";
  if (call.path == "/graphql") return RunpodGraphqlRoute(call);
  if (call.parts.size() < 2) return "other";
  if (call.parts[1] == "catalog") return "offers";
  if (call.parts[1] == "account") return "keys";
  if (call.parts[1] == "network-volumes") return "volumes";
  return call.parts[1];
}

Reply HandleRunpod(World& world, const Call& call) {
  const std::string request_id = RandomHex(16);
  std::string account;
  std::string rate;
  Reply reply;
  if (!call.parts.empty() && call.parts[0] == "v1") {
    reply = JsonReply(410, {{"error", "REST API v1 has been retired; use v2"}});
  } else if (call.path == "/graphql") {
    reply = RunpodGraphql(world, call);
  } else if (call.Header("user-agent").empty() ||
             absl::StartsWith(call.Header("user-agent"), "Python-urllib")) {
    // The firewall in front of the service refuses such clients.
    reply.status = 403;
    reply.type = "text/html";
    reply.body =
        "<html><head><title>Access denied</title></head><body>error code: 1010</body></html>";
  } else {
    reply = Checked(world, call, &account, &rate);
  }
  if (reply.account.empty()) reply.account = account;
  reply.headers.emplace_back("x-request-id", request_id);
  if (!rate.empty()) {
    reply.headers.emplace_back("RateLimit-Policy", kRatePolicy);
    reply.headers.emplace_back("RateLimit", rate);
  }
  return reply;
}

class RunpodService : public Service {
 public:
  const char* name() const override { return "runpod"; }
  std::string Route(const Call& call) const override { return RunpodRoute(call); }
  Reply Handle(World& world, const Call& call) override { return HandleRunpod(world, call); }
  Reply Error(int status, const std::string& message) const override {
    return RunpodError(status, message);
  }
  // As GraphQL does; the REST API has no such answers.
  std::string ErrorInSuccess(const std::string& message) const override {
    return Json({{"errors", Json::array({{{"message", message}}})}, {"data", nullptr}}).dump();
  }
  std::string NewKey() const override { return absl::StrCat("rpa_", RandomHex(20)); }
  std::string SetStock(const Json& change) override { return stock.Set(change); }
  std::string AddStock(const Json& item) override { return stock.Add(item); }
  std::string SetPrice(const Json& change) override { return stock.SetPrice(change); }
  Json StockJson() const override { return stock.ToJson(); }
  void ReturnStock(const Instance& instance) override { stock.Return(instance); }
  void Stopped(Instance* instance, int64_t now_ms) override { RunpodKeepDisk(instance, now_ms); }
  void AddToBooks(Json& books) const override { books["registries"] = RunpodRegistryBooks(stock); }

  RunpodStock stock;
};

}  // namespace

RunpodStock& RunpodStockOf(const World& world) {
  return static_cast<RunpodService&>(world.ServiceOf("runpod")).stock;
}

std::unique_ptr<Service> MakeRunpodService() { return std::make_unique<RunpodService>(); }

}  // namespace gpuctl::cloudsim
