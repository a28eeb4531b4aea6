#include "tests/cloudsim/world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/files/files.h"
#include "tests/cloudsim/children.h"
#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {

World::World(const WorldOptions& world_options)
    : options(world_options), clock(world_options.speed), services(MakeServices()) {}

World::~World() = default;

Service* World::FindService(const std::string& name) const {
  for (const auto& service : services) {
    if (name == service->name()) return service.get();
  }
  return nullptr;
}

Service& World::ServiceOf(const std::string& name) const { return *FindService(name); }

// Returns a separate loopback address for an instance, because the service gives no port.
std::string World::NewAddress() {
  const int64_t number = NextNumber() + static_cast<int64_t>(getpid()) * 61;
  return absl::StrCat("127.", 64 + number / 62'500 % 60, ".", 1 + number / 250 % 250, ".",
                      1 + number % 250);
}

Account* World::AddAccount(const std::string& service, const std::string& key, double balance_usd) {
  auto account = std::make_unique<Account>();
  account->service = service;
  account->name = key;
  account->key = key;
  account->balance_usd = balance_usd;
  account->user_id = 1000 + NextNumber();
  accounts.push_back(std::move(account));
  return accounts.back().get();
}

Account* World::FindAccount(const std::string& service, const std::string& key) {
  for (const auto& account : accounts) {
    if (account->service == service && account->key == key) return account.get();
  }
  return nullptr;
}

Account* World::AccountNamed(const std::string& service, const std::string& name) {
  for (const auto& account : accounts) {
    if (account->service == service && account->name == name) return account.get();
  }
  return nullptr;
}

Instance* World::FindAny(const std::string& service, const std::string& id) {
  for (const auto& instance : instances) {
    if (instance->service == service && instance->id == id) return instance.get();
  }
  return nullptr;
}

Instance* World::Find(const std::string& service, const std::string& id) {
  Instance* const found = FindAny(service, id);
  return found == nullptr || found->trouble.hidden ? nullptr : found;
}

Instance* World::ByOwnKey(const std::string& service, const std::string& key) {
  for (const auto& instance : instances) {
    if (instance->service == service && instance->alive() && !key.empty() && instance->key == key) {
      return instance.get();
    }
  }
  return nullptr;
}

std::vector<Instance*> World::Listed(const std::string& service, const std::string& account) {
  const int64_t now = Now();
  std::vector<Instance*> listed;
  for (const auto& instance : instances) {
    if (instance->service != service || instance->account != account) continue;
    Trouble& trouble = instance->trouble;
    if (trouble.hidden) continue;
    if (!instance->alive()) {
      if (trouble.ended_lag <= 0) continue;
      --trouble.ended_lag;
    } else if (trouble.list_lag > 0) {
      --trouble.list_lag;
      continue;
    } else if (static_cast<double>(now - instance->created_ms) < trouble.list_lag_s * 1000) {
      continue;
    }
    listed.push_back(instance.get());
  }
  return listed;
}

int World::CountAlive(const std::string& service, const std::string& account) const {
  return static_cast<int>(
      std::count_if(instances.begin(), instances.end(), [&](const auto& instance) {
        return instance->service == service && instance->account == account && instance->alive();
      }));
}

Instance* World::FindOf(const Account& account, const std::string& id) {
  Instance* const found = Find(account.service, id);
  return found == nullptr || found->account != account.name ? nullptr : found;
}

std::vector<Instance*> World::EverOf(const Account& account) {
  std::vector<Instance*> all = Listed(account.service, account.name);
  for (const auto& instance : instances) {
    if (!instance->alive() && FindOf(account, instance->id) == instance.get() &&
        std::find(all.begin(), all.end(), instance.get()) == all.end()) {
      all.push_back(instance.get());
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Instance* a, const Instance* b) { return a->id < b->id; });
  return all;
}

bool World::QuotaReached(const Account& account) {
  return CountAlive(account.service, account.name) >= account.quota ||
         faults.Take(account.service, "create", "quota");
}

bool World::TakeSoldOut(const std::string& service) {
  return faults.Take(service, "create", "out_of_stock") ||
         faults.Take(service, "create", "offer_gone");
}

double World::Balance(const Account& account) const {
  double balance = account.balance_usd;
  for (const auto& instance : instances) {
    if (instance->service == account.service && instance->account == account.name) {
      balance -= instance->Billed(Now());
    }
  }
  for (const auto& volume : volumes) {
    if (volume->service != account.service || volume->account != account.name) continue;
    for (const Charge& charge : volume->charges) balance -= Cost(charge, Now());
  }
  return balance;
}

double World::SpendRate(const Account& account) const {
  double rate = 0;
  for (const auto& instance : instances) {
    if (instance->service != account.service || instance->account != account.name) continue;
    for (const Charge& charge : instance->charges) {
      if (charge.to_ms == 0) rate += charge.usd_per_hour;
    }
  }
  for (const auto& volume : volumes) {
    if (volume->service != account.service || volume->account != account.name) continue;
    for (const Charge& charge : volume->charges) {
      if (charge.to_ms == 0) rate += charge.usd_per_hour;
    }
  }
  return rate;
}

Instance* World::Add(std::unique_ptr<Instance> instance) {
  const int64_t now = Now();
  instance->trouble = faults.TakeTrouble(instance->service);
  instance->created_ms = now;
  instance->boot_at_ms = now + static_cast<int64_t>(options.boot_s * 1000);
  instance->Enter(Phase::kBooting, now, instance->account);
  instances.push_back(std::move(instance));
  return instances.back().get();
}

void World::ReleaseStock(Instance* instance) {
  if (!instance->holds_stock) return;
  instance->holds_stock = false;
  ServiceOf(instance->service).ReturnStock(*instance);
}

void World::Stop(Instance* instance, const std::string& by, const std::string& message,
                 const std::string& kept_charge) {
  const int64_t now = Now();
  for (Charge& charge : instance->charges) {
    if (charge.to_ms == 0 && charge.kind != kept_charge) charge.to_ms = now;
  }
  instance->message = message;
  instance->Enter(Phase::kStopped, now, by);
  if (instance->node != nullptr) instance->node->Stop();
  ReleaseStock(instance);
  ServiceOf(instance->service).Stopped(instance, now);
}

void World::Start(Instance* instance, const std::string& by) {
  instance->boot_at_ms = Now() + static_cast<int64_t>(options.boot_s * 1000);
  instance->message.clear();
  instance->Enter(Phase::kBooting, Now(), by);
}

void World::End(Instance* instance, const std::string& by, double delay_s) {
  if (!instance->alive()) return;
  const int64_t now = Now();
  if (const auto lag = faults.Take(instance->service, "terminate", "ended_lag")) {
    instance->trouble.ended_lag = static_cast<int>(IntegerAt(*lag, "lists", 1));
  }
  instance->StopCharges("", now);
  instance->ended_by = by;
  if (instance->node != nullptr && instance->trouble.mute_end) {
    instance->node->Mute();
  } else if (instance->node != nullptr) {
    instance->node->Stop();
  }
  ReleaseStock(instance);
  if (delay_s > 0) {
    instance->end_at_ms = now + static_cast<int64_t>(delay_s * 1000);
    instance->Enter(Phase::kEnding, now, by);
    return;
  }
  instance->ended_ms = now;
  instance->Enter(Phase::kEnded, now, by);
}

void World::Preempt(Instance* instance, int64_t now_ms) {
  instance->StopCharges("gpu", now_ms);
  if (instance->node != nullptr) instance->node->Stop();
  ReleaseStock(instance);
  instance->message = "preempted";
  if (ServiceOf(instance->service).keeps_preempted()) {
    instance->Enter(Phase::kStopped, now_ms, "simulator: preempted");
    return;
  }
  instance->StopCharges("", now_ms);
  instance->ended_ms = now_ms;
  instance->Enter(Phase::kEnded, now_ms, "simulator: preempted");
}

void World::BootDue(Instance* instance, int64_t now_ms) {
  const Trouble& trouble = instance->trouble;
  if (trouble.boot_never || now_ms < instance->boot_at_ms) return;
  const int64_t at = instance->boot_at_ms;
  if (trouble.boot_fails) {
    instance->message = "boot failed";
    instance->Enter(Phase::kFailed, at, "simulator: boot failed");
    return;
  }
  instance->started_ms = at;
  instance->ssh_at_ms = at + static_cast<int64_t>(trouble.ssh_late_s * 1000);
  instance->Enter(Phase::kRunning, at, "simulator");
  if (!options.nodes) return;
  NodeSpec& spec = instance->spec;
  spec.id = instance->id;
  spec.dir = JoinPath(options.dir, absl::StrCat("nodes/", instance->service, "-", instance->id));
  if (!trouble.wrong_gpu.empty()) spec.gpu_name = trouble.wrong_gpu;
  if (trouble.wrong_gpu_count >= 0) spec.gpu_count = trouble.wrong_gpu_count;
  if (trouble.wrong_gpu_memory_mib > 0) spec.gpu_memory_mib = trouble.wrong_gpu_memory_mib;
  spec.cuda_error = trouble.cuda_error;
  spec.mounts_missing = trouble.volume_missing;
  absl::Status booted = absl::OkStatus();
  if (instance->node == nullptr) {
    auto node = Node::Make(spec);
    booted = node.status();
    if (node.ok()) instance->node = *std::move(node);
  }
  if (booted.ok()) booted = instance->node->Boot();
  if (!booted.ok()) {
    instance->message = std::string(booted.message());
    instance->Enter(Phase::kFailed, at, "simulator: could not boot");
  }
}

void World::PriceDue(Instance* instance, int64_t now_ms) {
  Trouble& trouble = instance->trouble;
  if (trouble.price_after_s < 0) return;
  const int64_t at = instance->created_ms + static_cast<int64_t>(trouble.price_after_s * 1000);
  if (now_ms < at) return;
  trouble.price_after_s = -1;
  instance->usd_per_hour *= trouble.price_factor;
  for (Charge& charge : instance->charges) {
    if (charge.kind != "gpu" || charge.to_ms != 0) continue;
    charge.to_ms = at;
    instance->StartCharge("gpu", instance->usd_per_hour, charge.quantum_ms, at);
    return;
  }
}

void World::FundsDue(int64_t now_ms) {
  for (const auto& account : accounts) {
    if (!ServiceOf(account->service).prepaid() || Balance(*account) > 0) continue;
    for (const auto& instance : instances) {
      if (instance->service != account->service || instance->account != account->name) continue;
      if (instance->phase == Phase::kRunning || instance->phase == Phase::kBooting) {
        Stop(instance.get(), "simulator: no funds", "no funds", "disk");
      }
    }
  }
  (void)now_ms;
}

void World::Tick() {
  const int64_t now = Now();
  for (size_t i = 0; i < instances.size(); ++i) {
    Instance* instance = instances[i].get();
    if (!instance->alive()) continue;
    PriceDue(instance, now);
    ServiceOf(instance->service).Due(*this, instance, now);
    if (instance->phase == Phase::kBooting) BootDue(instance, now);
    if (instance->phase == Phase::kRunning) {
      const double preempt_s = instance->trouble.preempt_after_s;
      if (preempt_s >= 0) {
        const int64_t at = instance->started_ms + static_cast<int64_t>(preempt_s * 1000);
        if (now >= at) {
          instance->trouble.preempt_after_s = -1;
          Preempt(instance, at);
          continue;
        }
      }
      Node* node = instance->node.get();
      if (node != nullptr && !node->ssh_open() && !instance->trouble.ssh_never &&
          now >= instance->ssh_at_ms && node->WantsSsh()) {
        (void)node->OpenSsh();
      }
    }
    if (instance->phase == Phase::kEnding && now >= instance->end_at_ms) {
      instance->ended_ms = instance->end_at_ms;
      instance->Enter(Phase::kEnded, instance->end_at_ms, instance->ended_by);
    }
  }
  FundsDue(now);
  Children::Get().Reap();
}

void World::EndNodes() {
  for (const auto& instance : instances) instance->node.reset();
}

bool World::Allow(const std::string& name, double capacity, double per_second, double* wait_s,
                  double* left) {
  const int64_t now = options.real_rate_clock ? SimClock::RealMs() : Now();
  const auto found = buckets_.try_emplace(name, Bucket{capacity, now}).first;
  Bucket& bucket = found->second;
  bucket.tokens = std::min(
      capacity, bucket.tokens + static_cast<double>(now - bucket.at_ms) / 1000 * per_second);
  bucket.at_ms = now;
  const bool allowed = bucket.tokens >= 1 - 1e-9;
  if (allowed) bucket.tokens -= 1;
  if (wait_s != nullptr) *wait_s = allowed ? 0 : (1 - bucket.tokens) / per_second;
  if (left != nullptr) *left = bucket.tokens;
  return allowed;
}

Json World::Books() {
  const int64_t now = Now();
  Json books = Json::array();
  for (const auto& instance : instances) {
    Json charges = Json::array();
    for (const Charge& charge : instance->charges) {
      charges.push_back({{"kind", charge.kind},
                         {"usd_per_hour", charge.usd_per_hour},
                         {"usd", Cost(charge, now)},
                         {"from_ms", charge.from_ms},
                         {"to_ms", charge.to_ms}});
    }
    books.push_back({{"service", instance->service},
                     {"id", instance->id},
                     {"account", instance->account},
                     {"label", instance->label},
                     {"product", instance->product},
                     {"region", instance->region},
                     {"spot", instance->spot},
                     {"alive", instance->alive()},
                     {"phase", PhaseName(instance->phase)},
                     {"message", instance->message},
                     {"created_ms", instance->created_ms},
                     {"started_ms", instance->started_ms},
                     {"ended_ms", instance->ended_ms},
                     {"ended_by", instance->ended_by},
                     {"billed_usd", instance->Billed(now)},
                     {"traffic_usd", instance->traffic_usd},
                     {"charges", charges},
                     {"states", instance->states}});
  }
  Json owners = Json::array();
  for (const auto& account : accounts) {
    owners.push_back({{"service", account->service},
                      {"account", account->name},
                      {"balance_usd", Balance(*account)},
                      {"usd_per_hour", SpendRate(*account)}});
  }
  Json all = {
      {"now_ms", now}, {"instances", books}, {"volumes", VolumeBooks()}, {"accounts", owners}};
  for (const auto& service : services) service->AddToBooks(all);
  return all;
}

Json World::Stock() {
  Json stock = Json::object();
  for (const auto& service : services) stock[service->name()] = service->StockJson();
  return stock;
}

Json World::State() {
  Json all = Json::array();
  for (const auto& instance : instances) {
    Json one = {{"service", instance->service}, {"id", instance->id},
                {"label", instance->label},     {"phase", PhaseName(instance->phase)},
                {"gpu", instance->gpu_name},    {"gpu_count", instance->gpu_count}};
    if (const Node* node = instance->node.get()) {
      one["ssh"] = {{"host", node->host()},
                    {"port", node->port()},
                    {"user", instance->spec.user},
                    {"open", node->ssh_open()},
                    {"on_port_22", node->on_port_22()}};
      one["dir"] = instance->spec.dir;
      one["root"] = node->root();
      one["tag"] = node->tag();
      one["processes"] = node->processes();
      one["boot_log"] = node->log_path();
    }
    all.push_back(one);
  }
  return {{"instances", all}, {"stock", Stock()}};
}

}  // namespace gpuctl::cloudsim
