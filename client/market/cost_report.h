// Sums what the ledger's leases cost, by run, GPU, provider or day. Pure.
#ifndef GPUCTL_CLIENT_MARKET_COST_REPORT_H_
#define GPUCTL_CLIENT_MARKET_COST_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {

enum class CostBy { kRun, kGpu, kProvider, kDay };
// Parses "run", "gpu", "provider" or "day"; INVALID_ARGUMENT (a usage error) for anything else.
absl::StatusOr<CostBy> ParseCostBy(absl::string_view text);

struct CostRow {
  std::string key;  // a run's name ("-": rented for none), "2x H100", "vast", "2026-11-24"
  Spend spend;
  int64_t billed_ms = 0;  // at most, of all machines together
  int machines = 0;
};

struct CostReport {
  std::vector<CostRow> rows;  // days in their order, all others by cost, the dearest first
  CostRow total;              // without a key
};

// Sums what `leases` cost from `since_ms` until `now_ms`, in Unix milliseconds. Days are those of
// UTC. A machine that several runs used one after the other is split between them.
CostReport SumCosts(const std::vector<Lease>& leases, CostBy by, int64_t since_ms, int64_t now_ms);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_COST_REPORT_H_
