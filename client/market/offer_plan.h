// What could be rented for a run: the offers of all markets at once, in one list, with a reason for
// each that was left out.
#ifndef GPUCTL_CLIENT_MARKET_OFFER_PLAN_H_
#define GPUCTL_CLIENT_MARKET_OFFER_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/spec/run_spec.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// What the run file's resources mean to a market.
Requirements RequirementsOf(const RunSpec& spec);

struct LeftOut {
  Offer offer;
  std::string reason;  // "over 3.00 USD/h"
};

// How one market answered: its own offers are in the plan, or its error is here.
struct MarketAnswer {
  std::string market;
  absl::Status status;
  int offers = 0;  // of those that fit
};

struct OfferPlan {
  std::vector<Offer> offers;      // that fit, cheapest first
  std::vector<LeftOut> left_out;  // nearest first; only where they were asked for or nothing fits
  std::vector<MarketAnswer> markets;  // in the order asked
};

// Asks all markets at the same time, each on a thread of its own. With `explain`, and when nothing
// fits, asks once more with fewer conditions, for what is left out. A market that fails is in
// `markets` with its error; the others' offers stand.
OfferPlan AskMarkets(const std::vector<Provider*>& markets, const Requirements& requirements,
                     bool explain);

// OK when something fits. Exit code 120 when every market refused the key, 122 when none answered,
// else 121 with the nearest alternatives and the markets that are missing.
absl::Status CheckPlan(const OfferPlan& plan, const Requirements& requirements);

// The plan's offers in the order in which they are to be tried: the GPU alternatives as the user
// ranked them, each cheapest first; those that lie at one of `bad_places` left out.
std::vector<Offer> InOrderOfChoice(const OfferPlan& plan, const Requirements& requirements,
                                   const std::vector<std::string>& bad_places);

// Why `offer` does not fit, as far as it tells; "" when nothing speaks against it.
std::string WhyNot(const Requirements& requirements, const Offer& offer);

// "H100:1 or A100-80GB:2, at most 3.00 USD/h, in US or EU".
std::string DescribeRequirements(const Requirements& requirements);
// "H100-SXM:2"; "2 GPU of 24.0 GB" where the model is not known.
std::string DescribeGpus(const Offer& offer);
// "2.49 USD/h".
std::string DescribePrice(double usd_per_hour);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_OFFER_PLAN_H_
