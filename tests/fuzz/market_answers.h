// A market that answers everything with one body, for the fuzzers of the adapters.
#ifndef GPUCTL_TESTS_FUZZ_MARKET_ANSWERS_H_
#define GPUCTL_TESTS_FUZZ_MARKET_ANSWERS_H_

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "provisioning/http/http.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/markets.h"

namespace gpuctl {

class OneBodyHttp : public Http {
 public:
  // `knows_account`: a question about the account has a good answer, so that the body is read as
  // the answer to those that follow.
  explicit OneBodyHttp(absl::string_view body, bool knows_account = true)
      : knows_account_(knows_account) {
    response_.body = std::string(body);
  }
  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    if (knows_account_ && absl::EndsWith(request.url, "/api/whoami-v2")) {
      HttpResponse account;
      account.status = 200;
      account.body = R"({"id":"u1","name":"ada"})";
      return account;
    }
    // Pages without an end stop at their limit; the fuzzer should not wait for it.
    if (++sent_ > 20) return absl::UnavailableError("enough");
    response_.status = 200;
    return response_;
  }

 private:
  const bool knows_account_;
  HttpResponse response_;
  int sent_ = 0;
};

inline void CheckMarketInstance(const Instance& instance) {
  if (instance.id.empty() || instance.gpu_count < 0 || instance.gpu_count > 1024) abort();
  if (instance.address.has_value() != (instance.state == Instance::State::kRunning)) abort();
  if (!instance.address.has_value()) return;
  if (!IsSafeHost(instance.address->host) || !IsSafeUser(instance.address->user)) abort();
  if (instance.address->port < 1 || instance.address->port > 65535) abort();
}

// Reads `body` as the answer to every question that the market's adapter asks.
inline void CheckMarketAnswers(absl::string_view market, absl::string_view body) {
  const auto ask = [&] {
    return *MakeMarket(market, {"http://market.test", "key"}, std::make_shared<OneBodyHttp>(body));
  };
  if (const auto one = ask()->Describe("1"); one.ok()) CheckMarketInstance(*one);
  if (const auto all = ask()->ListInstances(); all.ok()) {
    for (const Instance& instance : *all) CheckMarketInstance(instance);
  }
  if (const auto offers = ask()->ListOffers({}); offers.ok()) {
    for (const Offer& offer : *offers) {
      if (offer.gpu_count < 0 || offer.gpu_memory_bytes < 0 || offer.disk_bytes < 0) abort();
    }
  }
  if (const auto volumes = ask()->ListVolumes(); volumes.ok()) {
    for (const Volume& volume : *volumes) {
      if (volume.id.empty()) abort();
    }
  }
  (void)ask()->Terminate("1");
  const auto account = (*MakeMarket(market, {"http://market.test", "key"},
                                    std::make_shared<OneBodyHttp>(body, false)))
                           ->AccountId();
  if (account.ok() && account->empty()) abort();
}

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_FUZZ_MARKET_ANSWERS_H_
