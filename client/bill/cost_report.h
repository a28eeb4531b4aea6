// Sums what the ledger's leases cost, by run, batch, GPU, provider or day. Pure.
#ifndef GPUCTL_CLIENT_BILL_COST_REPORT_H_
#define GPUCTL_CLIENT_BILL_COST_REPORT_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {

enum class CostBy { kRun, kBatch, kGpu, kProvider, kDay };
// Parses "run", "batch", "gpu", "provider" or "day"; INVALID_ARGUMENT (a usage error) for anything
// else.
absl::StatusOr<CostBy> ParseCostBy(absl::string_view text);

// By run: the time in which none of several runs of a machine used it.
inline constexpr char kIdleKey[] = "(idle)";

struct CostRow {
  // A run's or batch's name ("-": for none), kIdleKey, "2x H100", "vast", "2026-11-24".
  std::string key;
  Spend spend;
  int64_t billed_ms = 0;  // at most, of all machines together
  int machines = 0;
};

struct CostReport {
  std::vector<CostRow> rows;  // days in their order, all others by cost, the dearest first
  CostRow total;              // without a key
};

// Sums what `leases` cost from `since_ms` until `now_ms`, in Unix milliseconds. Days are those of
// UTC. A machine that several runs used is divided between them, as DivideSpend does; the rows add
// up to the total. By batch, the idle time after a batch's run is the batch's, too. `batch_of` has
// the batch's name of each run id that is of one. With `only`, rows and total have these keys
// alone.
CostReport SumCosts(const std::vector<Lease>& leases, CostBy by, int64_t since_ms, int64_t now_ms,
                    const std::map<std::string, std::string>& batch_of = {},
                    const std::set<std::string>& only = {});

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BILL_COST_REPORT_H_
