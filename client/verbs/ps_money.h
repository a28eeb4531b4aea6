// What ps shows of money: the leases of runs, leaks, and machines that bill on.
#ifndef GPUCTL_CLIENT_VERBS_PS_MONEY_H_
#define GPUCTL_CLIENT_VERBS_PS_MONEY_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/bill/run_machines.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_status.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/ledger/listing.h"

namespace gpuctl {

// The leases and leaks from the ledger and the last listings; no market is asked.
struct Money {
  std::map<std::string, RunMachines> of_run;  // by run id: those that a listed run used last
  std::vector<Lease> open;                    // what may bill, newest first
  std::vector<MarketListing> listings;        // only their leaks

  bool IsLeak(const Lease& lease) const;
  // Returns null when nothing was rented for the run.
  const RunMachines* Of(const RunRow& row) const;
};

// Reads what concerns these runs, and what may bill.
absl::StatusOr<Money> ReadMoney(Holdings& holdings, RunStore& store,
                                const std::vector<RunRow>& rows);

// Returns the cells $/H, SPENT, CAP and STOPS of a run; dashes when nothing is rented for it.
std::vector<std::string> MoneyCells(CommandContext& context, const RunMachines* machines,
                                    const RunStatus& status);

// Returns the run's JSON with its cost.
nlohmann::ordered_json WithMoney(CommandContext& context, nlohmann::ordered_json run,
                                 const RunMachines* machines, const RunStatus& status);

// What the table of runs does not show.
struct ToldMoney {
  bool launches = false;  // a machine is being rented: its run is not in the list yet
  // The machines that bill and have no live run (docs/json.md).
  nlohmann::ordered_json bills = nlohmann::ordered_json::array();
};

// Says it on stderr, with leaks and announced prices.
absl::StatusOr<ToldMoney> TellOfMoney(CommandContext& context, Holdings& holdings, RunStore& store,
                                      const ClientPaths& paths, const Money& money);

// Says on stderr which launches of the last day were interrupted before their run began, so that no
// list of runs has them, and what their machines cost.
void TellOfCalledOff(CommandContext& context, Holdings& holdings, RunStore& store);

// Returns the time since `time_ms` for people; "-" for 0.
std::string Ago(CommandContext& context, int64_t time_ms);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_PS_MONEY_H_
