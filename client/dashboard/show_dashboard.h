// gpuctl dashboard: a page on this computer that shows all runs live.
#ifndef GPUCTL_CLIENT_DASHBOARD_SHOW_DASHBOARD_H_
#define GPUCTL_CLIENT_DASHBOARD_SHOW_DASHBOARD_H_

#include "absl/status/statusor.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

struct DashboardOptions {
  int port = 0;  // 0: a free one
  bool open = true;
};

// Serves the page until Ctrl-C, and follows the live runs meanwhile, as gpuctl top does. Prints the
// page's address and, on a terminal, opens it in the browser. Returns the exit code.
absl::StatusOr<int> ShowDashboard(CommandContext& context, RunStore& store, Holdings& holdings,
                                  const DashboardOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DASHBOARD_SHOW_DASHBOARD_H_
