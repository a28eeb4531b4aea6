#include "client/bill/forecast.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"

namespace gpuctl {

Forecast ForecastOf(const Lease* lease, const std::string& run_id, int64_t started_ms,
                    int64_t done_ms, int64_t now_ms) {
  Forecast forecast;
  forecast.done_ms = std::max(done_ms, now_ms);
  if (lease == nullptr) return forecast;
  const absl::Duration left = absl::Milliseconds(forecast.done_ms - now_ms);
  forecast.usd = SpentByRun(*lease, run_id, now_ms).high_usd +
                 lease->usd_per_hour() * ShareNow(*lease, run_id) * absl::ToDoubleHours(left);
  const int64_t stops_ms = JobStopsMs(*lease, started_ms, now_ms);
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

std::string ForecastPart(const Forecast& forecast, const Lease& lease, int64_t now_ms) {
  const std::string part = absl::StrReplaceAll(
      DescribeForecast(forecast, now_ms), {{", limit first", " (limit first)"}, {", ", " for "}});
  const bool others = lease.uses.size() > 1 && forecast.usd > 0 && !forecast.limited_before;
  return absl::StrCat("done ", part, others ? " of this run" : "");
}

}  // namespace gpuctl
