#include "client/top/show_top.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/wake_pipe.h"
#include "client/bill/lease_view.h"
#include "client/bill/run_machines.h"
#include "client/market/instance_target.h"
#include "client/market/machine_users.h"
#include "client/terminal/console.h"
#include "client/terminal/panel_terminal.h"
#include "client/top/top_run.h"
#include "client/top/top_screen.h"
#include "common/base/status_macros.h"
#include "common/process/signal_pipe.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {
namespace {

constexpr int kLinksAtOnce = 16;
constexpr absl::Duration kRedrawEvery = absl::Milliseconds(500);
constexpr absl::Duration kReadListEvery = absl::Seconds(2);
constexpr absl::Duration kReadLeasesEvery = absl::Seconds(10);
constexpr absl::Duration kPatience = absl::Milliseconds(300);

class Top {
 public:
  Top(CommandContext& context, RunStore& store, Holdings& holdings,
      const std::function<std::vector<std::string>()>& waiting, SignalPipe signals)
      : context_(context),
        store_(store),
        holdings_(holdings),
        waiting_(waiting),
        signals_(std::move(signals)),
        terminal_(context) {}

  absl::StatusOr<int> Run() {
    terminal_.Start();
    absl::StatusOr<bool> over = false;
    while (over.ok() && !*over) over = Round();
    terminal_.Restore();
    if (!Unlink()) ExitAtOnce(context_, over.ok() ? absl::StatusOr<int>(kExitOk) : over.status());
    RETURN_IF_ERROR(over.status());
    return kExitOk;
  }

 private:
  // Returns true when the user leaves.
  absl::StatusOr<bool> Round() {
    RETURN_IF_ERROR(ReadList());
    int links = 0;
    for (const auto& run : runs_) links += run->linked() ? 1 : 0;
    std::vector<int> fds = {STDIN_FILENO};
    for (const auto& run : runs_) {
      const bool was_linked = run->linked();
      run->Step(links < kLinksAtOnce);
      links += static_cast<int>(run->linked()) - static_cast<int>(was_linked);
      for (std::string& notice : run->TakeNotices()) {
        notices_.push_back(absl::StrCat(run->row().name, ": ", notice));
      }
      if (run->wake_fd() >= 0) fds.push_back(run->wake_fd());
    }
    for (std::string& note : TakeNotes()) notices_.push_back(std::move(note));
    RETURN_IF_ERROR(Draw());
    if (pending_.empty()) WaitForNews(fds, signals_, kRedrawEvery);
    return TakeSignals() || TakeKeys();
  }

  // Adds runs that are new, those of the beginning only if they live.
  absl::Status ReadList() {
    const absl::Duration now = context_.clock.SinceBoot();
    if (now < list_at_) return absl::OkStatus();
    list_at_ = now + kReadListEvery;
    ASSIGN_OR_RETURN(std::vector<RunRow> rows, store_.List(/*live_only=*/true));
    std::map<std::string, RunRow> live;
    for (RunRow& row : rows) live.emplace(row.run_id, std::move(row));
    for (const auto& run : runs_) {
      const auto found = live.find(run->row().run_id);
      if (found != live.end()) {
        run->SetRow(found->second);
        live.erase(found);
      } else if (!run->ended()) {
        // Another gpuctl recorded its end, or removed it.
        absl::StatusOr<RunRow> row = store_.Get(run->row().run_id);
        if (row.ok()) run->SetRow(*row);
      }
    }
    for (auto& [run_id, row] : live) {
      ASSIGN_OR_RETURN(std::unique_ptr<TopRunFollower> run,
                       TopRunFollower::Make(context_, store_, std::move(row)));
      runs_.push_back(std::move(run));
    }
    std::stable_sort(runs_.begin(), runs_.end(), [](const auto& a, const auto& b) {
      return std::make_pair(a->ended(), -a->row().created_ms) <
             std::make_pair(b->ended(), -b->row().created_ms);
    });
    return ReadLeases(now);
  }

  absl::Status ReadLeases(absl::Duration now) {
    if (now < leases_at_) return absl::OkStatus();
    leases_at_ = now + kReadLeasesEvery;
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.FindLedger());
    for (const auto& run : runs_) {
      if (ledger == nullptr) break;
      ASSIGN_OR_RETURN(RunMachines machines, MachinesOfRun(*ledger, store_, run->row()));
      if (!machines.empty()) machines_.insert_or_assign(run->row().run_id, std::move(machines));
    }
    waiting_lines_ = waiting_();
    return ReadIdle();
  }

  // Finds the machines that bill and have no run.
  absl::Status ReadIdle() {
    idle_.clear();
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.FindLedger());
    if (ledger == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger->List(/*open_only=*/true));
    for (const Lease& lease : open) {
      if (lease.state != LeaseState::kRented || lease.BillsNothing()) continue;
      if (IdleSinceMs(store_, lease).value_or(0) > 0) idle_.push_back(lease);
    }
    return absl::OkStatus();
  }

  std::string Title() const {
    int live = 0;
    for (const auto& run : runs_) live += run->ended() ? 0 : 1;
    std::vector<std::string> parts = {
        live == 0 ? "nothing is running"
                  : absl::StrCat(live, live == 1 ? " run lives" : " runs live")};
    if (static_cast<size_t>(live) < runs_.size()) {
      parts.push_back(absl::StrCat(runs_.size() - static_cast<size_t>(live), " ended"));
    }
    double usd_per_hour = 0;
    std::set<std::string> counted;  // a machine may have several runs
    for (const auto& [run_id, machines] : machines_) {
      for (const auto& [lease, part] : machines) {
        if (!lease.open() || lease.BillsNothing()) continue;
        if (counted.insert(lease.lease_id).second) usd_per_hour += lease.usd_per_hour();
      }
    }
    for (const Lease& lease : idle_) {
      if (counted.insert(lease.lease_id).second) usd_per_hour += lease.usd_per_hour();
    }
    if (!counted.empty()) parts.push_back(absl::StrFormat("$%.2f/h", usd_per_hour));
    if (!machines_.empty()) {
      // A narrow screen has no room for the column.
      Spend spent;
      for (const auto& [run_id, machines] : machines_) {
        const Spend one = SpentByRun(machines, context_.NowMs());
        spent.low_usd += one.low_usd;
        spent.high_usd += one.high_usd;
      }
      parts.push_back(absl::StrCat(FormatSpend(spent), " spent"));
    }
    return absl::StrCat("gpuctl top: ", absl::StrJoin(parts, ", "),
                        "; q leaves, the runs go on; ? helps");
  }

  absl::Status Draw() {
    // What was not written goes first: the terminal may be blocked.
    if (pending_.empty()) {
      TopScreen screen;
      screen.title = Title();
      screen.help = helps_;
      screen.notices = notices_;
      screen.notices.insert(screen.notices.end(), waiting_lines_.begin(), waiting_lines_.end());
      for (const Lease& lease : idle_) {
        const std::string machine = RentedNodeName(lease.provider, lease.instance_id);
        screen.notices.push_back(absl::StrCat(machine, " is idle and bills ",
                                              FormatUsdPerHour(lease), "/h; gpuctl down ", machine,
                                              " ends it"));
      }
      for (const auto& run : runs_) {
        screen.runs.push_back(run->View());
        const auto machines = machines_.find(run->row().run_id);
        if (machines == machines_.end()) continue;
        screen.runs.back().spent = FormatSpend(SpentByRun(machines->second, context_.NowMs()));
      }
      const TerminalSize size = terminal_.size();
      pending_ = terminal_.Frame({}, RenderTop(screen, size.columns, size.rows,
                                               context_.terminal.colour, context_.terminal.utf8));
      unbegun_ = true;
    }
    if (unbegun_) terminal_.Renew(pending_);
    ASSIGN_OR_RETURN(const size_t written, context_.DrawSafe(pending_, signals_.fd()));
    if (written > 0) unbegun_ = false;
    pending_.erase(0, written);
    return absl::OkStatus();
  }

  // Returns true when one of them asks for the end.
  bool TakeSignals() {
    bool leaves = false;
    for (const int signal : signals_.Take()) {
      if (signal == SIGTSTP) {
        Suspend();
      } else if (signal != SIGWINCH) {
        leaves = true;
      }
    }
    return leaves;
  }

  // Other gpuctls must not wait for the mirrors of a stopped one.
  void Suspend() {
    terminal_.Restore();
    pending_.clear();
    if (!Unlink()) context_.Say("a connection is being made; stopping all the same");
    raise(SIGSTOP);
    terminal_.Start();
  }

  // The same.
  bool TakeKeys() {
    pollfd polled = {STDIN_FILENO, POLLIN, 0};
    if (poll(&polled, 1, 0) <= 0 || polled.revents == 0) return false;
    char keys[64];
    const ssize_t count = read(STDIN_FILENO, keys, sizeof(keys));
    if (count <= 0) return true;  // nobody can type any more
    const absl::string_view typed(keys, static_cast<size_t>(count));
    for (const char key : typed) {
      if (key == 'q' || key == 'Q') return true;
      if (key == '?' || key == 'h' || key == 'H') helps_ = !helps_;
    }
    return false;
  }

  // Ends all links: all are told before one is waited for.
  bool Unlink() {
    for (const auto& run : runs_) (void)run->Unlink(absl::ZeroDuration());
    const absl::Duration end = context_.clock.SinceBoot() + kPatience;
    bool all = true;
    for (const auto& run : runs_) {
      all = run->Unlink(std::max(absl::ZeroDuration(), end - context_.clock.SinceBoot())) && all;
    }
    return all;
  }

  CommandContext& context_;
  RunStore& store_;
  Holdings& holdings_;
  const std::function<std::vector<std::string>()>& waiting_;
  SignalPipe signals_;
  PanelTerminal terminal_;
  std::vector<std::unique_ptr<TopRunFollower>> runs_;  // live ones first, the newest first
  std::map<std::string, RunMachines> machines_;        // by run id
  std::vector<Lease> idle_;                            // bill, and have no run
  std::vector<std::string> waiting_lines_;             // of runs in batches
  std::vector<std::string> notices_;
  absl::Duration list_at_ = absl::ZeroDuration(), leases_at_ = absl::ZeroDuration();
  std::string pending_;   // of the frame, not written yet
  bool unbegun_ = false;  // nothing of it was written
  bool helps_ = false;
};

}  // namespace

absl::StatusOr<int> ShowTop(CommandContext& context, RunStore& store, Holdings& holdings,
                            const std::function<std::vector<std::string>()>& waiting) {
  ASSIGN_OR_RETURN(SignalPipe signals,
                   SignalPipe::Install({SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP}));
  return Top(context, store, holdings, waiting, std::move(signals)).Run();
}

}  // namespace gpuctl
