#include "client/node/rented_links.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/cluster/allocation.h"
#include "client/keys/market_access.h"
#include "client/market/holdings.h"
#include "client/market/instance_target.h"
#include "common/base/link_fault.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/rental/account.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAskAgain = absl::Seconds(5);

class RentedLinks : public LinkFactory {
 public:
  RentedLinks(CommandContext& context, NodeTarget target,
              std::function<std::unique_ptr<LinkFactory>(const NodeTarget&)> make)
      : context_(context), make_(std::move(make)), target_(std::move(target)), holdings_(context) {
    // The address from the run's start is valid until the ledger names another.
    (void)ReadLedger().status();
    gone_ = AskWhetherGone();
    links_ = make_(target_);
  }

  absl::StatusOr<std::unique_ptr<Link>> Connect() override {
    return Try<std::unique_ptr<Link>>([](LinkFactory& links) { return links.Connect(); });
  }
  absl::StatusOr<std::unique_ptr<Link>> ConnectForCalls() override {
    return Try<std::unique_ptr<Link>>([](LinkFactory& links) { return links.ConnectForCalls(); });
  }
  absl::StatusOr<std::unique_ptr<RemoteCommand>> Run(const std::string& command) override {
    return Try<std::unique_ptr<RemoteCommand>>(
        [&](LinkFactory& links) { return links.Run(command); });
  }
  absl::StatusOr<std::unique_ptr<RemoteCommand>> RunStreaming(
      const std::string& command, std::function<void(absl::string_view)> on_stderr) override {
    return Try<std::unique_ptr<RemoteCommand>>(
        [&](LinkFactory& links) { return links.RunStreaming(command, on_stderr); });
  }
  absl::StatusOr<std::unique_ptr<AgentStream>> RunAgent(const std::string& arguments) override {
    return Try<std::unique_ptr<AgentStream>>(
        [&](LinkFactory& links) { return links.RunAgent(arguments); });
  }
  absl::StatusOr<UniqueFd> Dial() override {
    return Try<UniqueFd>([](LinkFactory& links) { return links.Dial(); });
  }
  absl::Status TryLogin() override {
    return Try<bool>([](LinkFactory& links) -> absl::StatusOr<bool> {
             RETURN_IF_ERROR(links.TryLogin());
             return true;
           })
        .status();
  }
  std::optional<NodePlatform> platform() override { return Links()->platform(); }
  // These are for a machine that has just been rented, and for doctor: both know the address.
  absl::Status Reach() override { return Links()->Reach(); }
  absl::StatusOr<std::unique_ptr<SshSession>> OpenSshSession() override {
    return Links()->OpenSshSession();
  }

 private:
  template <typename Result, typename Call>
  absl::StatusOr<Result> Try(const Call& call) {
    if (!gone_.ok()) return gone_;
    const std::shared_ptr<LinkFactory> links = Links();
    absl::StatusOr<Result> result = call(*links);
    if (!absl::IsUnavailable(result.status()) || !Moved(links)) return result;
    return call(*Links());
  }

  std::shared_ptr<LinkFactory> Links() {
    MutexLock lock(mutex_);
    return links_;
  }

  // True when there is now another address than that of `used`.
  bool Moved(const std::shared_ptr<LinkFactory>& used) {
    MutexLock lock(mutex_);
    if (links_ != used) return true;
    const absl::Duration now = context_.clock.SinceBoot();
    if (asked_.has_value() && now < *asked_ + kAskAgain) return false;
    asked_ = now;
    const absl::StatusOr<bool> moved = AskMarket();
    if (!moved.ok() || !*moved) return false;
    old_.push_back(links_);  // its links may still be in use
    links_ = make_(target_);
    return true;
  }

  bool Take(const SshAddress& address) {
    if (address.host.empty() || (address.host == target_.host && address.port == target_.port &&
                                 address.user == target_.user)) {
      return false;
    }
    target_.host = address.host;
    target_.port = address.port;
    target_.user = address.user;
    return true;
  }

  // Returns the machine's lease, and takes its address.
  absl::StatusOr<Lease> ReadLedger() {
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.FindLedger());
    const std::string instance = InstanceIdOf(target_);
    if (ledger != nullptr) {
      ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger->List(/*open_only=*/true));
      for (const Lease& lease : open) {
        if (lease.provider != target_.provider || lease.instance_id != instance) continue;
        Take(lease.address);
        target_.given_host_key = GivenHostKey(lease);
        return lease;
      }
    }
    return absl::NotFoundError(absl::StrCat("find ", target_.name, " in the ledger"));
  }

  // Returns UNAVAILABLE when the ledger knows that the machine was given back: its address may be
  // another one's by now.
  absl::Status AskWhetherGone() {
    const absl::StatusOr<Ledger*> ledger = holdings_.FindLedger();
    if (!ledger.ok() || *ledger == nullptr) return absl::OkStatus();
    const absl::StatusOr<std::vector<Lease>> all = (*ledger)->List(/*open_only=*/false);
    if (!all.ok()) return absl::OkStatus();
    const std::string instance = InstanceIdOf(target_);
    int64_t ended_ms = -1;
    for (const Lease& lease : *all) {
      if (lease.provider != target_.provider || lease.instance_id != instance) continue;
      if (lease.state != LeaseState::kReleased) return absl::OkStatus();
      ended_ms = std::max(ended_ms, lease.ended_ms);
    }
    if (ended_ms < 0) return absl::OkStatus();
    const absl::Duration ago = absl::Milliseconds(context_.NowMs() - ended_ms);
    return WithHint(WithFault(absl::UnavailableError(absl::StrCat("the machine was given back ",
                                                                  HumanDuration(ago), " ago")),
                              LinkFault::kReleased),
                    "what was not brought home before is gone with it; gpuctl logs and gpuctl "
                    "metrics show what is here");
  }

  absl::StatusOr<bool> AskMarket() {
    const NodeTarget before = target_;
    ASSIGN_OR_RETURN(const Lease lease, ReadLedger());
    // Another gpuctl may have asked already.
    if (target_.host != before.host || target_.port != before.port) return true;
    ASSIGN_OR_RETURN(const std::vector<Market> markets, holdings_.Open({target_.provider}));
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.OpenLedger());
    RETURN_IF_ERROR(CheckAccount(*ledger, *markets.front().provider, lease));
    ASSIGN_OR_RETURN(const Instance instance,
                     markets.front().provider->Describe(lease.instance_id));
    if (!instance.address.has_value() || !Take(*instance.address)) return false;
    RETURN_IF_ERROR(ledger->SetAddress(lease.lease_id, *instance.address));
    return true;
  }

  CommandContext& context_;
  const std::function<std::unique_ptr<LinkFactory>(const NodeTarget&)> make_;
  Mutex mutex_;
  NodeTarget target_;
  Holdings holdings_;  // used by whichever thread holds the lock
  std::shared_ptr<LinkFactory> links_;
  std::vector<std::shared_ptr<LinkFactory>> old_;
  std::optional<absl::Duration> asked_;
  absl::Status gone_;  // not OK: the machine was given back
};

}  // namespace

std::unique_ptr<LinkFactory> MakeRentedLinks(
    CommandContext& context, NodeTarget target,
    std::function<std::unique_ptr<LinkFactory>(const NodeTarget&)> make) {
  return std::make_unique<RentedLinks>(context, std::move(target), std::move(make));
}

}  // namespace gpuctl
