#include "client/bill/run_machines.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

template <typename SpendOf>
Spend Sum(const RunMachines& machines, SpendOf of) {
  Spend sum;
  for (const RunMachine& machine : machines) {
    const Spend one = of(machine);
    sum.low_usd += one.low_usd;
    sum.high_usd += one.high_usd;
  }
  return sum;
}

}  // namespace

absl::StatusOr<RunMachines> MachinesOfRun(Ledger& ledger, RunStore& store, const RunRow& row) {
  RunMachines machines;
  const auto add = [&](const std::string& run_id) -> absl::Status {
    ASSIGN_OR_RETURN(std::optional<Lease> lease, ledger.OfRun(run_id));
    if (lease.has_value()) machines.push_back({*std::move(lease), run_id});
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(add(row.run_id));
  ASSIGN_OR_RETURN(const std::vector<std::string> members, store.MemberIds(row.run_id));
  for (const std::string& run_id : members) RETURN_IF_ERROR(add(run_id));
  return machines;
}

double UsdPerHour(const RunMachines& machines) {
  double sum = 0;
  for (const RunMachine& machine : machines) {
    if (machine.lease.open()) sum += machine.lease.usd_per_hour();
  }
  return sum;
}

double HighestUsdPerHour(const RunMachines& machines) {
  double sum = 0;
  for (const RunMachine& machine : machines) sum += machine.lease.HighestUsdPerHour();
  return sum;
}

std::string DescribeHighestPrice(const RunMachines& machines) {
  if (machines.size() == 1) return DescribeHighestPrice(machines.front().lease);
  return absl::StrCat(FormatUsdPerHour(HighestUsdPerHour(machines)), "/h for ", machines.size(),
                      " machines");
}

Spend SpentByRun(const RunMachines& machines, int64_t now_ms) {
  return Sum(machines, [now_ms](const RunMachine& machine) {
    return SpentByRun(machine.lease, machine.run_id, now_ms);
  });
}

Spend SpentOn(const RunMachines& machines, int64_t now_ms) {
  return Sum(machines,
             [now_ms](const RunMachine& machine) { return SpentOn(machine.lease, now_ms); });
}

double CostLimit(const RunMachines& machines) {
  double sum = 0;
  for (const RunMachine& machine : machines) {
    if (machine.lease.limits.cost_usd <= 0) return 0;
    sum += machine.lease.limits.cost_usd;
  }
  return sum;
}

int64_t JobStopsMs(const RunMachines& machines, int64_t started_ms, int64_t now_ms) {
  int64_t first_ms = 0;
  for (const RunMachine& machine : machines) {
    const int64_t one_ms = JobStopsMs(machine.lease, started_ms, now_ms);
    if (one_ms != 0) first_ms = first_ms == 0 ? one_ms : std::min(first_ms, one_ms);
  }
  return first_ms;
}

bool AnyOpen(const RunMachines& machines) {
  return std::any_of(machines.begin(), machines.end(),
                     [](const RunMachine& machine) { return machine.lease.open(); });
}

bool AnyShared(const RunMachines& machines) {
  return std::any_of(machines.begin(), machines.end(),
                     [](const RunMachine& machine) { return machine.lease.uses.size() > 1; });
}

std::string CostLine(const RunMachines& machines, int64_t started_ms, int64_t now_ms,
                     const std::string& done) {
  const Lease& first = machines.front().lease;
  const std::string count = machines.size() > 1 ? absl::StrCat(machines.size(), " machines, ") : "";
  const std::string spent = FormatSpend(SpentByRun(machines, now_ms));
  if (!AnyOpen(machines)) return absl::StrCat(count, "given back, ", spent, " spent");
  // One that bills nothing has a price all the same.
  const std::string price =
      machines.size() > 1 ? FormatUsdPerHour(UsdPerHour(machines)) : FormatUsdPerHour(first);
  std::string line = absl::StrCat(count, price, "/h, ", spent);
  // The limit is the machine's, for all its runs together.
  if (AnyShared(machines)) {
    absl::StrAppend(&line, " by this run, ", FormatSpend(SpentOn(machines, now_ms)));
  }
  if (CostLimit(machines) > 0) absl::StrAppend(&line, " of ", FormatUsd(CostLimit(machines)));
  line += " spent";
  const auto in = [now_ms](int64_t time_ms) {
    return HumanDuration(absl::Milliseconds(std::max<int64_t>(0, time_ms - now_ms)));
  };
  if (started_ms < 0) {
    line += ", bills on";
  } else if (const int64_t stops_ms = JobStopsMs(machines, started_ms, now_ms); stops_ms != 0) {
    absl::StrAppend(&line, ", stops in ", in(stops_ms));
  }
  if (!done.empty()) absl::StrAppend(&line, ", ", done);
  if (first.limits.idle_s > 0) {
    absl::StrAppend(&line, started_ms < 0 ? " until idle for " : ", then idle for ",
                    HumanDuration(absl::Seconds(first.limits.idle_s)));
  }
  return line;
}

void AddRunCost(const RunMachines& machines, int64_t started_ms, int64_t now_ms,
                nlohmann::ordered_json& run) {
  // The cost is known no better than to a millionth of a dollar.
  const auto micro = [](double usd) { return std::round(usd * 1e6) / 1e6; };
  const Spend spend = SpentByRun(machines, now_ms);
  const int64_t stops_ms = started_ms < 0 ? 0 : JobStopsMs(machines, started_ms, now_ms);
  run["spent_low_usd"] = micro(spend.low_usd);
  run["spent_high_usd"] = micro(spend.high_usd);
  run["stops"] =
      stops_ms == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(FormatRfc3339(stops_ms));
  run["lease"] = LeaseToJson(machines.front().lease, now_ms);
  if (machines.size() == 1) return;
  run["other_leases"] = nlohmann::ordered_json::array();
  for (size_t i = 1; i < machines.size(); ++i) {
    run["other_leases"].push_back(LeaseToJson(machines[i].lease, now_ms));
  }
}

}  // namespace gpuctl
