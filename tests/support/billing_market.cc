#include "tests/support/billing_market.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gpuctl {
namespace {

absl::Status TakeFront(std::deque<absl::Status>& answers) {
  if (answers.empty()) return absl::OkStatus();
  absl::Status answer = answers.front();
  answers.pop_front();
  return answer;
}

}  // namespace

InstanceId BillingAccount::Add(const std::string& label, double usd_per_hour) {
  MutexLock lock(mutex_);
  Machine machine;
  machine.instance.id = absl::StrFormat("i-%03d", ++made_);
  machine.instance.label = label;
  machine.instance.price_usd_per_hour = usd_per_hour;
  machine.instance.gpu_name = "H100";
  machine.instance.gpu_count = 1;
  machine.instance.region = "US";
  machine.begin = clock_.Now();
  machine.instance.created_ms = absl::ToUnixMillis(machine.begin);
  machines_[machine.instance.id] = machine;
  return machine.instance.id;
}

void BillingAccount::SetPrice(const InstanceId& id, double usd_per_hour) {
  MutexLock lock(mutex_);
  machines_[id].instance.price_usd_per_hour = usd_per_hour;
}

void BillingAccount::Rename(const InstanceId& id, const std::string& label) {
  MutexLock lock(mutex_);
  machines_[id].instance.label = label;
}

void BillingAccount::SetState(const InstanceId& id, Instance::State state,
                              const std::string& status) {
  MutexLock lock(mutex_);
  machines_[id].instance.state = state;
  machines_[id].instance.status = status;
}

void BillingAccount::Hold(const InstanceId& id, bool held) {
  MutexLock lock(mutex_);
  machines_[id].instance.held = held;
}

void BillingAccount::Suspend(const InstanceId& id, bool suspended) {
  MutexLock lock(mutex_);
  machines_[id].instance.suspended = suspended;
}

void BillingAccount::LackImage(const InstanceId& id, const std::string& status) {
  MutexLock lock(mutex_);
  machines_[id].instance.image_fails = true;
  machines_[id].instance.status = status;
}

void BillingAccount::End(const InstanceId& id) {
  MutexLock lock(mutex_);
  Machine& machine = machines_[id];
  machine.end = std::min(machine.end, clock_.Now());
}

std::vector<std::string> BillingAccount::Billing() {
  MutexLock lock(mutex_);
  std::vector<std::string> labels;
  for (const auto& [id, machine] : machines_) {
    if (machine.end == absl::InfiniteFuture()) labels.push_back(machine.instance.label);
  }
  std::sort(labels.begin(), labels.end());
  return labels;
}

std::vector<InstanceId> BillingAccount::BillingIds() {
  MutexLock lock(mutex_);
  std::vector<InstanceId> ids;
  for (const auto& [id, machine] : machines_) {
    if (machine.end == absl::InfiniteFuture()) ids.push_back(id);
  }
  return ids;
}

absl::Duration BillingAccount::Billed(const InstanceId& id) {
  MutexLock lock(mutex_);
  const Machine& machine = machines_[id];
  return std::min(machine.end, clock_.Now()) - machine.begin;
}

absl::StatusOr<std::vector<Offer>> BillingMarket::ListOffers(const Requirements&) {
  std::vector<Offer> offers(2);
  offers[0].ref = "small";
  offers[0].price_usd_per_hour = 2.0;
  offers[0].place = absl::StrCat(name_, ":US-1");
  offers[1].ref = "large";
  offers[1].price_usd_per_hour = 5.0;
  offers[1].place = absl::StrCat(name_, ":EU-1");
  for (Offer& offer : offers) {
    offer.provider = name_;
    offer.gpu_name = "H100";
    offer.gpu_count = 1;
  }
  return offers;
}

absl::StatusOr<Instance> BillingMarket::Rent(const Offer& offer, const RentOptions& options,
                                             absl::string_view label) {
  Hook("rent", false);
  ++rents;
  rented_with = options;
  if (offer.provider != name_ || (offer.ref != "small" && offer.ref != "large")) {
    return absl::InvalidArgumentError(absl::StrCat("rent ", offer.ref, ": no offer of ours"));
  }
  if (options.registry_login.has_value()) {
    if (absl::Status status = CheckLogin(*options.registry_login); !status.ok()) return status;
  }
  absl::StatusOr<Instance> answer = Answer(label);
  Hook("rent", true);
  return answer;
}

absl::StatusOr<Instance> BillingMarket::Answer(absl::string_view label) {
  if (!refusal.ok()) return refusal;
  Create how = Create::kAnswers;
  if (!creates.empty()) {
    how = creates.front();
    creates.pop_front();
  }
  if (how == Create::kLostAndNot) return lost;
  const InstanceId id = account_->Add(std::string(label));
  if (market_traits.expiry.at_create) SetExpiry(id, rented_with.expires_at);
  if (dearer_by != 1) account_->SetPrice(id, 2.0 * dearer_by);
  if (how == Create::kLostAndTwice) account_->Add(std::string(label));
  if (how != Create::kAnswers) return lost;
  MutexLock lock(account_->mutex_);
  return Show(account_->machines_[id]);
}

Instance BillingMarket::Show(const BillingAccount::Machine& machine) {
  Instance instance = machine.instance;
  if (instance.state != Instance::State::kStarting || instance.image_fails) return instance;
  const bool up = clock_.Now() - machine.begin >= boots_in;
  instance.status = up ? "running" : "booting";
  if (!up) return instance;
  instance.state = Instance::State::kRunning;
  instance.address.emplace();
  instance.address->host = "10.0.0.1";
  instance.address->port = 2222;
  instance.address->user = "root";
  instance.relayed = clock_.Now() - machine.begin < boots_in + relayed_for;
  if (instance.relayed) instance.address->host = "relay.example";
  return instance;
}

absl::StatusOr<Instance> BillingMarket::LookUp(const InstanceId& id) {
  const absl::Status answer = TakeFront(describe_answers);
  if (!answer.ok()) return answer;
  MutexLock lock(account_->mutex_);
  const auto found = account_->machines_.find(id);
  if (found == account_->machines_.end() || clock_.Now() >= found->second.end + ended_lag ||
      clock_.Now() - found->second.begin < describe_lag) {
    return absl::NotFoundError(absl::StrCat("describe ", id, ": not there"));
  }
  return Show(found->second);
}

absl::StatusOr<Instance> BillingMarket::Describe(const InstanceId& id) {
  Hook("describe", false);
  absl::StatusOr<Instance> instance = LookUp(id);
  Hook("describe", true);
  return instance;
}

absl::StatusOr<std::vector<Instance>> BillingMarket::ListInstances() {
  Hook("list", false);
  const absl::Status answer = TakeFront(list_answers);
  if (!answer.ok()) return answer;
  std::vector<Instance> instances;
  {
    MutexLock lock(account_->mutex_);
    for (const auto& [id, machine] : account_->machines_) {
      if (clock_.Now() < machine.end + ended_lag && clock_.Now() - machine.begin >= list_lag) {
        instances.push_back(Show(machine));
      }
    }
  }
  Hook("list", true);
  return instances;
}

bool BillingMarket::SetExpiry(const InstanceId& id, absl::Time expires_at) {
  if (ignored_expiries > 0) {
    --ignored_expiries;
    return true;
  }
  MutexLock lock(account_->mutex_);
  const auto found = account_->machines_.find(id);
  if (found == account_->machines_.end() || found->second.end <= clock_.Now()) return false;
  const bool infinite = expires_at == absl::InfiniteFuture();
  found->second.end = expires_at;
  found->second.instance.ends_ms = infinite ? 0 : absl::ToUnixMillis(expires_at);
  return true;
}

absl::Status BillingMarket::MoveExpiry(const InstanceId& id, absl::Time expires_at) {
  if (!market_traits.expiry.can_move) return Provider::MoveExpiry(id, expires_at);
  if (SetExpiry(id, expires_at)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("move the end of ", id, ": not there"));
}

absl::Status BillingMarket::Terminate(const InstanceId& id) {
  Hook("terminate", false);
  ++terminates;
  const absl::Status answer = TakeFront(terminate_answers);
  if (!answer.ok()) return answer;
  if (ignored_terminates > 0) {
    --ignored_terminates;
  } else {
    MutexLock lock(account_->mutex_);
    const auto found = account_->machines_.find(id);
    if (found == account_->machines_.end() || clock_.Now() >= found->second.end + ended_lag ||
        clock_.Now() - found->second.begin < terminate_lag) {
      return absl::NotFoundError(absl::StrCat("terminate ", id, ": not there"));
    }
    found->second.end = std::min(found->second.end, clock_.Now());
  }
  Hook("terminate", true);
  return absl::OkStatus();
}

}  // namespace gpuctl
