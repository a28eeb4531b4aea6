#include "client/rent/rent_node.h"

#include <algorithm>
#include <csignal>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/base/exit_codes.h"
#include "client/base/node_target.h"
#include "client/base/quantity.h"
#include "client/cluster/allocation.h"
#include "client/due/due_machines.h"
#include "client/keys/unused_logins.h"
#include "client/link/ssh_session.h"
#include "client/market/instance_target.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/node/node_check.h"
#include "client/programs/node_bundle.h"
#include "client/programs/node_programs.h"
#include "client/rent/lease_limits.h"
#include "client/rent/leave_in_queue.h"
#include "client/rent/machine_options.h"
#include "client/rent/market_expiry.h"
#include "common/base/at_once.h"
#include "common/base/backoff.h"
#include "common/base/link_fault.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/signal_pipe.h"
#include "gpuctl/v1/agent.pb.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/registry_login.h"
#include "provisioning/rental/reconcile.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kGpusWithin = absl::Seconds(20);
// The time after which a run is left to a market that has a queue, and for how long that is tried
// for a machine that was rented before.
constexpr absl::Duration kLeaveAfter = absl::Seconds(10);
constexpr absl::Duration kLeaveWithin = absl::Minutes(5);

// The nodes of an allocation that are checked at the same time.
constexpr size_t kNodesAtOnce = 8;

std::string Seconds(absl::Duration duration) { return HumanDuration(duration); }

bool IsHostKeyFault(const absl::Status& status) {
  return FaultOf(status) == LinkFault::kHostKeyChanged ||
         FaultOf(status) == LinkFault::kForeignHostKey;
}

// The state of RentNode from one offer to the next.
class NodeRenter {
 public:
  NodeRenter(CommandContext& context, Ledger& ledger, const RentedNodeRequest& request,
             std::function<bool()> interrupted)
      : context_(context),
        ledger_(ledger),
        request_(request),
        interrupted_(std::move(interrupted)) {
    hooks_.progress = [this](absl::string_view line) {
      // A second wait would tell the same.
      if (line != told_) Say(line);
      told_ = std::string(line);
    };
    hooks_.cancelled = [this] { return Cancelled(); };
  }

  absl::StatusOr<RentedNode> Run(const std::vector<Market>& markets) {
    RETURN_IF_ERROR(FindExcluded());
    for (const Offer& offer : request_.offers) {
      const Market* market = nullptr;
      for (const Market& candidate : markets) {
        if (candidate.name == offer.provider) market = &candidate;
      }
      if (market == nullptr || refused_.count(offer.provider) > 0) continue;
      if (!offer.place.empty() && excluded_.count(offer.place) > 0) {
        Say(absl::StrCat("left out: ", offer.provider, " ", offer.place, ", a bad machine lately"));
        continue;
      }
      if (paid_failures_ >= kPaidFailures) return TooManyFailures();
      RunSpec spec = *request_.spec;
      if (spec.cost_limit_usd.has_value()) *spec.cost_limit_usd -= paid_usd_;
      const absl::StatusOr<LeaseLimits> limits = LimitsWithin(
          spec, offer.price_usd_per_hour,
          request_.agreed_usd.value_or(std::numeric_limits<double>::infinity()) - paid_usd_);
      if (!limits.ok()) {
        Say(absl::StrCat("left out: ", offer.description, " at ", offer.provider, ": ",
                         limits.status().message()));
        last_ = WithHint(absl::AbortedError(limits.status().message()),
                         "the error says which cost would do; a shorter --time needs less");
        continue;
      }
      limits_ = *limits;
      absl::StatusOr<RentedNode> node = TryOffer(*market->provider, offer);
      if (node.ok()) {
        // The machine is good even if this fails; reap ends late arrivals later.
        const absl::Status late = EndLateArrivals(markets);
        if (!late.ok()) context_.Warn(Shown(late.message()));
        return node;
      }
      last_ = node.status();
      last_market_ = offer.provider;
      if (own_fault_) return last_;
      // A machine's host key says nothing of the market's key.
      if (IsHostKeyFault(last_)) return last_;
      if (absl::IsCancelled(last_) || fatal_) return ExplainMarketError(last_, offer.provider);
    }
    RETURN_IF_ERROR(EndLateArrivals(markets));
    return NothingLeft();
  }

 private:
  // A market may repeat the password in its words.
  std::string Shown(absl::string_view text) const {
    return request_.login.has_value() ? WithoutPassword(text, *request_.login) : std::string(text);
  }
  absl::Status Shown(const absl::Status& status) const {
    return request_.login.has_value() ? WithoutPassword(status, *request_.login) : status;
  }

  void Say(absl::string_view line) { context_.Say(absl::StrCat(request_.prefix, Shown(line))); }

  // Any thread may call it.
  bool Cancelled() {
    const MutexLock lock(mutex_);
    cancelled_ = cancelled_ || interrupted_();
    return cancelled_;
  }

  absl::Status FindExcluded() {
    ASSIGN_OR_RETURN(const std::vector<ExcludedPlace> places, ledger_.Excluded());
    for (const ExcludedPlace& place : places) excluded_.insert(place.place);
    return absl::OkStatus();
  }

  absl::StatusOr<RentedNode> TryOffer(Provider& provider, const Offer& offer) {
    if (!context_.make_links) {
      // They were there when the plan was made.
      const absl::Status there =
          FindNodePrograms({offer.arm64 ? NodePlatform::kLinuxAarch64 : NodePlatform::kLinuxX86_64})
              .status();
      own_fault_ = !there.ok();
      if (!there.ok()) return there;
    }
    ASSIGN_OR_RETURN(Rental rental,
                     request_.rented != nullptr ? TakeRented(offer) : RentOffer(provider, offer));
    absl::StatusOr<RentedNode> node = BringUp(provider, offer, rental);
    if (node.ok()) return node;
    // A machine that runs no job of ours is given back, whatever the cause.
    const bool bad_machine =
        absl::IsAborted(node.status()) || absl::IsDeadlineExceeded(node.status());
    // An interruption's own message says that the machine bills on. It ends here, so say only
    // "interrupted".
    const bool cancelled = absl::IsCancelled(node.status());
    const bool by_user = cancelled && (!request_.interrupted || request_.interrupted());
    Say(absl::StrCat("giving ", rental.instance.id, " back: ",
                     by_user     ? "interrupted"
                     : cancelled ? "another machine of the run could not be had"
                                 : node.status().message()));
    ReleaseOptions release;
    release.how = by_user ? kHowInterrupted : "of no use";
    release.lock = &rental.lock;
    const absl::StatusOr<Lease> released = Release(ledger_, provider, rental.lease.lease_id,
                                                   context_.clock, {hooks_.progress, {}}, release);
    if (bad_machine) ++paid_failures_;
    if (released.ok()) paid_usd_ += SpentOn(*released, context_.NowMs()).high_usd;
    if (bad_machine && !offer.place.empty()) {
      RETURN_IF_ERROR(
          ledger_.Exclude(offer.place, provider.traits().leave_out_for, node.status().message()));
      excluded_.insert(offer.place);
    }
    if (!released.ok()) {
      fatal_ = true;
      return released.status();
    }
    if (absl::IsCancelled(node.status())) {
      return absl::CancelledError(
          absl::StrCat("launch: interrupted; ", rental.instance.id, " was ended, nothing bills"));
    }
    fatal_ = !bad_machine && !absl::IsUnavailable(node.status());
    return node.status();
  }

  // Takes the machine that was rented for the run before.
  absl::StatusOr<Rental> TakeRented(const Offer& offer) {
    Rental rental = std::move(*request_.rented);
    own_fault_ = true;
    RETURN_IF_ERROR(ledger_.UsedBy(rental.lease.lease_id, request_.run_id, request_.run_name,
                                   limits_, GpusOfUse(*request_.spec)));
    ASSIGN_OR_RETURN(rental.lease, ledger_.Get(rental.lease.lease_id));
    own_fault_ = false;
    Say(absl::StrCat("using ", rental.instance.id, ", ", offer.description));
    return rental;
  }

  // Rents one offer. On an error, notes in refused_ that the market takes no request, or in fatal_
  // or own_fault_ that no offer may be tried any more.
  absl::StatusOr<Rental> RentOffer(Provider& provider, const Offer& offer) {
    Say(absl::StrCat("renting ", offer.description, " at ", offer.provider, ", ",
                     FormatUsd(offer.price_usd_per_hour), "/h"));
    const absl::Duration longest = provider.traits().expiry.longest;
    if (MostLifetime(*request_.spec) > longest) {
      refused_.insert(offer.provider);
      const std::string why =
          absl::StrCat(offer.provider, " keeps a machine for ", HumanDuration(longest),
                       " at most, and the run's time and what its results may wait are longer");
      Say(why);
      return absl::UnavailableError(why);
    }
    LeaseTerms terms;
    terms.offer = offer;
    terms.limits = limits_;
    terms.purpose = absl::StrCat("run ", request_.run_name);
    terms.run_id = request_.run_id;
    terms.run_name = request_.run_name;
    terms.run_gpus = GpusOfUse(*request_.spec);
    const absl::StatusOr<RentOptions> options =
        MachineOptions(context_, provider, offer, request_, limits_);
    if (!options.ok()) {
      own_fault_ = true;
      return options.status();
    }
    asked_end_ = options->expires_at;
    terms.host_key = options->host_key.public_key;
    RentalHooks hooks = hooks_;
    if (request_.interrupted) hooks.cancelled = request_.interrupted;
    std::shared_ptr<void> turn;
    if (request_.take_turn) {
      turn = request_.take_turn();
      if (turn == nullptr) return absl::CancelledError("not asked for: nothing was rented");
    }
    absl::StatusOr<Rental> rental = Rent(ledger_, provider, terms, *options, context_.clock, hooks);
    turn.reset();
    if (rental.ok()) return rental;
    const absl::Status& status = rental.status();
    own_fault_ = IsLedgerFault(status) || IsDiskFull(status);
    if (own_fault_) return status;
    switch (status.code()) {
      case absl::StatusCode::kCancelled:
        break;
      case absl::StatusCode::kAborted:
        Say(absl::StrCat(status.message(), "; trying the next offer"));
        break;
      case absl::StatusCode::kDeadlineExceeded: {
        // Two minutes of listing did not show the instance. Rent another only if a listing succeeds
        // now: otherwise there could be two.
        const absl::StatusOr<std::vector<Instance>> listed = provider.ListInstances();
        if (!listed.ok()) {
          fatal_ = true;
          break;
        }
        Say(absl::StrCat(status.message(), "; trying the next offer"));
        unknown_ = true;
        break;
      }
      default:
        Say(absl::StrCat(status.message(), "; no more requests go to ", offer.provider));
        refused_.insert(offer.provider);
    }
    return status;
  }

  // Brings a rented instance up: address, ssh, agent, hardware, limits; each with its deadline.
  absl::StatusOr<RentedNode> BringUp(Provider& provider, const Offer& offer, const Rental& rental) {
    const absl::Duration begin = context_.clock.SinceBoot();
    const bool may_wait = provider.traits().has_queue;
    // What is there already needs no time for its start.
    const bool was_there = request_.rented != nullptr;
    absl::StatusOr<Ready> ready = WaitReady(provider, rental.instance.id,
                                            was_there  ? absl::ZeroDuration()
                                            : may_wait ? kLeaveAfter
                                                       : provider.traits().ready_within,
                                            context_.clock, hooks_);
    const absl::Duration give_up = begin + kLeaveWithin;
    while (may_wait && absl::IsDeadlineExceeded(ready.status())) {
      absl::StatusOr<RentedNode> left = LeaveInQueue(provider, rental);
      if (left.ok() || absl::IsCancelled(left.status())) return left;
      if (was_there && context_.clock.SinceBoot() < give_up) {
        ready = WaitReady(provider, rental.instance.id, kLeaveAfter, context_.clock, hooks_);
        continue;
      }
      // Others like it wait behind it.
      if (was_there) return left;
      Say(absl::StrCat(
          "the run cannot be left in the queue, so this computer waits for its start: ",
          left.status().message()));
      ready = WaitReady(provider, rental.instance.id, provider.traits().ready_within,
                        context_.clock, hooks_);
    }
    if (!ready.ok()) return WhyNotReady(Shown(ready.status()));
    RETURN_IF_ERROR(ledger_.SetAddress(rental.lease.lease_id, *ready->instance.address));
    const int64_t ends_ms = GrantedEnd(provider, ready->instance, asked_end_,
                                       [this](absl::string_view line) { Say(line); });
    RETURN_IF_ERROR(ledger_.SetEnds(rental.lease.lease_id, ends_ms));
    if (EndsTooSoon(*request_.spec, ends_ms, context_.NowMs())) {
      return absl::AbortedError(
          absl::StrCat("it is taken back at ", FormatRfc3339(ends_ms),
                       ", before the run has had its time and its results their salvage"));
    }
    RETURN_IF_ERROR(TakePrice(offer, ready->instance, rental.lease));
    ASSIGN_OR_RETURN(const NodeTarget target,
                     TargetOfInstance(context_, rental.lease, *ready->instance.address));
    const absl::Duration addressed = context_.clock.SinceBoot();
    ASSIGN_OR_RETURN(Working first,
                     Check(provider, offer, rental.instance.id, target, /*own_line=*/true));
    RentedNode node;
    ASSIGN_OR_RETURN(std::vector<Working> others,
                     CheckOthers(provider, offer, rental.instance.id, target, node.others));
    if (Cancelled()) return absl::CancelledError("interrupted");
    ASSIGN_OR_RETURN(const Lease lease, ledger_.Get(rental.lease.lease_id));
    // Other launches may look at the machine once it is claimed.
    ASSIGN_OR_RETURN(node.use,
                     LeaseLock::TakeUse(ledger_.state_dir(), lease.lease_id, context_.clock));
    for (Working& other : others) {
      RETURN_IF_ERROR(ClaimFurtherNode(context_, *other.calls, lease, *request_.spec));
    }
    RETURN_IF_ERROR(ClaimNode(context_, ledger_, *first.calls, lease,
                              provider.traits().self_release(), *request_.spec,
                              first.hello.node_id()));
    const NodeFitness& fitness = first.fitness;
    Say(absl::StrCat(target.name, " is ready: ", Seconds(addressed - begin), " until the address, ",
                     Seconds(first.reached - addressed), " until ssh, ",
                     Seconds(first.answered - first.reached), " until the agent, ",
                     Seconds(context_.clock.SinceBoot() - first.answered), " of checks",
                     others.empty() ? "" : absl::StrCat(" of ", others.size() + 1, " nodes"), "; ",
                     fitness.cuda, "; ", fitness.volume, fitness.volume.empty() ? "" : "; ",
                     FormatBytes(static_cast<int64_t>(fitness.up_bytes_per_s)), "/s up, ",
                     FormatBytes(static_cast<int64_t>(fitness.down_bytes_per_s)), "/s down"));
    node.target = target;
    ASSIGN_OR_RETURN(node.lease, ledger_.Get(rental.lease.lease_id));
    return node;
  }

  // A machine that answers, and has what was promised.
  struct Working {
    std::unique_ptr<LinkFactory> links;
    std::unique_ptr<NodeCalls> calls;
    gpuctl::v1::HelloReply hello;
    NodeFitness fitness;
    absl::Duration reached, answered;  // when it was, since the boot
  };

  // Any thread may call it.
  absl::StatusOr<Working> Check(Provider& provider, const Offer& offer, const InstanceId& id,
                                const NodeTarget& target, bool own_line) {
    Working node;
    ASSIGN_OR_RETURN(node.links, MakeLinks(context_, target));
    RETURN_IF_ERROR(WaitForSsh(*node.links, target, [&] { AttachKey(provider, id); }));
    node.reached = context_.clock.SinceBoot();
    ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context_, *node.links, target));
    node.calls = std::make_unique<NodeCalls>(std::move(calls));
    ASSIGN_OR_RETURN(node.hello, HelloWithGpus(*node.calls, offer.gpu_count));
    node.answered = context_.clock.SinceBoot();
    PromisedNode promised;
    promised.own_line = own_line;
    promised.gpu_name = offer.gpu_name;
    promised.gpu_count = offer.gpu_count;
    promised.gpu_memory_bytes = offer.gpu_memory_bytes;
    promised.disk_bytes = request_.spec->disk_bytes;
    if (request_.volume.has_value()) promised.volume_path = request_.volume->mount_path;
    ASSIGN_OR_RETURN(const std::string cuda_check, CudaCheckFor(*node.links));
    ASSIGN_OR_RETURN(
        node.fitness,
        CheckNode(promised, node.hello,
                  {*node.links, context_.clock, [this] { return Cancelled(); }}, cuda_check));
    return node;
  }

  // Does so with the further nodes of a run on several, several at a time; all of them are reached
  // by the line of the first. `targets` gets them.
  absl::StatusOr<std::vector<Working>> CheckOthers(Provider& provider, const Offer& offer,
                                                   const InstanceId& id, const NodeTarget& first,
                                                   std::vector<NodeTarget>& targets) {
    for (int index = 1; index < request_.spec->nodes; ++index) {
      targets.push_back(NodeOfAllocation(first, index));
    }
    std::vector<absl::StatusOr<Working>> checked(targets.size());
    ForEachAtOnce(targets.size(), kNodesAtOnce, [&](size_t index) {
      checked[index] = Check(provider, offer, id, targets[index], /*own_line=*/false);
    });
    std::vector<Working> nodes;
    for (size_t index = 0; index < targets.size(); ++index) {
      if (!checked[index].ok()) return Annotate(checked[index].status(), targets[index].name);
      nodes.push_back(*std::move(checked[index]));
    }
    return nodes;
  }

  // Leaves the run to an allocation that waits for its start: what a machine is asked for is
  // checked by the scheduler then, and by the run itself.
  absl::StatusOr<RentedNode> LeaveInQueue(Provider& provider, const Rental& rental) {
    RETURN_IF_ERROR(CanBeLeft(*request_.spec));
    ASSIGN_OR_RETURN(const Instance waits, provider.Describe(rental.instance.id));
    if (!waits.address.has_value()) return absl::UnavailableError("it has no address");
    RETURN_IF_ERROR(ledger_.SetAddress(rental.lease.lease_id, *waits.address));
    RentedNode node;
    ASSIGN_OR_RETURN(node.target, TargetOfInstance(context_, rental.lease, *waits.address));
    ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context_, node.target));
    RETURN_IF_ERROR(PrepareToLeave(*links, rental.instance.id));
    ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context_, *links, node.target));
    ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply hello, calls.Hello());
    if (Cancelled()) return absl::CancelledError("interrupted");
    ASSIGN_OR_RETURN(
        node.use, LeaseLock::TakeUse(ledger_.state_dir(), rental.lease.lease_id, context_.clock));
    ASSIGN_OR_RETURN(const Lease lease, ledger_.Get(rental.lease.lease_id));
    RETURN_IF_ERROR(ClaimNode(context_, ledger_, calls, lease, provider.traits().self_release(),
                              *request_.spec, hello.node_id()));
    ASSIGN_OR_RETURN(node.lease, ledger_.Get(rental.lease.lease_id));
    return node;
  }

  // Takes the price of the machine that came. One that is dearer than its offer gets less time for
  // its results, or is given back.
  absl::Status TakePrice(const Offer& offer, const Instance& instance, const Lease& lease) {
    constexpr double kSame = 1.001;
    const double price = instance.price_usd_per_hour;
    if (price <= offer.price_usd_per_hour * kSame) return absl::OkStatus();
    const std::string dearer =
        absl::StrCat("it costs ", FormatUsd(price), "/h, and was offered for ",
                     FormatUsd(offer.price_usd_per_hour), "/h");
    const std::optional<double>& most = request_.spec->max_price_usd_per_hour;
    const std::optional<double>& agreed = request_.agreed_usd_per_hour;
    if (most.has_value() && price > *most) return absl::AbortedError(dearer);
    if (agreed.has_value() && price > *agreed * kSame) {
      return absl::AbortedError(
          absl::StrCat(dearer, ", which is more than the ", FormatUsd(*agreed), "/h of the plan"));
    }
    RunSpec spec = *request_.spec;
    if (spec.cost_limit_usd.has_value()) *spec.cost_limit_usd -= paid_usd_;
    absl::StatusOr<LeaseLimits> limits = LimitsWithin(
        spec, price,
        request_.agreed_usd.value_or(std::numeric_limits<double>::infinity()) - paid_usd_);
    if (!limits.ok()) {
      return absl::AbortedError(absl::StrCat(dearer, ": ", limits.status().message()));
    }
    Say(dearer);
    limits_ = *std::move(limits);
    RETURN_IF_ERROR(ledger_.Seen(lease.lease_id, context_.NowMs(), price).status());
    return ledger_.UsedBy(lease.lease_id, request_.run_id, request_.run_name, limits_,
                          GpusOfUse(*request_.spec));
  }

  // Returns the path of the CUDA check for the machine's platform; "" when there is none.
  static absl::StatusOr<std::string> CudaCheckFor(LinkFactory& links) {
    const NodePrograms programs = NodePrograms::Find();
    const PlatformPrograms* const found =
        programs.For(links.platform().value_or(NodePlatform::kLinuxX86_64));
    if (found == nullptr) return std::string();
    return CudaCheckOf(*found);
  }

  // Adds to the error of a machine that did not become ready what the user can do about its image.
  absl::Status WhyNotReady(const absl::Status& status) const {
    const RunSpec& spec = *request_.spec;
    // A market may say nothing of an image that it cannot pull.
    if (absl::IsDeadlineExceeded(status) && request_.login.has_value()) {
      return Annotate(status, absl::StrCat("perhaps ", spec.image, " cannot be pulled as ",
                                           DescribeLogin(*request_.login)));
    }
    if (!absl::IsFailedPrecondition(status) || spec.image.empty()) return status;
    if (!request_.login.has_value()) {
      return WithHint(status, absl::StrCat("is ", spec.image,
                                           " the image's name? A private one needs "
                                           "--registry USER:SECRET, the login at ",
                                           RegistryOfImage(spec.image)));
    }
    return WithHint(
        absl::Status(status.code(), absl::StrCat(status.message(), "; the login was that of ",
                                                 DescribeLogin(*request_.login))),
        absl::StrCat("no machine is to blame: docker login ", request_.login->server, " -u ",
                     request_.login->username, " and docker pull ", spec.image,
                     " try the user and the value of ", spec.registry.password));
  }

  // Calls Hello until the agent reports the promised number of GPUs, or until kGpusWithin is over.
  // An agent that has just started does not know its GPUs before nvidia-smi has answered once.
  absl::StatusOr<gpuctl::v1::HelloReply> HelloWithGpus(NodeCalls& calls, int promised) {
    const absl::Duration end = context_.clock.SinceBoot() + kGpusWithin;
    for (;;) {
      ASSIGN_OR_RETURN(gpuctl::v1::HelloReply hello, calls.Hello());
      if (Cancelled()) return absl::CancelledError("interrupted");
      if (hello.gpus_size() >= promised || context_.clock.SinceBoot() >= end) return hello;
      context_.clock.SleepFor(absl::Milliseconds(200));
    }
  }

  // Asks the market to put our key into the instance. A market does not always do that for a key
  // that is registered with the account. The next try of ssh shows whether it worked.
  void AttachKey(Provider& provider, const InstanceId& id) {
    const std::string refuses =
        absl::StrCat(RentedNodeName(provider.name(), id), " refuses our ssh key: ");
    std::string key;
    const auto attach = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
      ASSIGN_OR_RETURN(key, EnsureKeyPair(paths.own_key(), "gpuctl"));
      return provider.AttachKey(id, key);
    };
    const absl::Status attached = attach();
    if (!SshKeysPage(provider.name()).empty()) {
      context_.Warn(Shown(absl::StrCat(refuses, AskForSshKey(provider.name(), key))));
    } else if (absl::IsUnimplemented(attached)) {
      Say(absl::StrCat(refuses, "trying on"));
    } else if (attached.ok()) {
      Say(absl::StrCat(refuses, provider.name(), " attached it to the instance once more"));
    } else {
      Say(absl::StrCat(refuses, attached.message(), "; trying on"));
    }
  }

  // Waits until ssh works. Calls `on_refused_key` once, when a server refuses our key.
  absl::Status WaitForSsh(LinkFactory& links, const NodeTarget& target,
                          const std::function<void()>& on_refused_key) {
    bool refused = false;
    const absl::Duration end = context_.clock.SinceBoot() + request_.ssh_within;
    Backoff pauses(absl::Seconds(1), absl::Seconds(10));
    for (;;) {
      const absl::Status status = links.Reach();
      if (status.ok()) return status;
      if (Cancelled()) return absl::CancelledError("interrupted");
      if (IsHostKeyFault(status)) {
        return WithHint(status,
                        "somebody may be between here and the machine, or it did not take its "
                        "key; nothing was sent there. Another --region or --provider may do; with "
                        "GPUCTL_HOST_KEY=machine a machine makes its key, and gpuctl tells it");
      }
      if (absl::IsUnauthenticated(status) && !refused) {
        refused = true;
        on_refused_key();
      }
      if (context_.clock.SinceBoot() >= end) {
        // No machine is to blame for a key that only the user can enter.
        if (absl::IsUnauthenticated(status) && !SshKeysPage(target.provider).empty()) {
          return absl::FailedPreconditionError(
              absl::StrCat("reach ", target.name, " by ssh: gpuctl's public key is not at ",
                           SshKeysPage(target.provider), ": ", status.message()));
        }
        return absl::DeadlineExceededError(
            absl::StrCat("reach ", target.name, " by ssh: ", status.message()));
      }
      const absl::Duration until = context_.clock.SinceBoot() + pauses.Next();
      while (context_.clock.SinceBoot() < until && !Cancelled()) {
        context_.clock.SleepFor(absl::Milliseconds(200));
      }
    }
  }

  // Ends machines whose create seemed to fail and did not.
  absl::Status EndLateArrivals(const std::vector<Market>& markets) {
    if (!unknown_) return absl::OkStatus();
    std::vector<ReconcileMarket> asked;
    for (const Market& market : markets)
      asked.push_back({market.name, market.provider.get(), {}, {}});
    ReapOptions options;
    options.wait = false;
    options.reconcile.serves = [this](const std::vector<ServesQuestion>& machines) {
      return AreServed(context_, machines);
    };
    ASSIGN_OR_RETURN(const ReapReport report,
                     Reap(ledger_, asked, context_.clock, {hooks_.progress, {}}, options));
    for (const Lease& lease : report.last.unsettled) {
      context_.Warn(
          absl::StrCat(lease.label, " at ", lease.provider,
                       ": it is still not known whether it exists; gpuctl reap finds out"));
    }
    return absl::OkStatus();
  }

  static absl::Status NoMachine(const absl::Status& why, bool bad, absl::string_view hint) {
    return WithExitCode(WithHint(WithCause(why, bad ? kBadMachine : ""), hint), kExitCapacity);
  }

  // Machines of one image or one kind may all fail in the same way, and each of them costs.
  absl::Status TooManyFailures() {
    const std::string why = absl::StrCat(
        "rent a machine: ", kPaidFailures, " machines were paid for, ", FormatUsd(paid_usd_),
        " at most, and were of no use; the last: ", last_.message());
    return NoMachine(absl::AbortedError(why), /*bad=*/true,
                     "their places are left out for a while: the same launch tries others; another "
                     "--gpu, --provider or --image may do better");
  }

  absl::Status NothingLeft() {
    if (last_.ok()) {
      const absl::string_view why = "rent a machine: every offer is on a place that was bad lately";
      return NoMachine(absl::NotFoundError(why), /*bad=*/false,
                       "gpuctl offers --explain says why, gpuctl offers --retry-places forgets it");
    }
    const bool gone = absl::IsAborted(last_) || absl::IsDeadlineExceeded(last_);
    if (!gone) return WithCause(ExplainMarketError(last_, last_market_), kMarketRefuses);
    const bool bad = paid_failures_ > 0;
    const std::string why = absl::StrCat("rent a machine: none of ", request_.offers.size(),
                                         " offers could be had; the last: ", last_.message());
    return NoMachine(
        WithHint(absl::NotFoundError(why), HintOf(last_)), bad,
        bad ? "its place is left out for a while, and the same launch takes another"
            : "gpuctl offers lists others; a wider --gpu, --max-price or --region helps");
  }

  CommandContext& context_;
  Ledger& ledger_;
  const RentedNodeRequest& request_;
  const std::function<bool()> interrupted_;
  RentalHooks hooks_;
  std::set<std::string> excluded_, refused_;
  LeaseLimits limits_;  // of the offer that is tried
  // When the market was asked to end the machine of that offer.
  absl::Time asked_end_ = absl::InfiniteFuture();
  std::string told_;
  absl::Status last_;        // of the last offer that was tried
  std::string last_market_;  // that offer's
  int paid_failures_ = 0;    // machines that were rented and of no use
  double paid_usd_ = 0;      // what they cost, at most
  bool fatal_ = false;
  bool own_fault_ = false;  // this machine could not do its part; no market is to blame
  bool unknown_ = false;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::StatusOr<RentedNode> RentNode(CommandContext& context, Ledger& ledger,
                                    const std::vector<Market>& markets,
                                    const RentedNodeRequest& request) {
  if (request.cancelled)
    return NodeRenter(context, ledger, request, request.cancelled).Run(markets);
  // Ctrl-C, a closed terminal and kill all end a launch in the same orderly way.
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  absl::StatusOr<RentedNode> node = NodeRenter(context, ledger, request, [&signals] {
                                      return !signals.Take().empty();
                                    }).Run(markets);
  if (absl::IsCancelled(node.status())) signals.CatchUntilExit();
  if (node.ok() || !request.login.has_value()) return node;
  for (const Market& market : markets) RemoveUnusedLogins(context, ledger, *market.provider);
  return node;
}

}  // namespace gpuctl
