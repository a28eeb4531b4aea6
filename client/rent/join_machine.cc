#include "client/rent/join_machine.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/keys/market_access.h"
#include "client/market/instance_target.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/rent/claim_node.h"
#include "client/rent/lease_limits.h"
#include "client/rent/market_expiry.h"
#include "common/base/status_macros.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {
namespace {

absl::StatusOr<NamedMachine> MachineOfLease(CommandContext& context, const Lease& lease) {
  const std::string name = RentedNodeName(lease.provider, lease.instance_id);
  if (!lease.open() || lease.state != LeaseState::kRented) {
    return WithHint(absl::FailedPreconditionError(
                        absl::StrCat("the machine ", name, " is gone, or is being ended")),
                    "gpuctl instances lists what is rented");
  }
  if (lease.address.host.empty()) {
    return WithHint(
        absl::FailedPreconditionError(absl::StrCat("the machine ", name, " has no address yet")),
        "gpuctl instances tells when it has");
  }
  NamedMachine machine;
  ASSIGN_OR_RETURN(machine.target, TargetOfInstance(context, lease, lease.address));
  machine.lease = lease;
  return machine;
}

absl::StatusOr<NamedMachine> MachineOfRun(CommandContext& context, Holdings& holdings,
                                          const RunRow& row) {
  if (!CheckMarketName(row.target.provider).ok()) return NamedMachine{row.target, std::nullopt};
  ASSIGN_OR_RETURN(const std::optional<Lease> lease, holdings.LeaseOf(row.run_id));
  if (lease.has_value()) return MachineOfLease(context, *lease);
  return absl::FailedPreconditionError(
      absl::StrCat("the machine of ", row.name, " is not in the ledger"));
}

// Returns the open lease whose instance has this name; nothing when there is none.
absl::StatusOr<std::optional<Lease>> LeaseNamed(Holdings& holdings, const std::string& name) {
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger->List(/*open_only=*/true));
  const auto found = std::find_if(open.begin(), open.end(), [&name](const Lease& lease) {
    return !lease.instance_id.empty() &&
           (name == lease.instance_id || name == RentedNodeName(lease.provider, lease.instance_id));
  });
  if (found == open.end()) return std::nullopt;
  return *found;
}

}  // namespace

absl::StatusOr<NamedMachine> FindMachineOf(CommandContext& context, Holdings& holdings,
                                           RunStore& store, const std::string& name) {
  const absl::StatusOr<RunRow> row = store.Get(name);
  if (row.ok()) return MachineOfRun(context, holdings, *row);
  if (!absl::IsNotFound(row.status())) return row.status();
  ASSIGN_OR_RETURN(const std::optional<Lease> lease, LeaseNamed(holdings, name));
  if (lease.has_value()) return MachineOfLease(context, *lease);
  RunFilter there;
  there.target_name = name;
  there.limit = 1;
  ASSIGN_OR_RETURN(const std::vector<RunRow> rows, store.List(there));
  if (!rows.empty()) return MachineOfRun(context, holdings, rows.front());
  return WithHint(
      absl::NotFoundError(absl::StrCat("--on: there is no run and no machine \"", name, "\"")),
      "gpuctl ps -a lists runs and their machines; --host names a machine by ssh");
}

absl::Status JoinMachine(CommandContext& context, Holdings& holdings, const Lease& lease,
                         const RunSpec& spec, const std::string& run_id,
                         const std::string& run_name) {
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.OpenLedger());
  std::vector<Market> markets;
  const auto find_provider = [&]() -> absl::StatusOr<Provider*> {
    ASSIGN_OR_RETURN(markets, holdings.Open({lease.provider}));
    return markets.front().provider.get();
  };
  RETURN_IF_ERROR(Prolong(*ledger, lease, spec, context.clock.Now(), find_provider));
  ASSIGN_OR_RETURN(const NodeTarget target, TargetOfInstance(context, lease, lease.address));
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, target));
  ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, target));
  ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply hello, calls.Hello());
  RETURN_IF_ERROR(ledger->UsedBy(lease.lease_id, run_id, run_name, lease.limits, GpusOfUse(spec),
                                 /*beside=*/true));
  const gpuctl::v1::NodeLimits& limits = hello.limits().limits();
  // The reserve for the end of a job is the largest that one of them needs.
  RunSpec with_grace = spec;
  with_grace.grace = std::max(spec.grace, absl::Milliseconds(limits.grace_ms()));
  const absl::Status claimed =
      ClaimNode(context, *ledger, calls, lease, limits.self_release(), with_grace, hello.node_id(),
                hello.has_limits() ? &limits : nullptr);
  // The node refuses the run.
  if (!absl::IsFailedPrecondition(claimed)) return claimed;
  RETURN_IF_ERROR(ledger->NotUsedBy(lease.lease_id, run_id, lease.limits));
  return claimed;
}

}  // namespace gpuctl
