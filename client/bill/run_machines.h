// The rented machines of a run, and what they cost together: a run on several machines has one
// bill.
#ifndef GPUCTL_CLIENT_BILL_RUN_MACHINES_H_
#define GPUCTL_CLIENT_BILL_RUN_MACHINES_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/runs/run_store.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {

struct RunMachine {
  Lease lease;
  std::string run_id;  // that of the run's part that used it
};
// By rank, that of the run itself first; none where nothing is rented. The nodes of one allocation
// are one.
using RunMachines = std::vector<RunMachine>;

// Returns the machines that the run used last.
absl::StatusOr<RunMachines> MachinesOfRun(Ledger& ledger, RunStore& store, const RunRow& row);

// Returns the price of those that bill, in USD per hour.
double UsdPerHour(const RunMachines& machines);
// Returns the highest prices that they have had, together, in USD per hour.
double HighestUsdPerHour(const RunMachines& machines);
// Returns "$1.20/h", these prices for people; "no price" for an allocation, "$4.80/h for 4
// machines". Requires a machine.
std::string DescribeHighestPrice(const RunMachines& machines);
// Returns the run's own part of what they have cost.
Spend SpentByRun(const RunMachines& machines, int64_t now_ms);
// Returns all that they have cost, for whatever run.
Spend SpentOn(const RunMachines& machines, int64_t now_ms);
// Returns the sum of their cost limits, in USD; 0 where one has none.
double CostLimit(const RunMachines& machines);
// Returns the earliest of their JobStopsMs (client/bill/lease_view.h); 0: no limit.
int64_t JobStopsMs(const RunMachines& machines, int64_t started_ms, int64_t now_ms);
// True when one of them bills, or may bill.
bool AnyOpen(const RunMachines& machines);
// True when other runs used one of them, too.
bool AnyShared(const RunMachines& machines);

// Returns the cost of a run for its panel: "$2.50/h, $1.20 of $20.00 spent, stops in 4h 05m, then
// idle for 10m 00s"; of several machines "4 machines, $10.00/h, …". Requires a machine.
// `started_ms` is as in JobStopsMs; -1: the job is over, and the machines bill on. `done` says when
// the job will be done; "": nobody knows. The parts are between ", ", those that a narrow terminal
// can do without come last.
std::string CostLine(const RunMachines& machines, int64_t started_ms, int64_t now_ms,
                     const std::string& done = "");

// Adds to a run's JSON what it cost on these machines, when a limit stops it, and their leases.
// Requires a machine. `started_ms` is as above.
void AddRunCost(const RunMachines& machines, int64_t started_ms, int64_t now_ms,
                nlohmann::ordered_json& run);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BILL_RUN_MACHINES_H_
