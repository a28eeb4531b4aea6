// Markets asked for their offers at the same time, and those that do not answer left behind.
#ifndef GPUCTL_CLIENT_KEYS_ASK_MARKETS_H_
#define GPUCTL_CLIENT_KEYS_ASK_MARKETS_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/base/paths.h"
#include "provisioning/market/provider.h"

namespace gpuctl {

// How long each market usually takes to answer, kept in a file. A lost file is no loss.
class AnswerTimes {
 public:
  // Reads `path`; "" keeps nothing.
  explicit AnswerTimes(std::string path);
  // Returns nothing for a market that never answered.
  std::optional<absl::Duration> Usual(absl::string_view market) const;
  // Longer times count at once, shorter ones little by little.
  void Note(absl::string_view market, absl::Duration took);
  // Writes what was noted, if it can.
  void Keep() const;

 private:
  const std::string path_;
  std::vector<std::pair<std::string, absl::Duration>> usual_;
};

std::string AnswerTimesPath(const ClientPaths& paths);

// Returns how long after the question a market may answer at most, once another one has answered:
// a second longer than the slowest answer so far, or half as long again as it usually takes. One
// that is not known yet has ten seconds. GPUCTL_MARKET_PATIENCE (a duration) is the least.
absl::Duration PatienceFor(std::optional<absl::Duration> usual, absl::Duration slowest_answer);

// An error (usage) when GPUCTL_MARKET_PATIENCE is set and no duration.
absl::Status CheckMarketPatience();

using OffersAnswer = absl::StatusOr<std::vector<Offer>>;

// Asks each market on a thread of its own; returns their answers in the same order.
// DEADLINE_EXCEEDED for one that was left behind: see PatienceFor. While none has offers to list,
// it waits for all, as long as their requests last. A thread that is left behind keeps its market.
std::vector<OffersAnswer> AskMarketsForOffers(const std::vector<std::shared_ptr<Provider>>& markets,
                                              const Requirements& requirements, AnswerTimes& times);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_KEYS_ASK_MARKETS_H_
