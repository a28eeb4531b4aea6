#include "client/node/allocation_links.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/allocation_step.h"
#include "client/base/exit_codes.h"
#include "client/cluster/allocation.h"
#include "client/cluster/allocation_ssh.h"
#include "client/keys/market_access.h"
#include "client/market/holdings.h"
#include "client/terminal/console.h"
#include "client/terminal/panel_terminal.h"
#include "common/base/link_fault.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/provider.h"
#include "provisioning/rental/account.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAskSchedulerAgain = absl::Seconds(5);
// Time for the holder of an allocation that Slurm has started.
constexpr absl::Duration kHolderWithin = absl::Seconds(20);
constexpr absl::Duration kLookForHolderEvery = absl::Seconds(1);
// A step that has not begun by then may be one of a job that Slurm has suspended.
constexpr absl::Duration kStepBeginsWithin = absl::Milliseconds(1500);

// True when an allocation's holder is not there yet, or no more.
bool HasNoHolder(const absl::Status& status) { return FaultOf(status) == LinkFault::kNotHeld; }

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

// Prints text from elsewhere as whole lines. For one thread at a time.
class LinesTo {
 public:
  explicit LinesTo(const CommandContext& context) : console_(context) {}
  ~LinesTo() { Add("\n"); }
  void Add(absl::string_view text) {
    absl::StrAppend(&text_, text);
    for (size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
      if (end > 0) console_.Note(text_.substr(0, end));
      text_.erase(0, end + 1);
    }
    if (text_.size() > kLongestLine) text_.clear();
  }

 private:
  static constexpr size_t kLongestLine = 8 << 10;
  const Console console_;
  std::string text_;
};

class AllocationLinks : public LinkFactory {
 public:
  AllocationLinks(CommandContext& context, NodeTarget target, std::unique_ptr<LinkFactory> live,
                  std::function<std::unique_ptr<LinkFactory>(const std::string&, bool)> kept,
                  Holdings::MarketOpener open_markets)
      : context_(context),
        make_kept_(std::move(kept)),
        target_(std::move(target)),
        live_(std::move(live)),
        holdings_(context, std::move(open_markets)) {}

  // While the allocation is in Slurm's queue, the first link brings what was kept of it; then there
  // is nothing to follow until it starts again.
  absl::StatusOr<std::unique_ptr<Link>> Connect() override {
    return ConnectBy([](LinkFactory& links) { return links.Connect(); }, /*once=*/true);
  }
  absl::StatusOr<std::unique_ptr<Link>> ConnectForCalls() override {
    return ConnectBy([](LinkFactory& links) { return links.ConnectForCalls(); }, /*once=*/false);
  }
  absl::StatusOr<std::unique_ptr<RemoteCommand>> Run(const std::string& command) override {
    RETURN_IF_ERROR(MayBegin());
    return Explained(live_->Run(command));
  }
  absl::StatusOr<std::unique_ptr<RemoteCommand>> RunStreaming(
      const std::string& command, std::function<void(absl::string_view)> on_stderr) override {
    RETURN_IF_ERROR(MayBegin());
    return Explained(live_->RunStreaming(command, std::move(on_stderr)));
  }
  absl::StatusOr<std::unique_ptr<AgentStream>> RunAgent(const std::string& arguments) override {
    if (IsSuspended()) return Waiting();
    // That is for one in the queue, which only the scheduler can tell.
    const bool stages = absl::StartsWith(arguments, kStageCommand);
    if (stages && !IsOver(/*suspect=*/true) && !Waits()) {
      return Runs() ? absl::FailedPreconditionError("the allocation has begun")
                    : absl::UnavailableError("Slurm does not answer");
    }
    LinkFactory* const kept = IsOver(/*suspect=*/false) ? Kept()
                              : Waits()                 ? KeptInQueue()
                                                        : nullptr;
    return kept != nullptr ? kept->RunAgent(arguments) : Explained(live_->RunAgent(arguments));
  }
  // A step serves the connection. It ends with this object.
  absl::StatusOr<UniqueFd> Dial() override {
    RETURN_IF_ERROR(MayBegin());
    ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
    ASSIGN_OR_RETURN(const AllocationSsh ssh, PrepareAllocationSsh(paths.state_dir));
    auto words = std::make_shared<LinesTo>(context_);
    ASSIGN_OR_RETURN(std::unique_ptr<RemoteCommand> step,
                     live_->RunStreaming(ServeSshScript(),
                                         [words](absl::string_view text) { words->Add(text); }));
    RETURN_IF_ERROR(WriteAll(step->fd(), ssh.preface, "to the allocation"));
    UniqueFd fd(fcntl(step->fd(), F_DUPFD_CLOEXEC, 0));
    if (!fd.valid()) return ErrnoStatus(errno, "keep a connection");
    MutexLock lock(mutex_);
    steps_.push_back(std::move(step));
    return fd;
  }
  // Also finds out whether Dial can work.
  absl::Status TryLogin() override {
    RETURN_IF_ERROR(MayBegin());
    ASSIGN_OR_RETURN(const std::unique_ptr<RemoteCommand> step, live_->Run(TrySshScript()));
    shutdown(step->fd(), SHUT_WR);
    char byte = 0;
    while (read(step->fd(), &byte, 1) > 0) {
    }
    const absl::StatusOr<int> code = step->Wait();
    if (code.ok() && *code == 0) return absl::OkStatus();
    if (code.ok() && *code == kNoSshd) {
      return WithExitCode(
          WithHint(absl::FailedPreconditionError(
                       absl::StrCat("the node of ", target_.name,
                                    " has no sshd, which ssh, forward and exec -t start there")),
                   "gpuctl exec RUN -- COMMAND needs none, nor do gpuctl cp and gpuctl pull"),
          kExitNotFound);
    }
    if (IsOver(/*suspect=*/true)) return Over();
    if (Waits()) return Waiting();
    if (!code.ok()) return code.status();
    const std::string words = step->Stderr();
    return absl::UnavailableError(absl::StrCat("start a step in ", target_.name, ": exit ", *code,
                                               ": ", absl::StripAsciiWhitespace(words)));
  }
  std::optional<NodePlatform> platform() override { return live_->platform(); }
  absl::Status Reach() override { return live_->Reach(); }
  absl::StatusOr<std::unique_ptr<SshSession>> OpenSshSession() override {
    return live_->OpenSshSession();
  }

 private:
  // Why nothing runs now. kHeld: in the queue until a person lets it go.
  enum class Wait { kInQueue, kHeld, kSuspended };

  template <typename Make>
  absl::StatusOr<std::unique_ptr<Link>> ConnectBy(const Make& make, bool once) {
    absl::Status live_error;
    if (!IsOver(failed_->exchange(false))) {
      // Whoever was told a moment ago that it waits need not try its node again. What follows it
      // asks each time.
      if (!once && WaitsForSure()) return ConnectInQueue(make, once);
      absl::StatusOr<std::unique_ptr<Link>> link = ConnectLive(make, live_error);
      // It may have been in the queue when its node was asked, and run when Slurm is.
      if (!live_error.ok() && !HasNoHolder(live_error) && HasJustBegun()) {
        link = ConnectLive(make, live_error);
      }
      // A call is not to fail because Slurm has started it a moment ago.
      const absl::Duration end = context_.clock.SinceBoot() + kHolderWithin;
      while (!once && HasNoHolder(live_error) && context_.clock.SinceBoot() < end &&
             !IsOver(/*suspect=*/true, /*again=*/true) && !Waits()) {
        context_.clock.SleepFor(kLookForHolderEvery);
        link = ConnectLive(make, live_error);
      }
      if (live_error.ok() || !IsOver(/*suspect=*/true, /*again=*/once && Waits())) {
        if (!live_error.ok() && Waits()) return ConnectInQueue(make, once);
        if (live_error.ok()) NoteLive();
        // Who follows tries it again.
        if (HasNoHolder(live_error)) {
          return WithFault(absl::UnavailableError(live_error.message()), LinkFault::kNotHeld);
        }
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
    // Another time it may be had.
    if (absl::IsUnavailable(why)) return why;
    // With the hints for a machine that was given back.
    if (live_error.ok()) live_error = make(*live_).status();
    if (live_error.ok()) live_error = absl::UnavailableError("the allocation is over");
    if (!absl::IsUnavailable(live_error)) live_error = absl::UnavailableError(live_error.message());
    return FaultOf(live_error) == LinkFault::kReleased
               ? live_error
               : WithFault(live_error, LinkFault::kNothingKept);
  }

  template <typename Make>
  absl::StatusOr<std::unique_ptr<Link>> ConnectLive(const Make& make, absl::Status& error) {
    absl::StatusOr<std::unique_ptr<Link>> link = make(*live_);
    error = link.status();
    const absl::Duration made = context_.clock.SinceBoot();
    // A step's refusal comes after the connection.
    if (link.ok() && !(*link)->NeverReached("")) error = (*link)->status();
    // That of a suspended job never comes.
    if (link.ok() && error.ok() && context_.clock.SinceBoot() - made >= kStepBeginsWithin) {
      error = MayBegin();
    }
    return link;
  }

  // Puts the scheduler's words in place of those of a step that could not begin.
  template <typename Result>
  absl::StatusOr<Result> Explained(absl::StatusOr<Result> begun) {
    if (begun.ok()) return begun;
    RETURN_IF_ERROR(MayBegin());
    return begun;
  }

  // Asks the scheduler. Returns an error where no step can begin; OK also where it does not answer.
  absl::Status MayBegin() {
    if (IsOver(/*suspect=*/true)) return Over();
    return Waits() ? Waiting() : absl::OkStatus();
  }

  // A link to what was kept of an allocation that waits in the queue.
  template <typename Make>
  absl::StatusOr<std::unique_ptr<Link>> ConnectInQueue(const Make& make, bool once) {
    // What is kept of a suspended one is still its node's to write.
    if (IsSuspended()) return Waiting();
    LinkFactory* const kept = MayRead(once) ? KeptInQueue() : nullptr;
    // The second time with programs, where the login node has them no more.
    for (int i = 0; i < 2 && kept != nullptr; ++i) {
      absl::StatusOr<std::unique_ptr<Link>> link = make(*kept);
      if (!link.ok()) break;
      const bool lacks_programs = (*link)->NeverReached("");
      if ((*link)->status().ok() && !lacks_programs) {
        SayInQueue();
        return std::make_unique<TellingLink>(*std::move(link), broken_in_queue_);
      }
      if (!lacks_programs) break;
    }
    return Waiting();
  }

  // A link that broke may have brought nothing, or not have taken a start to its end.
  bool MayRead(bool once) {
    MutexLock lock(mutex_);
    if (broken_in_queue_->exchange(false)) read_in_queue_ = false;
    return !once || !std::exchange(read_in_queue_, true);
  }
  // True when no link to its node was made yet, and the scheduler says now that it runs.
  bool HasJustBegun() {
    {
      MutexLock lock(mutex_);
      if (was_live_) return false;
    }
    if (IsOver(/*suspect=*/true, /*again=*/true)) return false;
    MutexLock lock(mutex_);
    return runs_;
  }
  void NoteLive() {
    MutexLock lock(mutex_);
    was_live_ = true;
    waits_.clear();
    how_ = Wait::kInQueue;
    read_in_queue_ = told_in_queue_ = false;
  }
  void SayInQueue() {
    {
      MutexLock lock(mutex_);
      if (std::exchange(told_in_queue_, true)) return;
    }
    if (context_.tells_what_waits && !PanelIsShown()) context_.SayOnce(Waiting().message());
  }
  // True when the scheduler has said so a moment ago.
  bool WaitsForSure() {
    MutexLock lock(mutex_);
    return !waits_.empty() && asked_.has_value() &&
           context_.clock.SinceBoot() < *asked_ + kAskSchedulerAgain;
  }
  LinkFactory* KeptInQueue() {
    MutexLock lock(mutex_);
    if (in_queue_ == nullptr && !label_.empty()) in_queue_ = make_kept_(label_, true);
    return in_queue_.get();
  }

  static absl::Status Over() {
    return WithHint(
        WithFault(absl::UnavailableError("the allocation is over"), LinkFault::kReleased),
        "gpuctl logs and gpuctl pull read what was kept of it");
  }

  // True when Slurm has put the allocation back into its queue, as when another job was to have its
  // node, or has suspended it.
  bool Waits() {
    MutexLock lock(mutex_);
    return !waits_.empty();
  }
  // True when the scheduler has said so.
  bool Runs() {
    MutexLock lock(mutex_);
    return runs_;
  }
  bool IsSuspended() {
    MutexLock lock(mutex_);
    return how_ == Wait::kSuspended;
  }
  // What tells it has just asked the scheduler: who follows the run need not ask again.
  absl::Status Waiting() {
    MutexLock lock(mutex_);
    if (how_ == Wait::kSuspended) {
      return WithHint(
          WithFault(absl::UnavailableError(
                        absl::StrCat(target_.name, " is suspended by Slurm: ", waits_)),
                    LinkFault::kSuspended),
          "it goes on when Slurm, or who suspended it, resumes it (scontrol resume); gpuctl down "
          "ends it for good");
    }
    const absl::string_view waits =
        has_begun_ ? " was taken from its node, requeued by Slurm: " : " waits in Slurm's queue: ";
    return WithHint(WithFault(absl::UnavailableError(absl::StrCat(target_.name, waits, waits_)),
                              LinkFault::kNotHeld),
                    how_ == Wait::kHeld ? "gpuctl down ends it for good"
                    : has_begun_
                        ? "it goes on by itself when Slurm starts it again; gpuctl down ends "
                          "it for good"
                        : "it begins by itself when Slurm starts it; gpuctl down ends it");
  }

  LinkFactory* Kept() {
    MutexLock lock(mutex_);
    if (kept_ == nullptr && !label_.empty()) kept_ = make_kept_(label_, false);
    return kept_.get();
  }

  // True when the allocation is over. `suspect`: something has failed, so the scheduler is asked;
  // `again`: also when it has just been asked.
  bool IsOver(bool suspect, bool again = false) {
    MutexLock lock(mutex_);
    if (over_) return true;
    if (label_.empty()) over_ = ReadLedger();
    if (over_ || !suspect) return over_;
    const absl::Duration now = context_.clock.SinceBoot();
    if (!again && asked_.has_value() && now < *asked_ + kAskSchedulerAgain) return false;
    waits_.clear();
    how_ = Wait::kInQueue;
    runs_ = false;
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
    const std::string instance = InstanceIdOf(target_);
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
    // A job that has begun has a time limit that runs.
    has_begun_ = lease->ends_ms > 0;
    ASSIGN_OR_RETURN(const std::vector<Market> markets, holdings_.Open({target_.provider}));
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.OpenLedger());
    Provider& provider = *markets.front().provider;
    const absl::StatusOr<Instance> instance =
        LookUp(*ledger, provider, *lease, context_.clock, context_.NowMs());
    if (absl::IsNotFound(instance.status())) return true;
    RETURN_IF_ERROR(instance.status());
    if (instance->state != Instance::State::kRunning || instance->suspended) {
      waits_ = instance->status;
    }
    runs_ = waits_.empty();
    if (instance->suspended) how_ = Wait::kSuspended;
    if (instance->held || instance->state == Instance::State::kFailed) how_ = Wait::kHeld;
    return false;
  }

  CommandContext& context_;
  const std::function<std::unique_ptr<LinkFactory>(const std::string&, bool)> make_kept_;
  const NodeTarget target_;
  const std::unique_ptr<LinkFactory> live_;
  const std::shared_ptr<std::atomic<bool>> failed_ = std::make_shared<std::atomic<bool>>(false);
  const std::shared_ptr<std::atomic<bool>> broken_in_queue_ =
      std::make_shared<std::atomic<bool>>(false);
  Mutex mutex_;
  Holdings holdings_;  // used by whichever thread holds the lock
  std::vector<std::unique_ptr<RemoteCommand>> steps_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<LinkFactory> kept_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<LinkFactory> in_queue_ ABSL_GUARDED_BY(mutex_);
  bool read_in_queue_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_in_queue_ ABSL_GUARDED_BY(mutex_) = false;
  std::string label_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  // Slurm's words, while it is in the queue or suspended; and which of it.
  std::string waits_ ABSL_GUARDED_BY(mutex_);
  Wait how_ ABSL_GUARDED_BY(mutex_) = Wait::kInQueue;
  bool has_begun_ ABSL_GUARDED_BY(mutex_) = true;  // as far as the ledger knows
  bool runs_ ABSL_GUARDED_BY(mutex_) = false;      // the scheduler said so when it was last asked
  bool was_live_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Duration> asked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<LinkFactory> MakeAllocationLinks(
    CommandContext& context, NodeTarget target, std::unique_ptr<LinkFactory> live,
    std::function<std::unique_ptr<LinkFactory>(const std::string& label, bool in_queue)> kept,
    Holdings::MarketOpener open_markets) {
  return std::make_unique<AllocationLinks>(context, std::move(target), std::move(live),
                                           std::move(kept), std::move(open_markets));
}

}  // namespace gpuctl
