// One rental market. tests/contract/provider_contract.h has the promises of every implementation.
#ifndef GPUCTL_PROVISIONING_MARKET_PROVIDER_H_
#define GPUCTL_PROVISIONING_MARKET_PROVIDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/release/release_route.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// The end of an instance that its market itself enforces, whatever becomes of the machine, of its
// key and of us.
struct Expiry {
  bool at_create = false;                             // the market takes RentOptions::expires_at
  bool can_move = false;                              // Provider::MoveExpiry works
  absl::Duration longest = absl::InfiniteDuration();  // from the create
  bool from_start =
      false;  // the time is counted from when the instance starts, not from its create
};

// Facts about a market as a whole.
struct ProviderTraits {
  EndsItself ends_itself = EndsItself::kNo;  // as in common/release/release_route.h
  Expiry expiry = {};
  bool takes_image = false;  // runs a container image of the user's choice
  // True when it pulls that image with RentOptions::registry_login.
  bool takes_login = false;
  bool has_spot = false;
  // True when an instance that was stopped or outbid keeps its disk, and bills for it.
  bool keeps_stopped_disk = false;
  // True when RentOptions::host_key is in place before a new instance's sshd answers.
  bool takes_host_key = false;
  // True when an instance that waits for its start can be given runs already.
  bool has_queue = false;
  // True when the account's instances in one region reach each other by a private network.
  bool region_network = false;
  // The time within which ssh must reach a new instance.
  absl::Duration ready_within = absl::Minutes(10);
  absl::Duration billing_quantum = absl::Seconds(1);
  // The time for which Offer::place is left out after a bad machine; short where a place has many
  // machines.
  absl::Duration leave_out_for = absl::Hours(24);
  // For how long somebody who ends an instance waits while nothing is answered.
  absl::Duration silence = absl::InfiniteDuration();

  // Returns for how long an instance may wait for its start while the time until its expiry runs.
  absl::Duration waits() const { return expiry.from_start ? absl::ZeroDuration() : ready_within; }
  // True when an instance can end its own bill.
  bool self_release() const { return ends_itself != EndsItself::kNo; }
};

// Returns UNAVAILABLE for an answer of 429: the provider asked us to wait. IsBusy recognises it.
absl::Status BusyError(absl::string_view message);
bool IsBusy(const absl::Status& status);

// Returns NOT_FOUND for an instance that is gone, with the market's own words about it. WordsOfGone
// returns these; "" for any other status.
absl::Status GoneError(absl::string_view doing, absl::string_view words);
std::string WordsOfGone(const absl::Status& status);
// Returns such a status of a market whose words say that nobody took the instance away: its command
// ended, its time was over, or its user ended it. IsOwnEnd recognises it.
absl::Status OwnEndError(absl::string_view doing, absl::string_view words);
bool IsOwnEnd(const absl::Status& status);

// A rental market's adapter. It never sleeps or retries; its callers do. Used by one thread at a
// time.
class Provider {
 public:
  virtual ~Provider() = default;
  virtual absl::string_view name() const = 0;
  virtual ProviderTraits traits() const = 0;

  // The fingerprint of the key that this object asks with, set once by its maker: what it says
  // about one account is true of no other. Empty: not known.
  const std::string& key_print() const { return key_print_; }
  void set_key_print(std::string print) { key_print_ = std::move(print); }
  // Returns the market's own id of the key's account. UNIMPLEMENTED where a market tells none.
  virtual absl::StatusOr<std::string> AccountId() {
    return absl::UnimplementedError(absl::StrCat(name(), " does not tell an account's id"));
  }

  // Returns the offers that meet `requirements` now, cheapest first; only machines with full SSH
  // access.
  virtual absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) = 0;

  // Rents `offer` under `label`. Returns when the provider has accepted; the address may still be
  // missing. ABORTED: the offer is gone or out of stock, plan again. RESOURCE_EXHAUSTED: quota or
  // funds. UNAUTHENTICATED, PERMISSION_DENIED: the key. UNAVAILABLE: the request was not sent, or
  // the provider asked us to wait (IsBusy); nothing is rented, if the provider says the truth.
  // DEADLINE_EXCEEDED, UNKNOWN: it may exist. INVALID_ARGUMENT: the offer is not this provider's,
  // or the request breaks its rules.
  virtual absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                        absl::string_view label) = 0;

  // Returns how many instances RentArray rents at once, at most kMostTasks. UNIMPLEMENTED where
  // there is no RentArray. FAILED_PRECONDITION where none of it can be given runs while it waits,
  // and why.
  virtual absl::StatusOr<int> MostInArray() {
    return absl::UnimplementedError(absl::StrCat(name(), " has no arrays"));
  }
  // Rents `count` instances of `offer` in one request, as Rent does: all of them, or none. Each
  // serves one run alone, and ends itself after it. `label` is that of the first, the others have
  // TaskLabel. At most `at_once` of them run at the same time; 0: all may. The first of the result
  // is that of task 0.
  virtual absl::StatusOr<std::vector<Instance>> RentArray(const Offer& offer,
                                                          const RentOptions& options,
                                                          absl::string_view label, int count,
                                                          int at_once) {
    (void)offer, (void)options, (void)label, (void)count, (void)at_once;
    return MostInArray().status();
  }

  // Returns INVALID_ARGUMENT for a login that this market cannot be given; without the password in
  // it. Asks nobody. Rent does the same.
  virtual absl::Status CheckLogin(const RegistryLogin& login) const {
    if (traits().takes_login) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name(), " takes no login at a registry: ", login.server));
  }

  // Removes the logins that Rent left with the market for this owner (LeaseLabel) and that no
  // instance uses. Returns their number. Requires that nobody rents for this owner meanwhile.
  virtual absl::StatusOr<int> RemoveUnusedLogins(absl::string_view owner) {
    (void)owner;
    return 0;
  }

  // Returns the present state of an instance. NOT_FOUND only when the provider says that it is
  // gone.
  virtual absl::StatusOr<Instance> Describe(const InstanceId& id) = 0;

  // Returns all instances of the account that bill, whoever rented them; labels show the owner
  // (provisioning/market/label.h). An answer that cannot be understood, or is not whole, is an
  // error, never "none".
  virtual absl::StatusOr<std::vector<Instance>> ListInstances() = 0;

  // Asks for the end of the bill. OK: the provider takes the request; the bill has ended when
  // Describe says NOT_FOUND. NOT_FOUND: the provider knows no such instance. It is gone, or so new
  // that the provider does not know it yet.
  virtual absl::Status Terminate(const InstanceId& id) = 0;

  // Sets the time at which the market ends the instance. UNIMPLEMENTED where it cannot be moved.
  virtual absl::Status MoveExpiry(const InstanceId& id, absl::Time expires_at) {
    (void)expires_at;
    return absl::UnimplementedError(absl::StrCat("move the end of ", id, ": ", name(), " cannot"));
  }

  // Adds the public key of its create again to a rented instance that refuses that key.
  // UNIMPLEMENTED where a market cannot.
  virtual absl::Status AttachKey(const InstanceId& id, const std::string& ssh_public_key) {
    (void)ssh_public_key;
    return absl::UnimplementedError(absl::StrCat("attach a key to ", id, ": ", name(), " cannot"));
  }

  // Returns the account's price rises that wait for an answer; none where the price of a rented
  // machine is fixed.
  virtual absl::StatusOr<std::vector<PriceRise>> ListPriceRises() {
    return std::vector<PriceRise>();
  }
  // Accepts or refuses a price rise. NOT_FOUND: it does not wait, or no longer waits.
  virtual absl::Status AnswerPriceRise(const PriceRise& rise, bool accept) {
    (void)accept;
    return absl::UnimplementedError(
        absl::StrCat("answer a price rise of ", rise.instance_id, ": ", name(), " has none"));
  }

  // Returns what the market has charged so far for the traffic of each of the account's instances
  // that billed between two times, in USD. Times are Unix milliseconds. None where traffic is free
  // or a market does not tell.
  virtual absl::StatusOr<std::map<InstanceId, double>> ListTrafficCharges(int64_t from_ms,
                                                                          int64_t to_ms) {
    (void)from_ms, (void)to_ms;
    return std::map<InstanceId, double>();
  }

  // Returns all volumes of the account; none where a market has no volumes.
  virtual absl::StatusOr<std::vector<Volume>> ListVolumes() { return std::vector<Volume>(); }

 private:
  std::string key_print_;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_PROVIDER_H_
