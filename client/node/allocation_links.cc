#include "client/node/allocation_links.h"

#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/keys/market_access.h"
#include "client/market/holdings.h"
#include "common/base/link_fault.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/provider.h"
#include "provisioning/rental/account.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAskSchedulerAgain = absl::Seconds(5);

// A link that tells when it has ended with an error.
class TellingLink : public Link {
 public:
  TellingLink(std::unique_ptr<Link> link, std::shared_ptr<std::atomic<bool>> failed)
      : link_(std::move(link)), failed_(std::move(failed)) {}
  ~TellingLink() override {
    if (!link_->status().ok()) *failed_ = true;
  }
  const AgentCalls& agent() override { return link_->agent(); }
  absl::Status status() override { return link_->status(); }
  bool NeverReached(absl::string_view node_id) override { return link_->NeverReached(node_id); }
  absl::Duration Silence() override { return link_->Silence(); }
  void Break() override { link_->Break(); }

 private:
  const std::unique_ptr<Link> link_;
  const std::shared_ptr<std::atomic<bool>> failed_;
};

class AllocationLinks : public LinkFactory {
 public:
  AllocationLinks(CommandContext& context, NodeTarget target, std::unique_ptr<LinkFactory> live,
                  std::function<std::unique_ptr<LinkFactory>(const std::string&)> kept)
      : context_(context),
        make_kept_(std::move(kept)),
        target_(std::move(target)),
        live_(std::move(live)),
        holdings_(context) {}

  absl::StatusOr<std::unique_ptr<Link>> Connect() override {
    return ConnectBy([](LinkFactory& links) { return links.Connect(); });
  }
  absl::StatusOr<std::unique_ptr<Link>> ConnectForCalls() override {
    return ConnectBy([](LinkFactory& links) { return links.ConnectForCalls(); });
  }
  absl::StatusOr<std::unique_ptr<RemoteCommand>> Run(const std::string& command) override {
    return live_->Run(command);
  }
  absl::StatusOr<std::unique_ptr<RemoteCommand>> RunStreaming(
      const std::string& command, std::function<void(absl::string_view)> on_stderr) override {
    return live_->RunStreaming(command, std::move(on_stderr));
  }
  absl::StatusOr<std::unique_ptr<AgentStream>> RunAgent(const std::string& arguments) override {
    LinkFactory* const kept = IsOver(/*suspect=*/false) ? Kept() : nullptr;
    return (kept != nullptr ? *kept : *live_).RunAgent(arguments);
  }
  absl::StatusOr<UniqueFd> Dial() override { return live_->Dial(); }
  absl::Status TryLogin() override { return live_->TryLogin(); }
  std::optional<NodePlatform> platform() override { return live_->platform(); }
  absl::Status Reach() override { return live_->Reach(); }
  absl::StatusOr<std::unique_ptr<SshSession>> OpenSshSession() override {
    return live_->OpenSshSession();
  }

 private:
  template <typename Make>
  absl::StatusOr<std::unique_ptr<Link>> ConnectBy(const Make& make) {
    absl::Status live_error;
    if (!IsOver(failed_->exchange(false))) {
      absl::StatusOr<std::unique_ptr<Link>> link = make(*live_);
      live_error = link.status();
      // A step's refusal comes after the connection.
      if (link.ok() && !(*link)->NeverReached("")) live_error = (*link)->status();
      if (live_error.ok() || !IsOver(/*suspect=*/true)) {
        if (!live_error.ok() && Waits()) return InQueue();
        if (!link.ok()) return link;
        return std::make_unique<TellingLink>(*std::move(link), failed_);
      }
    }
    LinkFactory* const kept = Kept();
    absl::Status why = kept == nullptr ? absl::NotFoundError("") : absl::OkStatus();
    // The second time with programs, where the login node has them no more.
    for (int i = 0; i < 2 && kept != nullptr; ++i) {
      absl::StatusOr<std::unique_ptr<Link>> link = make(*kept);
      if (!link.ok()) return link;
      const bool lacks_programs = (*link)->NeverReached("");
      why = (*link)->status();
      if (why.ok() && !lacks_programs) return link;
      if (!lacks_programs) break;
    }
    // With the hints for a machine that was given back.
    if (live_error.ok()) live_error = make(*live_).status();
    if (live_error.ok()) live_error = absl::UnavailableError("the allocation is over");
    return absl::IsUnavailable(live_error) ? live_error
                                           : absl::UnavailableError(live_error.message());
  }

  // True when Slurm has put the allocation back into its queue, as when another job was to have its
  // node.
  bool Waits() {
    MutexLock lock(mutex_);
    return !waits_.empty();
  }
  absl::Status InQueue() {
    MutexLock lock(mutex_);
    return WithHint(
        absl::UnavailableError(
            absl::StrCat(target_.name, " was taken from its node, requeued by Slurm: ", waits_)),
        "it goes on by itself when Slurm starts it again; gpuctl down ends it for good");
  }

  LinkFactory* Kept() {
    MutexLock lock(mutex_);
    if (kept_ == nullptr && !label_.empty()) kept_ = make_kept_(label_);
    return kept_.get();
  }

  // True when the allocation is over. `suspect`: something has failed, so the scheduler is asked.
  bool IsOver(bool suspect) {
    MutexLock lock(mutex_);
    if (over_) return true;
    if (label_.empty()) over_ = ReadLedger();
    if (over_ || !suspect) return over_;
    const absl::Duration now = context_.clock.SinceBoot();
    if (asked_.has_value() && now < *asked_ + kAskSchedulerAgain) return false;
    waits_.clear();
    over_ = AskScheduler().value_or(false);
    asked_ = context_.clock.SinceBoot();
    return over_;
  }

  // Takes the lease's label. Returns true when the ledger says that it is over.
  bool ReadLedger() {
    const absl::StatusOr<std::optional<Lease>> lease = FindLease();
    if (!lease.ok() || !lease->has_value()) return false;
    label_ = (*lease)->label;
    return (*lease)->state == LeaseState::kReleased;
  }

  absl::StatusOr<std::optional<Lease>> FindLease() {
    std::optional<Lease> found;
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.FindLedger());
    if (ledger == nullptr) return found;
    const absl::string_view instance =
        absl::StripPrefix(target_.name, absl::StrCat(target_.provider, "/"));
    ASSIGN_OR_RETURN(const std::vector<Lease> all, ledger->List(/*open_only=*/false));
    for (const Lease& lease : all) {
      if (lease.provider != target_.provider || lease.instance_id != instance) continue;
      // A cluster that was installed anew counts from 1 again.
      if (!found.has_value() || lease.intended_ms > found->intended_ms) found = lease;
    }
    return found;
  }

  absl::StatusOr<bool> AskScheduler() {
    ASSIGN_OR_RETURN(const std::optional<Lease> lease, FindLease());
    if (!lease.has_value()) return false;
    ASSIGN_OR_RETURN(const std::vector<Market> markets, holdings_.Open({target_.provider}));
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.OpenLedger());
    Provider& provider = *markets.front().provider;
    RETURN_IF_ERROR(CheckAccount(*ledger, provider, *lease));
    const absl::StatusOr<Instance> instance = provider.Describe(lease->instance_id);
    if (instance.ok() && instance->state != Instance::State::kRunning) waits_ = instance->status;
    const absl::Status& answer = instance.status();
    if (!absl::IsNotFound(answer) || !IsUnlisted(provider, lease->instance_id)) return false;
    if (lease->state == LeaseState::kRented) {
      const LeaseEnding ending = IsOwnEnd(answer) ? LeaseEnding::kGone : LeaseEnding::kPreempted;
      // Another command may be doing the same.
      (void)NoteGone(*ledger, lease->lease_id, context_.clock, context_.NowMs(), ending);
    }
    return true;
  }

  CommandContext& context_;
  const std::function<std::unique_ptr<LinkFactory>(const std::string&)> make_kept_;
  const NodeTarget target_;
  const std::unique_ptr<LinkFactory> live_;
  const std::shared_ptr<std::atomic<bool>> failed_ = std::make_shared<std::atomic<bool>>(false);
  Mutex mutex_;
  Holdings holdings_;  // used by whichever thread holds the lock
  std::unique_ptr<LinkFactory> kept_ ABSL_GUARDED_BY(mutex_);
  std::string label_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::string waits_ ABSL_GUARDED_BY(mutex_);  // Slurm's words, while it is in the queue
  std::optional<absl::Duration> asked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<LinkFactory> MakeAllocationLinks(
    CommandContext& context, NodeTarget target, std::unique_ptr<LinkFactory> live,
    std::function<std::unique_ptr<LinkFactory>(const std::string& label)> kept) {
  return std::make_unique<AllocationLinks>(context, std::move(target), std::move(live),
                                           std::move(kept));
}

}  // namespace gpuctl
