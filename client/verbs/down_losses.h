// What down would lose with a machine: the results on it that are not at home.
#ifndef GPUCTL_CLIENT_VERBS_DOWN_LOSSES_H_
#define GPUCTL_CLIENT_VERBS_DOWN_LOSSES_H_

#include <optional>

#include "client/home/not_home.h"
#include "client/market/holdings.h"
#include "client/node/node_calls.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/verbs/down_text.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/market/types.h"
#include "provisioning/rental/reconcile.h"

namespace gpuctl {

class LossFinder {
 public:
  // `found` is what the markets showed; absent: they were not asked. All outlive it. `holdings` has
  // its ledger.
  LossFinder(CommandContext& context, RunStore& store, Holdings& holdings,
             const std::optional<Reconciliation>& found)
      : context_(context), store_(store), holdings_(holdings), found_(found) {}

  // Returns nothing when everything is home, and when the machine cannot be asked, which is told.
  NotHomeOn Find(const Lease& lease);
  // True for an allocation of a cluster whose controller did not answer: each step in it would
  // hang.
  bool SchedulerIsSilent(const Lease& lease) const;

 private:
  // Adds that of one run on it.
  void Add(const Lease& lease, const RunRow& row, NotHomeOn& found);
  // Returns what of a run is on its machine and not here; of a live one only what it has saved.
  Missing MissingOf(NodeCalls& calls, const RunRow& row);
  // Returns what the listing showed of the machine; nothing when it did not show it.
  std::optional<Instance::State> Shown(const Lease& lease) const;
  // True when the market has the machine in order, out of its sight, or stopped with its disk, so
  // that what is on it may be had later. What was asked for its end already, or was out of order
  // for as long as its results are kept, has nobody who waits for its results.
  bool MayAnswerLater(const Lease& lease);

  CommandContext& context_;
  RunStore& store_;
  Holdings& holdings_;
  const std::optional<Reconciliation>& found_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_DOWN_LOSSES_H_
