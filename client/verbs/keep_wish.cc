#include "client/verbs/keep_wish.h"

#include <csignal>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/wake_pipe.h"
#include "client/bill/run_machines.h"
#include "client/home/nothing_to_bring.h"
#include "client/launch/after_run.h"
#include "client/launch/find_machine.h"
#include "client/launch/member_results.h"
#include "client/market/holdings.h"
#include "client/market/instance_target.h"
#include "client/node/make_links.h"
#include "client/results/checkpoint_watch.h"
#include "client/results/pull_results.h"
#include "client/terminal/console.h"
#include "client/transfer/transfer_interrupt.h"
#include "client/wishes/held_wish.h"
#include "client/wishes/wish_text.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/signal_pipe.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// The time that a transfer gets to end after a signal.
constexpr absl::Duration kWishLeavePatience = absl::Milliseconds(300);

// Does one wish.
class WishWork {
 public:
  WishWork(CommandContext& context, RunStore& store, HeldWish held, RunRow row)
      : context_(context),
        store_(store),
        held_(std::move(held)),
        row_(std::move(row)),
        place_(PlaceOf(held_.wish(), row_.name)) {}

  // Returns what was done, for people; "" when nothing was due.
  absl::StatusOr<std::string> Run() {
    const Wish& wish = held_.wish();
    ASSIGN_OR_RETURN(const auto resumptions, store_.Resumptions());
    Holdings holdings(context_);
    ASSIGN_OR_RETURN(const RunMachines machines, Machines(holdings));
    const bool gone = !machines.empty() && !AnyOpen(machines);
    const bool nothing = NothingStarted(store_, row_.run_id) && !wish.down;
    const bool over = row_.end.has_value() && resumptions.count(row_.run_id) == 0 && !nothing;
    bool kept = false;
    if (over && gone && wish.pull) {
      ASSIGN_OR_RETURN(kept, ResultsAreKept());
    }
    if (row_.end.has_value() && (!over || (gone && !kept))) {
      RETURN_IF_ERROR(held_.Done());
      return std::string(!gone                 ? ""
                         : machines.size() > 1 ? "its machines are gone already"
                                               : "its machine is gone already");
    }
    RETURN_IF_ERROR(CheckPlace());
    if (wish.pull && !NothingStarted(store_, row_.run_id)) RETURN_IF_ERROR(BringCheckpoints());
    if (!row_.end.has_value()) return Brought();
    if (!wish.down || gone) {
      RETURN_IF_ERROR(BringFiles());
      RETURN_IF_ERROR(BringMemberResults(context_, store_, row_, place_, MemberResults::kNamed));
      RETURN_IF_ERROR(held_.Done());
      return Brought();
    }
    RETURN_IF_ERROR(BringHomeAndRelease(context_, holdings, store_, row_, place_));
    RETURN_IF_ERROR(held_.Done());
    ASSIGN_OR_RETURN(const RunMachines after, Machines(holdings));
    return Done(machines, after);
  }

 private:
  absl::StatusOr<RunMachines> Machines(Holdings& holdings) {
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
    if (ledger == nullptr) return RunMachines();
    return MachinesOfRun(*ledger, store_, row_);
  }

  // True when the login node of a cluster has what was kept of an allocation that is over.
  absl::StatusOr<bool> ResultsAreKept() {
    if (row_.target.provider != kClusterProvider) return false;
    ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context_, row_.target));
    const absl::Status answer = links->ConnectForCalls().status();
    const LinkFault fault = FaultOf(answer);
    if (fault == LinkFault::kNothingKept || fault == LinkFault::kReleased) return false;
    RETURN_IF_ERROR(answer);
    return true;
  }

  // Returns what became of the machines that the run had `before`, for people.
  std::string Done(const RunMachines& before, const RunMachines& after) const {
    std::vector<std::string> gone, given_back, stay;
    for (size_t i = 0; i < after.size() && i < before.size(); ++i) {
      const Lease& lease = after[i].lease;
      std::vector<std::string>& list = lease.open()             ? stay
                                       : before[i].lease.open() ? given_back
                                                                : gone;
      list.push_back(RentedNodeName(lease.provider, lease.instance_id));
    }
    std::string text = absl::StrCat("its results are in ", place_);
    const auto add = [&text](const std::vector<std::string>& names, const char* one,
                             const char* several) {
      if (names.empty()) return;
      absl::StrAppend(&text, ", ", absl::StrJoin(names, ", "), names.size() > 1 ? several : one);
    };
    add(given_back, " was given back", " were given back");
    add(stay, " stays: other runs use it", " stay: other runs use them");
    add(gone, " was gone already, with all that had not come home",
        " were gone already, with all that had not come home");
    return text;
  }

  // The directory may be on a disk that is not there. A new one in its place would be wrong.
  absl::Status CheckPlace() const {
    if (IsDirectory(held_.wish().dir)) return absl::OkStatus();
    return WithHint(
        absl::FailedPreconditionError(absl::StrCat(
            "bring ", row_.name, " home: there is no directory ", held_.wish().dir, " any more")),
        absl::StrCat("gpuctl pull ", row_.name,
                     " --to DIR brings it elsewhere, gpuctl keep --forget ", row_.name,
                     " calls this off"));
  }

  absl::Status BringCheckpoints() {
    ASSIGN_OR_RETURN(std::unique_ptr<LinkFactory> links, MakeLinks(context_, row_.target));
    CheckpointWatchOptions options;
    options.to = place_;
    options.own_directory = true;
    options.keep = held_.wish().keep;
    options.once = true;
    CheckpointWatch watch(context_, row_, std::move(links), std::move(options));
    ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
    if (row_.end.has_value()) watch.RunIsOver();
    RETURN_IF_ERROR(watch.Start());
    while (true) {
      const CheckpointWatch::News news = watch.Take();
      for (const std::string& notice : news.notices) context_.Say(notice);
      for (const CheckpointWatch::Brought& one : news.brought) bytes_ += one.bytes;
      if (news.done) return news.missed;
      WaitForNews({watch.wake_fd()}, signals, absl::InfiniteDuration());
      if (signals.Take().empty()) continue;
      const absl::Status interrupted =
          WithExitCode(absl::CancelledError("interrupted"), kExitInterrupted);
      if (!watch.Cancel(kWishLeavePatience)) ExitAtOnce(context_, interrupted);
      return interrupted;
    }
  }

  // Brings the files that the run names, too, as after -d --pull.
  absl::Status BringFiles() {
    ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context_, row_.target));
    ASSIGN_OR_RETURN(
        const auto interrupt,
        TransferInterrupt::Install(context_, absl::StrCat("pull ", row_.name),
                                   "what has come so far stays", "the next gpuctl keep goes on"));
    PullRequest request;
    request.to = place_;
    request.own_directory = true;
    PullResults pulled;
    const absl::Status status = BringResults(context_, *links, row_, request, pulled);
    bytes_ += pulled.bytes;
    // There may be nothing beside the checkpoints.
    return absl::IsNotFound(status) ? absl::OkStatus() : status;
  }

  std::string Brought() const {
    return bytes_ > 0 ? absl::StrCat("brought ", FormatBytes(bytes_), " to ", place_) : "";
  }

  CommandContext& context_;
  RunStore& store_;
  HeldWish held_;
  const RunRow row_;
  const std::string place_;
  int64_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<int> DoWish(CommandContext& context, const std::string& wish_id) {
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  absl::StatusOr<HeldWish> held = HeldWish::Take(context, wish_id);
  std::string done;
  if (held.ok()) {
    const absl::StatusOr<RunRow> row = store->Get(held->wish().run_id);
    if (absl::IsNotFound(row.status())) {
      RETURN_IF_ERROR(held->Done());  // the run was removed from the list
    } else {
      RETURN_IF_ERROR(row.status());
      WishWork work(context, *store, *std::move(held), *row);
      ASSIGN_OR_RETURN(done, work.Run());
    }
  } else if (!absl::IsUnavailable(held.status()) && !absl::IsNotFound(held.status())) {
    return held.status();
  }
  context.PrintJson(
      {{"done", done.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(done)}});
  return kExitOk;
}

absl::Status ForgetWishes(CommandContext& context, const std::string& reference) {
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const RunRow row, store->Get(reference));
  ASSIGN_OR_RETURN(const std::vector<Wish> wishes, WishesOf(context, row.run_id));
  if (wishes.empty()) {
    return absl::NotFoundError(absl::StrCat("nothing is asked for the end of ", row.name));
  }
  for (const Wish& wish : wishes) {
    absl::StatusOr<HeldWish> held = HeldWish::Take(context, wish.wish_id);
    if (absl::IsNotFound(held.status())) continue;
    if (absl::IsUnavailable(held.status())) {
      return WithHint(absl::FailedPreconditionError(absl::StrCat(
                          "forget what was asked for ", row.name,
                          ": a gpuctl that shows the run, or gpuctl keep, does it now")),
                      "press Ctrl-C there first");
    }
    RETURN_IF_ERROR(held.status());
    RETURN_IF_ERROR(held->Done());
    context.Say(absl::StrCat("called off: ", DescribeWish(wish, row.name)));
  }
  if (context.json()) {
    context.PrintJson({{"run_id", row.run_id}, {"name", row.name}, {"forgotten", wishes.size()}});
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
