#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/files/files.h"
#include "tests/cloudsim/node_files.h"
#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {
namespace {

constexpr char kJobsMarket[] = "huggingface";
constexpr int64_t kMinuteMs = 60'000;
// How long a job that cannot start is tried again.
constexpr int64_t kTriesForMs = 3 * kMinuteMs;
constexpr size_t kJobsOfAPage = 3;
constexpr int64_t kDefaultTimeoutS = 1800;

// The flavors by their names: what the market says of all their GPUs, the name and memory of one as
// nvidia-smi shows them, and how many jobs find room.
constexpr char kFlavors[] = R"({
  "cpu-basic": {"gpus": 0, "usd": 0.000167, "room": 99, "disk": "50 GB"},
  "t4-small": {"model": "T4", "gpus": 1, "vram": "16 GB", "usd": 0.006667, "room": 9,
    "disk": "50 GB", "driver": "Tesla T4", "mib": 15360},
  "a10g-small": {"model": "A10G", "gpus": 1, "vram": "24 GB", "usd": 0.016667, "room": 9,
    "disk": "110 GB", "driver": "NVIDIA A10G", "mib": 23028},
  "l4x4": {"model": "L4", "gpus": 4, "vram": "96 GB", "usd": 0.063333, "room": 2,
    "disk": "3200 GB", "driver": "NVIDIA L4", "mib": 23034},
  "a100-large": {"model": "A100", "gpus": 1, "vram": "80 GB", "usd": 0.041667, "room": 4,
    "disk": "1000 GB", "driver": "NVIDIA A100-SXM4-80GB", "mib": 81920},
  "rtx-pro-6000": {"model": "RTX PRO 6000", "gpus": 1, "vram": "96 GB", "usd": 0.045833, "room": 2,
    "disk": "475 GB", "driver": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "mib": 97887}
})";

Reply JobError(int status, const std::string& message) {
  Reply reply = JsonReply(status, {{"error", message}});
  reply.headers.emplace_back("X-Error-Message", message);
  return reply;
}

Json FlavorJson(const std::string& name, const Json& flavor) {
  Json accelerator = nullptr;
  if (IntegerAt(flavor, "gpus") > 0) {
    accelerator = {{"type", "gpu"},
                   {"model", flavor["model"]},
                   {"quantity", absl::StrCat(IntegerAt(flavor, "gpus"))},
                   {"vram", flavor["vram"]},
                   {"manufacturer", "Nvidia"}};
  }
  const double usd = NumberAt(flavor, "usd");
  return {{"name", name},
          {"prettyName", name},
          {"cpu", "4 vCPU"},
          {"ram", "15 GB"},
          {"ephemeralStorage", flavor["disk"]},
          {"accelerator", accelerator},
          {"unitCostMicroUSD", usd * 1e6},
          {"unitCostUSD", usd},
          {"unitLabel", "minute"}};
}

// A stage as the market says it. One that is over but still shown counts as running.
std::string StageOf(const Instance& job) {
  if (job.phase == Phase::kBooting || job.phase == Phase::kFailed) return "SCHEDULING";
  if (job.alive() || job.trouble.ended_lag > 0) return "RUNNING";
  return StringAt(job.extra, "stage", "CANCELED");
}

std::string UserName(const Account& account) { return absl::StrCat("ada-", account.user_id); }

// Returns a number as an id of 24 hex digits.
std::string IdOf(int64_t number) {
  return absl::StrCat(absl::Hex(number, absl::kZeroPad16), "00abcdef");
}

Json JobJson(const Instance& job, const Account& account) {
  Json status = {{"stage", StageOf(job)}, {"message", nullptr}};
  if (job.extra.contains("said")) status["message"] = job.extra["said"];
  if (job.extra.contains("reason")) status["cancelReason"] = job.extra["reason"];
  if (BoolAt(job.request.value("ssh", Json::object()), "enabled") && job.reachable()) {
    status["sshUrl"] = absl::StrCat("ssh://", job.id, "@", job.spec.host, ":", job.node->port());
  }
  Json owner = {{"id", IdOf(account.user_id)}, {"name", UserName(account)}};
  const Json maker = owner;
  owner.update({{"type", "user"}, {"avatarUrl", "https://huggingface.invalid/a.svg"}});
  Json json = {{"id", job.id},
               {"createdAt", Rfc3339(job.created_ms)},
               {"environment", job.request.value("environment", Json::object())},
               {"flavor", job.product},
               {"command", job.request.value("command", Json::array())},
               {"arguments", Json::array()},
               {"timeout", IntegerAt(job.extra, "timeout_s")},
               {"createdBy", maker},
               {"type", "job"},
               {"owner", owner},
               {"labels", job.request.value("labels", Json::object())},
               {"status", status}};
  if (job.request.contains("dockerImage")) json["dockerImage"] = job.request["dockerImage"];
  if (BoolAt(job.extra, "silent_timeout")) json.erase("timeout");
  if (job.started_ms > 0) json["startedAt"] = Rfc3339(job.started_ms);
  if (job.ended_ms > 0) json["finishedAt"] = Rfc3339(job.ended_ms);
  return json;
}

const Json& CreateSchema() {
  static const auto* const schema = new Json(Json::parse(R"({"type": "object",
    "required": ["flavor"], "additionalProperties": false, "properties": {
      "flavor": {"type": "string"}, "dockerImage": {"type": "string", "minLength": 1},
      "command": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
      "arguments": {"type": "array"}, "timeoutSeconds": {"type": "integer", "minimum": 1},
      "environment": {"type": "object", "additionalProperties": {"type": "string"}},
      "secrets": {"type": "object", "additionalProperties": {"type": "string"}},
      "ssh": {"type": "object", "properties": {"enabled": {"type": "boolean"}}},
      "labels": {"type": "object", "additionalProperties":
        {"type": "string", "maxLength": 100, "pattern": "^[a-zA-Z0-9._-]*$"}}}})"));
  return *schema;
}

class HuggingfaceService : public Service {
 public:
  const char* name() const override { return kJobsMarket; }

  std::string Route(const Call& call) const override {
    if (call.Is("POST", "/api/jobs/{}")) return "create";
    if (call.Is("GET", "/api/jobs/hardware")) return "offers";
    if (call.Is("GET", "/api/jobs/{}")) return "list";
    if (call.Is("GET", "/api/jobs/{}/{}")) return "describe";
    if (call.Is("POST", "/api/jobs/{}/{}/cancel")) return "terminate";
    if (call.Is("POST", "/settings/keys")) return "keys";
    return call.Is("GET", "/api/whoami-v2") ? "account" : "other";
  }

  Reply Error(int status, const std::string& message) const override {
    return JobError(status, message);
  }

  Reply Handle(World& world, const Call& call) override {
    Account* account = world.FindAccount(kJobsMarket, call.Key());
    if (account == nullptr) return JobError(401, "Invalid credentials in Authorization header");
    Reply reply;
    double wait_s = 0;
    const std::string bucket = absl::StrCat(kJobsMarket, "/", account->key);
    if (world.options.rate_limits && !world.Allow(bucket, 1000, 1000.0 / 300, &wait_s, nullptr)) {
      reply = JobError(429, "We had to rate limit you");
      reply.headers.emplace_back("RateLimit",
                                 absl::StrCat("\"api\";r=0;t=", 1 + static_cast<int64_t>(wait_s)));
    } else {
      reply = Dispatch(world, call, *account);
    }
    reply.account = account->name;
    return reply;
  }

  std::string SetStock(const Json& change) override {
    Json* flavor = Find(StringAt(change, "item"));
    if (flavor == nullptr) return "no such flavor";
    (*flavor)["room"] = IntegerAt(change, "count");
    return "";
  }
  std::string AddStock(const Json& item) override {
    const Json* like = Find(StringAt(item, "like"));
    if (like == nullptr) return "no such flavor";
    Json flavor = *like;
    flavor["model"] = StringAt(item, "gpu", StringAt(flavor, "model"));
    flavor["driver"] = StringAt(item, "driver_gpu", StringAt(flavor, "driver"));
    flavor["mib"] = IntegerAt(item, "memory_mib", IntegerAt(flavor, "mib"));
    const int64_t gib = IntegerAt(flavor, "gpus") * ((IntegerAt(flavor, "mib") + 1023) / 1024);
    if (item.contains("memory_mib")) flavor["vram"] = absl::StrCat(gib, " GB");
    flavor["usd"] = NumberAt(item, "usd_per_hour", 60 * NumberAt(flavor, "usd")) / 60;
    flavors_[StringAt(item, "item")] = flavor;
    return "";
  }
  std::string SetPrice(const Json& change) override {
    Json* flavor = Find(StringAt(change, "item"));
    if (flavor == nullptr) return "no such flavor";
    (*flavor)["usd"] = NumberAt(change, "usd_per_hour") / 60;
    return "";
  }
  Json StockJson() const override {
    Json all = Json::object();
    for (const auto& flavor : flavors_.items()) all[flavor.key()] = flavor.value()["room"];
    return all;
  }
  void ReturnStock(const Instance& job) override {
    Json& flavor = flavors_[job.product];
    flavor["room"] = IntegerAt(flavor, "room") + 1;
  }
  // A job that stops is over.
  void Stopped(Instance* job, int64_t now_ms) override {
    if (job->message == "no funds") job->extra["reason"] = "NO_CREDITS";
    Finish(job, "CANCELED", job->message);
    job->StopCharges("", now_ms);
    job->ended_ms = now_ms;
    job->Enter(Phase::kEnded, now_ms, "simulator");
  }

  void Due(World& world, Instance* job, int64_t now_ms) override {
    const int64_t end_ms = job->created_ms + 1000 * IntegerAt(job->extra, "timeout_s");
    if (job->phase == Phase::kFailed) {
      if (now_ms < job->created_ms + kTriesForMs) return;
      Finish(job, "ERROR", job->message);
      world.End(job, "simulator: failed");
    } else if (now_ms >= end_ms) {
      Finish(job, "CANCELED", "Job timed out");
      world.End(job, "simulator: timeout");
    } else if (job->phase == Phase::kRunning) {
      if (job->charges.empty()) {
        job->StartCharge("gpu", job->usd_per_hour, kMinuteMs, job->started_ms);
      }
      if (job->node == nullptr) return;
      const absl::StatusOr<std::string> code = ReadFileToString(ScriptEndFile(job->spec.dir), 16);
      if (!code.ok() || code->empty()) return;
      const bool good = absl::StartsWith(*code, "0");
      Finish(job, good ? "COMPLETED" : "ERROR",
             good ? "" : absl::StrCat("Job failed with exit code: ", *code, ". Reason: Error."));
      world.End(job, "simulator: its command ended");
    }
  }

  // "timeout": the job gets another time than it was asked for, {"seconds"}. With {"silent": true}
  // the market does not tell it.
  bool Change(World& /*world*/, Instance* job, const std::string& what,
              const Json& request) override {
    if (what != "timeout") return false;
    job->extra["timeout_s"] = IntegerAt(request, "seconds");
    job->extra["silent_timeout"] = BoolAt(request, "silent");
    return true;
  }

 private:
  Json* Find(const std::string& name) {
    return flavors_.contains(name) ? &flavors_[name] : nullptr;
  }

  static void Finish(Instance* job, const std::string& stage, const std::string& said) {
    job->extra["stage"] = stage;
    if (!said.empty()) job->extra["said"] = said;
  }

  // Returns the error of a create; absent when there is none.
  std::optional<Reply> Refused(World& world, const Call& call, const Account& account) {
    const std::string wrong = WrongBody(call.json, CreateSchema());
    if (!wrong.empty()) return JobError(400, wrong);
    const Json* flavor = Find(StringAt(call.json, "flavor"));
    if (flavor == nullptr) return JobError(400, "Invalid flavor");
    if (account.inactive || world.Balance(account) < NumberAt(*flavor, "usd") ||
        world.faults.Take(kJobsMarket, "create", "no_funds")) {
      return JobError(402, "Pre-paid credit balance is insufficient");
    }
    if (world.QuotaReached(account)) {
      return JobError(403, "You have reached the limit of jobs at the same time");
    }
    if (IntegerAt(*flavor, "room") < 1 || world.TakeSoldOut(kJobsMarket)) {
      return JobError(422, "This flavor is currently not available");
    }
    return std::nullopt;
  }

  Reply Create(World& world, const Call& call, const Account& account) {
    if (auto refused = Refused(world, call, account)) return *std::move(refused);
    Json& flavor = *Find(StringAt(call.json, "flavor"));
    auto job = std::make_unique<Instance>();
    job->service = kJobsMarket;
    job->id = IdOf(world.NextNumber());
    job->account = account.name;
    const Json labels = call.json.value("labels", Json::object());
    job->label = StringAt(labels, "gpuctl-lease", StringAt(labels, "name"));
    job->product = StringAt(call.json, "flavor");
    job->HasGpus(flavor, StringAt(flavor, "model"));
    job->usd_per_hour = 60 * NumberAt(flavor, "usd");
    job->request = call.json;
    job->extra = {{"timeout_s", IntegerAt(call.json, "timeoutSeconds", kDefaultTimeoutS)}};
    flavor["room"] = IntegerAt(flavor, "room") - 1;
    job->holds_stock = true;
    // One gateway, with one host key; only its port tells the machine that a test's ssh reaches.
    if (gateway_.empty()) gateway_ = world.NewAddress();
    if (host_key_.empty() && world.options.nodes) host_key_ = MakeHostKeyFile(world.options.dir);
    job->spec.user = job->id;
    job->spec.root_in_home = true;
    job->spec.host = gateway_;
    job->spec.host_key = host_key_;
    job->spec.authorized_keys = account.ssh_keys.get<std::vector<std::string>>();
    const Json environment = call.json.value("environment", Json::object());
    job->spec.environment = environment.get<std::map<std::string, std::string>>();
    const Json command = call.json.value("command", Json::array());
    if (command.size() == 3 && command[0] == "sh" && command[1] == "-c") {
      job->spec.script = command[2].get<std::string>();
    }
    Instance* made = world.Add(std::move(job));
    Reply reply = JsonReply(200, JobJson(*made, account));
    if (world.faults.Take(kJobsMarket, "create", "refused_but_made")) {
      reply = JobError(503, "Service Unavailable");
    }
    reply.instance = made->id;
    return reply;
  }

  // Returns the ones of the stages that the query names, or all that ever were, in pages.
  Reply List(World& world, const Call& call, const Account& account) {
    const auto stages = call.query.equal_range("stage");
    const bool all = stages.first == stages.second;
    const std::string cursor = call.Query("cursor");
    Json rows = Json::array();
    for (const Instance* job : world.EverOf(account)) {
      const std::string stage = StageOf(*job);
      const bool wanted = all || std::any_of(stages.first, stages.second, [&](const auto& asked) {
                            return asked.second == stage;
                          });
      if (!wanted || job->id <= cursor) continue;
      if (rows.size() == kJobsOfAPage) {
        Reply reply = JsonReply(200, rows);
        std::string url = absl::StrCat(world.url, "/", kJobsMarket, call.path,
                                       "?cursor=", StringAt(rows.back(), "id"));
        for (auto asked = stages.first; asked != stages.second; ++asked) {
          absl::StrAppend(&url, "&stage=", asked->second);
        }
        reply.headers.emplace_back("Link", absl::StrCat("<", url, ">; rel=\"next\""));
        return reply;
      }
      rows.push_back(JobJson(*job, account));
    }
    return JsonReply(200, rows);
  }

  Reply One(World& world, const Call& call, const Account& account) {
    Instance* job = world.FindOf(account, call.parts[3]);
    if (job == nullptr) return JobError(404, "Job not found");
    if (call.method == "POST") {
      if (!job->alive()) return JobError(400, "Job is not running");
      if (!world.faults.Take(kJobsMarket, "terminate", "terminate_ignored")) {
        Finish(job, "CANCELED", "");
        world.End(job, account.name);
      }
    }
    Reply reply = JsonReply(200, JobJson(*job, account));
    if (call.method == "GET" && !job->alive() && job->trouble.ended_lag > 0) {
      --job->trouble.ended_lag;
    }
    reply.instance = job->id;
    return reply;
  }

  // What a user does on a page: no request of the API registers a key.
  Reply AddKey(World& world, const Call& call, Account& account) {
    account.ssh_keys.push_back(StringAt(call.json, "key"));
    for (const auto& job : world.instances) {
      if (job->service != kJobsMarket || job->account != account.name) continue;
      job->spec.authorized_keys = account.ssh_keys.get<std::vector<std::string>>();
      if (job->alive() && job->node != nullptr) {
        (void)job->node->SetAuthorized(job->spec.authorized_keys);
      }
    }
    return JsonReply(200, Json::object());
  }

  Reply Dispatch(World& world, const Call& call, Account& account) {
    if (call.Is("GET", "/api/whoami-v2")) {
      return JsonReply(
          200, {{"auth",
                 {{"type", "access_token"},
                  {"accessToken",
                   {{"displayName", "sim"}, {"role", "write"}, {"createdAt", Rfc3339(0)}}}}},
                {"type", "user"},
                {"id", IdOf(account.user_id)},
                {"name", UserName(account)},
                {"fullname", "Ada"},
                {"canPay", !account.inactive},
                {"avatarUrl", "https://huggingface.invalid/a.svg"},
                {"isPro", false},
                {"orgs", Json::array()}});
    }
    if (call.Is("POST", "/settings/keys")) return AddKey(world, call, account);
    if (call.Is("GET", "/api/jobs/hardware")) {
      Json rows = Json::array();
      for (const auto& flavor : flavors_.items()) {
        rows.push_back(FlavorJson(flavor.key(), flavor.value()));
      }
      return JsonReply(200, rows);
    }
    if (call.parts.size() < 3 || call.parts[1] != "jobs") return JobError(404, "Not found");
    if (call.parts[2] != UserName(account)) return JobError(403, "no right in this namespace");
    if (call.route == "create") return Create(world, call, account);
    if (call.route == "list") return List(world, call, account);
    if (call.route == "describe" || call.route == "terminate") return One(world, call, account);
    return JobError(404, "Not found");
  }

  Json flavors_ = Json::parse(kFlavors);
  std::string gateway_;   // its address
  std::string host_key_;  // private
};

}  // namespace

std::unique_ptr<Service> MakeHuggingfaceService() { return std::make_unique<HuggingfaceService>(); }

}  // namespace gpuctl::cloudsim
