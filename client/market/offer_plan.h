// The offers of all markets for a run, in one list, with a reason for each that was left out.
#ifndef GPUCTL_CLIENT_MARKET_OFFER_PLAN_H_
#define GPUCTL_CLIENT_MARKET_OFFER_PLAN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/keys/market_access.h"
#include "client/programs/node_programs.h"
#include "client/spec/run_spec.h"
#include "provisioning/ledger/listing.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// Converts the resources of a run file into requirements for a market.
Requirements RequirementsOf(const RunSpec& spec);

// Takes out machines with a processor that `programs` does not serve. Without any program for Linux
// it leaves the requirements as they are: then the lack is no matter of an offer.
void ServeOnly(const NodePrograms& programs, Requirements& requirements);

struct LeftOut {
  Offer offer;
  std::string reason;  // "over 3.00 USD/h"
};

// The answer of one market: its offers are in the plan, or its error is here.
struct MarketAnswer {
  std::string market;
  absl::Status status;
  int offers = 0;  // number of fitting offers
  // True when its status is that this computer's clock is wrong by the market's.
  bool other_time = false;
};

struct OfferPlan {
  std::vector<Offer> offers;          // fitting offers, cheapest first
  std::vector<LeftOut> left_out;      // nearest first; only on request or when nothing fits
  std::vector<MarketAnswer> markets;  // in the order asked
  // Set when an offer would fit if its processor were served.
  std::optional<LeftOut> unserved;
};

// Asks all markets at the same time: see AskMarketsForOffers. With `explain`, and when nothing
// fits, asks again with fewer conditions to find the offers that are left out. A market that failed
// or was left behind is in `markets` with its error; the offers of the others are kept.
// `times_path` is the file of AnswerTimes.
OfferPlan AskMarkets(const std::vector<Market>& asked, const Requirements& requirements,
                     bool explain, const std::string& times_path);

// Takes out the offers of markets by whose clock this computer's is wrong: what is written down of
// a machine rented there would have wrong times, and so wrong costs. Their answers become errors.
void LeaveOutMarketsOfOtherTimes(const std::vector<Market>& markets, OfferPlan& plan);

// Moves the offers of places that had a bad machine lately to those left out. Returns how many.
int LeaveOutBadPlaces(const std::vector<ExcludedPlace>& bad, OfferPlan& plan);

// Returns OK when something fits. Else an error: exit code 120 when every market refused the key,
// 122 when none answered, 2 with its command when only programs for the machine's processor are
// missing, else 121 with the nearest alternatives and the missing markets.
absl::Status CheckPlan(const OfferPlan& plan, const Requirements& requirements);

// Returns the plan's offers in the order in which to try them: by the user's ranking of GPU
// alternatives, then by price, cheapest first. Leaves out offers at one of `bad_places`.
std::vector<Offer> InOrderOfChoice(const OfferPlan& plan, const Requirements& requirements,
                                   const std::vector<std::string>& bad_places);

// Returns the reason why `offer` does not fit; "" when its data show none.
std::string WhyNot(const Requirements& requirements, const Offer& offer);

// Returns "H100:1 or A100-80GB:2, at most 3.00 USD/h, in US or EU".
std::string DescribeRequirements(const Requirements& requirements);
// Returns "H100-SXM:2"; "2 GPU of 24.0 GB" when the model is not known.
std::string DescribeGpus(const Offer& offer);
// Returns "2.49 USD/h".
std::string DescribePrice(double usd_per_hour);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_OFFER_PLAN_H_
