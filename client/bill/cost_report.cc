#include "client/bill/cost_report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/base/exit_codes.h"
#include "client/bill/lease_view.h"

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
    Part& part = parts_[key];
    part.ms += static_cast<double>(billed_ms);
    AddSpend(part.spend, SpentBetween(lease, from, to, now_ms_));
  }
  // Adds the lease divided between its runs, each under the key that `key_of` returns for it and,
  // with `idle`, for the idle time after it.
  void AddDivided(const Lease& lease,
                  const std::function<std::string(const LeaseUse& use, bool idle)>& key_of) {
    const SpendParts parts = DivideSpend(lease, since_ms_, now_ms_, now_ms_);
    for (size_t i = 0; i < lease.uses.size(); ++i) {
      const SpendParts::Part& of = parts.of_uses[i];
      AddPart(key_of(lease.uses[i], /*idle=*/false), of.own, of.own_ms);
      AddPart(key_of(lease.uses[i], /*idle=*/true), of.idle, of.idle_ms);
    }
  }
  // Counts what was added since the last call as one machine of each of its keys. With `only`, that
  // is done for these keys alone, and `total` gets their part of the machine.
  void EndMachine(const std::set<std::string>& only, CostRow& total) {
    Part all;
    for (const auto& [key, part] : parts_) {
      if (!only.empty() && only.count(key) == 0) continue;
      CostRow& row = rows_[key];
      row.key = key;
      AddTo(row, part.spend, std::llround(part.ms));
      AddSpend(all.spend, part.spend);
      all.ms += part.ms;
    }
    parts_.clear();
    if (!only.empty() && all.ms > 0) AddTo(total, all.spend, std::llround(all.ms));
  }
  std::map<std::string, CostRow>& rows() { return rows_; }

  static void AddTo(CostRow& row, const Spend& spend, int64_t billed_ms) {
    AddSpend(row.spend, spend);
    row.billed_ms += billed_ms;
    ++row.machines;
  }

 private:
  struct Part {
    Spend spend;
    double ms = 0;
  };

  static void AddSpend(Spend& sum, const Spend& more) {
    sum.low_usd += more.low_usd;
    sum.high_usd += more.high_usd;
  }
  void AddPart(const std::string& key, const Spend& spend, double ms) {
    if (ms <= 0 && spend.high_usd <= 0) return;
    Part& part = parts_[key];
    part.ms += ms;
    AddSpend(part.spend, spend);
  }

  const int64_t since_ms_, now_ms_;
  std::map<std::string, Part> parts_;  // of one machine
  std::map<std::string, CostRow> rows_;
};

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
  if (text == "batch") return CostBy::kBatch;
  if (text == "gpu") return CostBy::kGpu;
  if (text == "provider") return CostBy::kProvider;
  if (text == "day") return CostBy::kDay;
  return UsageError(absl::StrCat("--by is \"", text, "\""),
                    "it is run, batch, gpu, provider or day");
}

CostReport SumCosts(const std::vector<Lease>& leases, CostBy by, int64_t since_ms, int64_t now_ms,
                    const std::map<std::string, std::string>& batch_of,
                    const std::set<std::string>& only) {
  const auto run_key = [](const LeaseUse& use, bool idle) {
    return idle ? std::string(kIdleKey) : use.run_name;
  };
  const auto batch_key = [&batch_of](const LeaseUse& use, bool) {
    const auto found = batch_of.find(use.run_id);
    return found == batch_of.end() ? std::string("-") : found->second;
  };
  constexpr int64_t kEver = std::numeric_limits<int64_t>::max();
  CostSum sum(since_ms, now_ms);
  CostReport report;
  for (const Lease& lease : leases) {
    if (lease.state == LeaseState::kNotCreated) continue;
    switch (by) {
      case CostBy::kRun:
        sum.AddDivided(lease, run_key);
        break;
      case CostBy::kBatch:
        sum.AddDivided(lease, batch_key);
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
    const bool divides = by == CostBy::kRun || by == CostBy::kBatch;
    if (divides && lease.uses.empty()) sum.Add("-", lease, 0, kEver);
    sum.EndMachine(only, report.total);
    if (!only.empty()) continue;
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
