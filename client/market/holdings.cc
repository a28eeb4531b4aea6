#include "client/market/holdings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/market/machine_users.h"
#include "client/runs/run_store.h"
#include "common/base/machine_id.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kNoteEvery = absl::Seconds(2);

LedgerHome HomeOf(const ClientPaths& paths) {
  LedgerHome home;
  // The system's id is not written down, only its fingerprint.
  home.machine = Sha256HexOf(absl::StrCat("gpuctl machine ", MachineId())).substr(0, 16);
  home.owner_dir = JoinPath(paths.config_dir, "owners");
  return home;
}

std::function<std::optional<absl::Duration>()> SkewOf(const Market& market) {
  return [skew = market.skew] { return skew == nullptr ? std::nullopt : skew->Get(); };
}

// True when gpuctl recorded the end by itself, and the run may be found alive.
bool MayBeUndone(const RunEnd& end) {
  return end.source == EndSource::kGpuctl && end.state == gpuctl::v1::JOB_STATE_LOST &&
         !IsPreempted(end);
}

}  // namespace

Holdings::Holdings(CommandContext& context, MarketOpener open_markets)
    : context_(&context), open_markets_(std::move(open_markets)) {
  if (open_markets_) return;
  open_markets_ = [&context](const std::vector<std::string>& names) {
    return OpenMarkets(context, names);
  };
}

Holdings::Holdings(CommandContext& context, std::unique_ptr<Ledger> ledger,
                   std::vector<Market> markets)
    : Holdings(context) {
  ledger_ = std::move(ledger);
  markets_ = std::move(markets);
  for (const Market& market : markets_) {
    reconcile_.push_back({market.name, market.provider.get(), absl::OkStatus(), SkewOf(market)});
  }
}

absl::StatusOr<std::unique_ptr<Ledger>> Holdings::OpenOrCopy(bool create) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context_->Paths());
  const LedgerHome home = HomeOf(paths);
  const auto open = [&] {
    return create ? Ledger::Open(paths.state_dir, context_->clock, home)
                  : Ledger::OpenIfThere(paths.state_dir, context_->clock, home);
  };
  absl::StatusOr<std::unique_ptr<Ledger>> ledger = open();
  absl::Status sound = ledger.status();
  if (only_ends_ && ledger.ok() && *ledger != nullptr) sound = (*ledger)->Check();
  if (absl::IsDataLoss(sound)) {
    if (ledger.ok()) ledger->reset();
    ASSIGN_OR_RETURN(const std::string aside, Ledger::SetAside(paths.state_dir, context_->clock));
    if (!aside.empty()) {
      context_->Warn(
          absl::StrCat(sound.message(), "; it was set aside as ", aside,
                       ", a new one begins, and gpuctl reap asks the machines that bill"));
    }
    return Ledger::Open(paths.state_dir, context_->clock, home);
  }
  if (ledger.ok() || !only_ends_) return ledger;
  absl::StatusOr<std::unique_ptr<Ledger>> copy =
      Ledger::OpenCopy(paths.state_dir, context_->clock, home);
  if (!copy.ok()) return ledger;
  context_->Warn(
      absl::StrCat("what is ended cannot be written down now: ", ledger.status().message()));
  return copy;
}

void Holdings::NoteEnds() {
  const absl::Duration now = context_->clock.SinceBoot();
  if (ledger_ == nullptr || (noted_.has_value() && now - *noted_ < kNoteEvery)) return;
  noted_ = now;
  // What cannot be noted now is noted by a later command; no verb fails for it.
  const absl::StatusOr<std::vector<std::string>> using_runs = ledger_->UsingRuns();
  if (!using_runs.ok() || using_runs->empty()) return;
  const absl::StatusOr<RunStore*> runs = context_->Store();
  if (!runs.ok()) return;
  for (const std::string& run_id : *using_runs) {
    const absl::StatusOr<RunRow> row = UserOf(**runs, run_id);
    if (!row.ok() || !row->end.has_value() || MayBeUndone(*row->end)) continue;
    if (!ledger_->UseEnded(run_id, row->end->ended_ms).ok()) return;
  }
}

absl::StatusOr<Ledger*> Holdings::OpenLedger() {
  if (ledger_ == nullptr) {
    ASSIGN_OR_RETURN(ledger_, OpenOrCopy(/*create=*/true));
  }
  NoteEnds();
  return ledger_.get();
}

absl::StatusOr<Ledger*> Holdings::FindLedger() {
  if (ledger_ == nullptr) {
    ASSIGN_OR_RETURN(ledger_, OpenOrCopy(/*create=*/false));
  }
  NoteEnds();
  return ledger_.get();
}

absl::StatusOr<std::optional<Lease>> Holdings::LeaseOf(absl::string_view run_id) {
  ASSIGN_OR_RETURN(Ledger* const ledger, FindLedger());
  if (ledger == nullptr) return std::nullopt;
  return ledger->OfRun(run_id);
}

void Holdings::NoteName(const RunRow& row) {
  const absl::StatusOr<Ledger*> ledger = OpenLedger();
  if (ledger.ok()) (void)(*ledger)->NameRun(row.run_id, row.name);
}

absl::Status Holdings::OpenAllMarkets() {
  if (!reconcile_.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(OpenLedger().status());
  ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger_->List(/*open_only=*/true));
  std::vector<ReconcileMarket> unusable;
  for (const std::string& name : RentalNames()) {
    absl::StatusOr<std::vector<Market>> market = open_markets_({name});
    const bool needed = std::any_of(open.begin(), open.end(),
                                    [&name](const Lease& l) { return l.provider == name; });
    // A cluster is in the settings because gpuctl is to use it.
    const bool asked = needed || name == kClusterProvider;
    if (market.ok() && market->front().borrowed_key && !asked) continue;
    if (market.ok()) {
      markets_.push_back(std::move(market->front()));
      reconcile_.push_back(
          {name, markets_.back().provider.get(), absl::OkStatus(), SkewOf(markets_.back())});
      continue;
    }
    if (needed || !absl::IsUnauthenticated(market.status())) {
      unusable.push_back({name, nullptr, market.status(), {}});
    }
  }
  if (markets_.empty() && unusable.empty()) return open_markets_({}).status();
  reconcile_.insert(reconcile_.end(), unusable.begin(), unusable.end());
  return absl::OkStatus();
}

absl::StatusOr<Provider*> Holdings::Find(absl::string_view name) const {
  for (const ReconcileMarket& market : reconcile_) {
    if (market.name != name) continue;
    if (market.provider == nullptr) return market.unusable;
    return market.provider;
  }
  return WithExitCode(
      WithHint(absl::UnauthenticatedError(absl::StrCat("there is no key for ", name)),
               absl::StrCat("gpuctl login ", name)),
      kExitCredentials);
}

}  // namespace gpuctl
