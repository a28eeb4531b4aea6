#include "client/bill/forecast.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"

namespace gpuctl {

Forecast ForecastOf(const RunMachines& machines, int64_t started_ms, int64_t done_ms,
                    int64_t now_ms) {
  Forecast forecast;
  forecast.done_ms = std::max(done_ms, now_ms);
  const double hours = absl::ToDoubleHours(absl::Milliseconds(forecast.done_ms - now_ms));
  forecast.usd = SpentByRun(machines, now_ms).high_usd;
  for (const auto& [lease, run_id] : machines) {
    forecast.usd += lease.usd_per_hour() * ShareNow(lease, run_id) * hours;
  }
  const int64_t stops_ms = JobStopsMs(machines, started_ms, now_ms);
  forecast.limited_before = stops_ms != 0 && stops_ms < forecast.done_ms;
  return forecast;
}

std::string DescribeForecast(const Forecast& forecast, int64_t now_ms) {
  const absl::Duration left = absl::Milliseconds(std::max<int64_t>(0, forecast.done_ms - now_ms));
  // Rounded as what is spent already, which stands beside it and must not look like more.
  const std::string usd = FormatSpend({forecast.usd, forecast.usd});
  return absl::StrCat("in ", HumanDuration(left),
                      forecast.limited_before ? ", limit first"
                      : forecast.usd > 0      ? absl::StrCat(", ", usd)
                                              : "");
}

std::string ForecastPart(const Forecast& forecast, const RunMachines& machines, int64_t now_ms) {
  const std::string part = absl::StrReplaceAll(
      DescribeForecast(forecast, now_ms), {{", limit first", " (limit first)"}, {", ", " for "}});
  const bool others = AnyShared(machines) && forecast.usd > 0 && !forecast.limited_before;
  return absl::StrCat("done ", part, others ? " of this run" : "");
}

}  // namespace gpuctl
