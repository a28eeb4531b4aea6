// The parts of the Vast.ai adapter: offers, renting, instances, prices. For its own files only.
#ifndef GPUCTL_PROVISIONING_VAST_VAST_MARKET_H_
#define GPUCTL_PROVISIONING_VAST_VAST_MARKET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/http/http.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/provider_access.h"
#include "provisioning/rest/rest_market.h"

namespace gpuctl {

inline constexpr char kVastName[] = "vast";
inline constexpr int64_t kVastDefaultDiskGb = 40;
inline constexpr int64_t kVastMinDiskGb = 8;
inline constexpr char kVastVolumePath[] = "/workspace";

// The content of an offer's reference: "123", or "123/bid/0.25/0.008" with the lowest bid and the
// additional hourly price of the disk.
struct VastRef {
  int64_t ask = 0;
  bool spot = false;
  double min_bid = 0;
  double disk_usd_per_hour = 0;
};

// Parses the reference. INVALID_ARGUMENT: the offer is not Vast's.
absl::StatusOr<VastRef> ParseVastRef(const Offer& offer);

// Returns the number of a Vast id; absent when it is not a number.
std::optional<int64_t> VastNumber(absl::string_view id);

// Returns the path of one instance in Vast's API.
std::string VastInstancePath(int64_t number);

// Returns the error by Vast's codes and sentences, then by the HTTP status, because one status
// means different things.
absl::Status StatusOfVastReply(const HttpResponse& response, bool creating);
// Returns the same for a call that changes something, and OK when the answer says that it
// succeeded. `silence_is_success`: also when the answer does not say.
absl::Status StatusOfVastChange(const HttpResponse& response, bool silence_is_success);

// Returns a login as a create takes it: the arguments of `docker login` in one line. It is not
// published how Vast splits that line, so INVALID_ARGUMENT for a user or password with spaces or
// characters that a shell may take for its own.
absl::StatusOr<std::string> VastImageLogin(const RegistryLogin& login);

// Returns the memory of one GPU in bytes, from Vast's MiB.
int64_t VastMemoryBytes(double mib);
std::string VastPlace(int64_t machine_id);

class VastProvider : public RestMarket {
 public:
  VastProvider(std::shared_ptr<Http> http, ProviderAccess access);

  ProviderTraits traits() const override;
  absl::Status CheckLogin(const RegistryLogin& login) const override;
  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override;
  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override;
  absl::StatusOr<std::vector<Volume>> ListVolumes() override;
  absl::StatusOr<std::string> AccountId() override;
  absl::Status AttachKey(const InstanceId& id, const std::string& ssh_public_key) override;
  absl::StatusOr<std::vector<PriceRise>> ListPriceRises() override;
  absl::Status AnswerPriceRise(const PriceRise& rise, bool accept) override;
  absl::StatusOr<std::map<InstanceId, double>> ListTrafficCharges(int64_t from_ms,
                                                                  int64_t to_ms) override;

 private:
  void Complete(JsonReader& row, Instance& instance) const override;
  absl::Status CheckEnd(const HttpResponse& response) const override;
  // Ends the instance left by a create that failed with `refused`. Returns `refused`, or UNKNOWN
  // while the instance may still bill.
  absl::Status EndFailedCreate(int64_t contract, const absl::Status& refused);
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_VAST_VAST_MARKET_H_
