// A rental market in memory that bills on a Clock and fails on request. It passes the suite of all
// providers.
#ifndef GPUCTL_TESTS_SUPPORT_BILLING_MARKET_H_
#define GPUCTL_TESTS_SUPPORT_BILLING_MARKET_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "provisioning/market/provider.h"

namespace gpuctl {

// The market's own state. It outlives its clients, and several may share it.
class BillingAccount {
 public:
  struct Machine {
    Instance instance;
    absl::Time begin;
    absl::Time end = absl::InfiniteFuture();  // of the bill
  };

  explicit BillingAccount(Clock& clock) : clock_(clock) {}

  // Rents an instance under `label` for somebody. Returns its id.
  InstanceId Add(const std::string& label, double usd_per_hour = 2.0);
  void SetPrice(const InstanceId& id, double usd_per_hour);
  void Rename(const InstanceId& id, const std::string& label);
  void SetState(const InstanceId& id, Instance::State state, const std::string& status);
  // Makes its market hold an instance, or stop what runs on it.
  void Hold(const InstanceId& id, bool held);
  void Suspend(const InstanceId& id, bool suspended);
  // Makes an instance wait for an image that cannot be pulled, according to `status`.
  void LackImage(const InstanceId& id, const std::string& status);
  // Ends an instance as the node itself or the market does.
  void End(const InstanceId& id);
  // Returns the sorted labels of the instances that bill now.
  std::vector<std::string> Billing();
  std::vector<InstanceId> BillingIds();
  // Returns the billed time of an instance.
  absl::Duration Billed(const InstanceId& id);

 private:
  friend class BillingMarket;
  Clock& clock_;
  Mutex mutex_;
  std::map<InstanceId, Machine> machines_ ABSL_GUARDED_BY(mutex_);
  int made_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One client's view of an account.
class BillingMarket : public Provider {
 public:
  BillingMarket(std::string name, std::shared_ptr<BillingAccount> account, Clock& clock)
      : name_(std::move(name)), account_(std::move(account)), clock_(clock) {}

  enum class Create {
    kAnswers,
    kLostButThere,  // no answer, but it was created
    kLostAndNot,    // no answer, and not created
    kLostAndTwice,  // no answer, and two were created
  };

  // Settings that may change at any time.
  std::deque<Create> creates;  // one for each create; then kAnswers
  absl::Status lost = absl::UnknownError("the connection broke");
  absl::Status refusal;                   // not OK: every create is refused with it
  double dearer_by = 1;                   // times the offer's price, of what is created
  absl::Duration list_lag;                // younger instances are not listed
  absl::Duration describe_lag;            // or not described
  absl::Duration terminate_lag;           // or not found by a request for their end
  absl::Duration ended_lag;               // what has ended is still listed and described so long
  absl::Duration boots_in;                // until it runs and has an address
  absl::Duration relayed_for;             // after that, the address is a relay's
  std::deque<absl::Status> list_answers;  // one for each list; an error replaces the list
  std::deque<absl::Status> describe_answers;
  std::deque<absl::Status> terminate_answers;
  int ignored_terminates = 0;  // answered OK without effect
  int ignored_expiries = 0;    // of creates and moves, the same
  // What it says that it has charged for traffic.
  absl::StatusOr<std::map<InstanceId, double>> traffic_charges = std::map<InstanceId, double>();
  int charge_lists = 0;
  // A function called before and after each call: "rent", "list", "describe", "terminate". It may
  // throw.
  std::function<void(absl::string_view call, bool done)> hook;
  ProviderTraits market_traits;
  RentOptions rented_with;  // of the last request
  int rents = 0;
  int terminates = 0;

  absl::string_view name() const override { return name_; }
  ProviderTraits traits() const override { return market_traits; }
  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override;
  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override;
  absl::StatusOr<Instance> Describe(const InstanceId& id) override;
  absl::StatusOr<std::vector<Instance>> ListInstances() override;
  absl::Status Terminate(const InstanceId& id) override;
  absl::Status MoveExpiry(const InstanceId& id, absl::Time expires_at) override;
  absl::StatusOr<std::map<InstanceId, double>> ListTrafficCharges(int64_t from_ms,
                                                                  int64_t to_ms) override {
    (void)from_ms, (void)to_ms;
    ++charge_lists;
    return traffic_charges;
  }

  // Returns the cheapest offer.
  Offer AnOffer() { return ListOffers({}).value().front(); }

 private:
  void Hook(absl::string_view call, bool done) {
    if (hook) hook(call, done);
  }
  absl::StatusOr<Instance> Answer(absl::string_view label);
  bool SetExpiry(const InstanceId& id, absl::Time expires_at);
  absl::StatusOr<Instance> LookUp(const InstanceId& id);
  Instance Show(const BillingAccount::Machine& machine);

  const std::string name_;
  const std::shared_ptr<BillingAccount> account_;
  Clock& clock_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_BILLING_MARKET_H_
