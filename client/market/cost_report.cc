#include "client/market/cost_report.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/base/exit_codes.h"
#include "client/market/lease_view.h"

namespace gpuctl {
namespace {

constexpr int64_t kDayMs = 86'400'000;

class CostSum {
 public:
  CostSum(int64_t since_ms, int64_t now_ms) : since_ms_(since_ms), now_ms_(now_ms) {}

  // Adds the part of a lease between two times under `key`.
  void Add(const std::string& key, const Lease& lease, int64_t from_ms, int64_t to_ms) {
    const int64_t from = std::max(from_ms, since_ms_), to = std::min(to_ms, now_ms_);
    const int64_t billed_ms = BilledMsBetween(lease, from, to, now_ms_);
    if (billed_ms <= 0) return;
    CostRow& row = rows_[key];
    row.key = key;
    AddTo(row, SpentBetween(lease, from, to, now_ms_), billed_ms);
  }
  std::map<std::string, CostRow>& rows() { return rows_; }

  static void AddTo(CostRow& row, const Spend& spend, int64_t billed_ms) {
    row.spend.low_usd += spend.low_usd;
    row.spend.high_usd += spend.high_usd;
    row.billed_ms += billed_ms;
    ++row.machines;
  }

 private:
  const int64_t since_ms_, now_ms_;
  std::map<std::string, CostRow> rows_;
};

void AddByRun(const Lease& lease, CostSum& sum) {
  constexpr int64_t kEver = std::numeric_limits<int64_t>::max();
  if (lease.uses.empty()) sum.Add("-", lease, 0, kEver);
  for (size_t i = 0; i < lease.uses.size(); ++i) {
    const bool last = i + 1 == lease.uses.size();
    sum.Add(lease.uses[i].run_name, lease, i == 0 ? 0 : lease.uses[i].from_ms,
            last ? kEver : lease.uses[i + 1].from_ms);
  }
}

void AddByDay(const Lease& lease, int64_t now_ms, CostSum& sum) {
  const int64_t end_ms = lease.open() ? now_ms : lease.ended_ms;
  for (int64_t day = lease.intended_ms / kDayMs; day <= end_ms / kDayMs; ++day) {
    sum.Add(absl::FormatTime("%Y-%m-%d", absl::FromUnixMillis(day * kDayMs), absl::UTCTimeZone()),
            lease, day * kDayMs, (day + 1) * kDayMs);
  }
}

}  // namespace

absl::StatusOr<CostBy> ParseCostBy(absl::string_view text) {
  if (text == "run") return CostBy::kRun;
  if (text == "gpu") return CostBy::kGpu;
  if (text == "provider") return CostBy::kProvider;
  if (text == "day") return CostBy::kDay;
  return UsageError(absl::StrCat("--by is \"", text, "\""), "it is run, gpu, provider or day");
}

CostReport SumCosts(const std::vector<Lease>& leases, CostBy by, int64_t since_ms, int64_t now_ms) {
  constexpr int64_t kEver = std::numeric_limits<int64_t>::max();
  CostSum sum(since_ms, now_ms);
  CostReport report;
  for (const Lease& lease : leases) {
    if (lease.state == LeaseState::kNotCreated) continue;
    switch (by) {
      case CostBy::kRun:
        AddByRun(lease, sum);
        break;
      case CostBy::kGpu:
        sum.Add(FormatGpus(lease.gpu_name, lease.gpu_count), lease, 0, kEver);
        break;
      case CostBy::kProvider:
        sum.Add(lease.provider, lease, 0, kEver);
        break;
      case CostBy::kDay:
        AddByDay(lease, now_ms, sum);
        break;
    }
    const int64_t billed_ms = BilledMsBetween(lease, since_ms, now_ms, now_ms);
    if (billed_ms > 0) {
      CostSum::AddTo(report.total, SpentBetween(lease, since_ms, now_ms, now_ms), billed_ms);
    }
  }
  for (auto& [key, row] : sum.rows()) report.rows.push_back(std::move(row));
  if (by == CostBy::kDay) return report;
  std::stable_sort(report.rows.begin(), report.rows.end(), [](const CostRow& a, const CostRow& b) {
    return a.spend.high_usd > b.spend.high_usd;
  });
  return report;
}

}  // namespace gpuctl
