// gpuctl attach: show a run live.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/due/node_terms.h"
#include "client/follow/catch_up.h"
#include "client/follow/members.h"
#include "client/keep/keep_status.h"
#include "client/launch/after_run.h"
#include "client/launch/member_results.h"
#include "client/market/holdings.h"
#include "client/market/price_rises.h"
#include "client/node/make_links.h"
#include "client/results/checkpoint_watch.h"
#include "client/results/pull_files.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/runs/run_store.h"
#include "client/show/show_run.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "client/wishes/held_wish.h"
#include "client/wishes/wish_text.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// Time to bring what is missing of a run that has ended.
constexpr absl::Duration kAttachPatience = absl::Seconds(10);

// What attach does for its run beside showing it.
class AttachedWishes {
 public:
  AttachedWishes(CommandContext& context, const RunRow& row, bool kept)
      : context_(context), row_(row), kept_(kept) {}

  // Takes over what another gpuctl was told and does not do any more, and adds --pull. Returns what
  // comes home meanwhile.
  absl::StatusOr<std::optional<CheckpointWatchOptions>> Take(const std::string& pull) {
    ASSIGN_OR_RETURN(held_, TakeWishesOf(context_, row_.run_id));
    for (const HeldWish& one : held_) {
      context_.Say(absl::StrCat("as was asked before: ", DescribeWish(one.wish(), row_.name)));
    }
    if (!pull.empty()) RETURN_IF_ERROR(Add(pull));
    ASSIGN_OR_RETURN(std::optional<CheckpointWatchOptions> options, ParsePullFlag(pull, row_.name));
    const auto pulls = std::find_if(held_.begin(), held_.end(),
                                    [](const HeldWish& one) { return one.wish().pull; });
    if (!pull.empty() || pulls == held_.end()) return options;
    options.emplace();
    options->to = PlaceOf(pulls->wish(), row_.name);
    options->own_directory = true;
    options->keep = pulls->wish().keep;
    return options;
  }

  // Does what is to be done at the end, when `row` has ended; else says what becomes of it.
  // `all_came`: what comes home meanwhile has come.
  absl::Status Settle(Holdings& holdings, RunStore& store, const RunRow& row, bool all_came) {
    for (HeldWish& one : held_) {
      if (!row.end.has_value()) {
        TellOfLeftWish(context_, one.wish(), row.name, kept_);
      } else if (one.wish().down) {
        RETURN_IF_ERROR(
            BringHomeAndRelease(context_, holdings, store, row, PlaceOf(one.wish(), row.name)));
        RETURN_IF_ERROR(one.Done());
      } else if (all_came) {
        RETURN_IF_ERROR(one.Done());
      }
    }
    return absl::OkStatus();
  }

  bool downs() const {
    return std::any_of(held_.begin(), held_.end(),
                       [](const HeldWish& one) { return one.wish().down; });
  }

 private:
  // Records --pull. A number that was typed replaces the one before for the same directory.
  absl::Status Add(const std::string& pull) {
    Wish wish;
    wish.run_id = row_.run_id;
    wish.pull = true;
    ASSIGN_OR_RETURN(wish.keep, ParseKeep(pull, "--pull"));
    ASSIGN_OR_RETURN(wish.dir, AbsolutePath("."));
    const auto same = std::find_if(held_.begin(), held_.end(), [&wish](const HeldWish& one) {
      return one.wish().dir == wish.dir;
    });
    wish.down = same != held_.end() && same->wish().down;
    ASSIGN_OR_RETURN(HeldWish made, HeldWish::Make(context_, std::move(wish)));
    if (same == held_.end()) {
      held_.push_back(std::move(made));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(same->Done());
    *same = std::move(made);
    return absl::OkStatus();
  }

  CommandContext& context_;
  const RunRow& row_;
  const bool kept_;
  std::vector<HeldWish> held_;
};

}  // namespace

absl::StatusOr<int> CmdAttach(CommandContext& context, std::vector<std::string> args) {
  std::string reference;
  bool all = false;
  std::string pull;
  VerbParser parser(
      context, "attach [RUN] [FLAGS]",
      "Shows a run live: the newest screenful, then what comes. When the run ends, its\n"
      "exit code becomes gpuctl's.",
      "  gpuctl attach                  the newest live run\n"
      "  gpuctl attach amber-fox-3 > output.txt\n\n"
      "Ctrl-C detaches at once and leaves the run running; a second one right after it\n"
      "asks whether to stop the run. A pipe or file gets all of the output, byte for byte.\n"
      "What launch --down or --pull was told, and no gpuctl does any more, attach does.");
  const FlagSet::Flag run = parser.Option("RUN", reference, kRunOrNewestLive);
  parser.Switch("-a,--all", all, "Show all output from its beginning, on a terminal too");
  parser.Switch("--pull", pull,
                "Bring new checkpoints to ./RUN meanwhile; --pull=N keeps the newest N.\n"
                "gpuctl keep goes on with it when this gpuctl is gone");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  if (run.given()) {
    RETURN_IF_ERROR(CheckNoBatch(context, {reference},
                                 "gpuctl queue $ shows all of it, gpuctl attach $-1 one run"));
    RETURN_IF_ERROR(CheckStarted(context, {reference}));
  }
  ASSIGN_OR_RETURN(RunRow row, FindRun(context, *store, run, reference));
  if (row.end.has_value()) {
    absl::Status error;
    const absl::StatusOr<Caught> caught = CatchUp(context, *store, row, kAttachPatience, &error);
    if (absl::IsCancelled(caught.status())) return caught.status();
    if (!caught.ok() || *caught == Caught::kNot) {
      context.Warn(absl::StrCat("what is here may not be all of it: ",
                                (caught.ok() ? error : caught.status()).message()));
    }
  }
  Holdings holdings(context);
  std::unique_ptr<LinkFactory> links;
  if (!row.end.has_value()) {
    ASSIGN_OR_RETURN(links, MakeLinks(context, row.target));
  }
  ShowRunOptions options;
  options.from_beginning = all;
  RETURN_IF_ERROR(ParsePullFlag(pull, row.name).status());
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  AttachedWishes wishes(context, row, IsKept(paths.state_dir));
  ASSIGN_OR_RETURN(options.pull, wishes.Take(pull));
  const std::string place = options.pull.has_value() ? options.pull->to : "";
  bool all_came = false;
  options.all_came = &all_came;
  if (!row.end.has_value()) {
    TellStoredPriceRises(holdings, *store, row.run_id, context.NowMs(),
                         [&context](absl::string_view line) { context.Warn(line); });
  }
  ASSIGN_OR_RETURN(const int code, ShowRun(context, *store, row, links.get(), std::move(options)));
  SettleTermsOf(context, holdings, row.run_id);
  const absl::StatusOr<RunRow> shown = store->Get(row.run_id);
  if (!shown.ok()) return code;
  BringMembers(context, *store, *shown);
  const bool brings_members =
      shown->end.has_value() && all_came && !place.empty() && !wishes.downs();
  if (brings_members) {
    const absl::Status others =
        BringMemberResults(context, *store, *shown, place, MemberResults::kCheckpoint);
    all_came = others.ok();
    if (absl::IsCancelled(others)) return others;
    if (!others.ok()) context.Warn(others.message());
  }
  const absl::Status settled = wishes.Settle(holdings, *store, *shown, all_came);
  if (!settled.ok() && code == kExitOk) return settled;
  if (!settled.ok()) context.Warn(settled.message());
  if (!wishes.downs()) TellWhatIsLeft(context, holdings, *store, *shown);
  return code;
}

}  // namespace gpuctl
