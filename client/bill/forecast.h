// When a run will be done, and what it will have cost by then. Pure.
#ifndef GPUCTL_CLIENT_BILL_FORECAST_H_
#define GPUCTL_CLIENT_BILL_FORECAST_H_

#include <cstdint>
#include <string>

#include "client/bill/run_machines.h"

namespace gpuctl {

struct Forecast {
  int64_t done_ms = 0;          // of the last step, in Unix milliseconds
  double usd = 0;               // the run's share of its machines' cost until then; 0: not rented
  bool limited_before = false;  // a limit stops the job earlier
};

// Forecasts a run that reaches its last step at `done_ms`. `machines` are those that are rented for
// it, if any; `started_ms` as in JobStopsMs.
Forecast ForecastOf(const RunMachines& machines, int64_t started_ms, int64_t done_ms,
                    int64_t now_ms);

// Returns "in 1h 10m, $2.31", "in 1h 10m", or "in 9h 00m, limit first".
std::string DescribeForecast(const Forecast& forecast, int64_t now_ms);
// Returns the same as one part of a panel's line of money: "done in 30m 00s for $3.00", "done in 5h
// 00m (limit first)". On a machine that others used, too, the cost is that "of this run".
std::string ForecastPart(const Forecast& forecast, const RunMachines& machines, int64_t now_ms);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BILL_FORECAST_H_
