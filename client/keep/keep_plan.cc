#include "client/keep/keep_plan.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/runs/run_end.h"
#include "common/files/files.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kPullWithin = absl::Minutes(30);
// A pull, and the end of a machine.
constexpr absl::Duration kWishWithin = absl::Minutes(45);
constexpr absl::Duration kResumeWithin = absl::Hours(1);
constexpr double kParts = 10'000;  // of a dollar, in the arguments of a command
constexpr absl::Duration kAskWithin = absl::Minutes(5);
constexpr absl::Duration kEndDiskWithin = absl::Minutes(10);
constexpr absl::Duration kAnswerPriceWithin = absl::Minutes(2);
// A job saves for its grace first.
constexpr absl::Duration kStopSlack = absl::Minutes(5);

// True for a run that is to be resumed, now or later.
bool WillResume(const KeptRun& run) {
  return run.row.end.has_value() && IsPreempted(*run.row.end) &&
         ResumesWhenPreempted(run.record.spec) && !run.goes_on && !run.given_up &&
         run.attempts <= run.record.spec.max_retries;
}

bool IsToResume(const KeptRun& run, int64_t now_ms) {
  return WillResume(run) &&
         now_ms - run.row.end->ended_ms >=
             absl::ToInt64Milliseconds(kLaunchGoesFirst + run.record.spec.retry_backoff);
}

bool IsToPull(const KeptRun& run, int64_t now_ms) {
  const RunRow& row = run.row;
  // A cluster may have kept the results of an allocation that is over.
  const bool gone = run.machine_gone && row.target.provider != kClusterProvider;
  if (run.record.pull_dir.empty() || row.accepted_ms == 0 || gone || run.home) return false;
  return !row.end.has_value() ||
         now_ms - row.end->ended_ms < absl::ToInt64Milliseconds(kFetchWithin);
}

// Adds what resumes the run: no dearer than it was, and within what is left of its cost.
void AddResume(const KeptRun& run, std::vector<KeepDeed>& deeds) {
  const std::string& id = run.row.run_id;
  const auto refuse = [&](std::string why) {
    deeds.push_back({"resume", {}, absl::ZeroDuration(), std::move(why)});
  };
  const bool keeps_disk = !run.machine_gone && !run.machine_has_later && !run.machine.empty();
  if (keeps_disk && !run.saved) {
    return refuse(absl::StrCat("no checkpoint of it is at home, and its machine ", run.machine,
                               " still has its disk; gpuctl resume ", run.row.name,
                               " --anew begins anew, gpuctl down ", run.machine,
                               " ends the disk's bill"));
  }
  if (run.cost_left_usd <= 0) {
    return refuse(absl::StrCat("its cost limit is used up; gpuctl resume ", run.row.name,
                               " --cost 20 gives it more"));
  }
  // Up, so that its own price is not above it; down, so that the limits together stay what they
  // are.
  const double price = std::ceil(run.usd_per_hour * kParts) / kParts;
  const double cost = std::floor(run.cost_left_usd * kParts) / kParts;
  std::vector<std::string> resume = {"resume",      id,
                                     "-d",          "-y",
                                     "--as-before", "--anew",
                                     "--max-price", absl::StrFormat("%.4f", price),
                                     "--cost",      absl::StrFormat("%.4f", cost)};
  if (keeps_disk) {
    // The disk that a market keeps of a machine that it took away would bill beside the new one. It
    // goes when it is known that the run can go on without it.
    std::vector<std::string> ask = resume;
    ask.push_back("--dry-run");
    deeds.push_back({"ask-resume", std::move(ask), kAskWithin, ""});
    deeds.push_back({"end-disk", {"down", run.machine, "-y", "--force"}, kEndDiskWithin, ""});
  }
  deeds.push_back({"resume", std::move(resume), kResumeWithin, ""});
}

// Adds what does the wishes that are due.
void AddWishes(const KeptRun& run, std::vector<KeepDeed>& deeds) {
  // The run that goes on takes them over.
  if (WillResume(run)) return;
  for (const Wish& wish : run.wishes) {
    const bool meanwhile = wish.pull && run.row.accepted_ms > 0;
    if (!run.row.end.has_value() && !meanwhile) continue;
    const std::string place = PlaceOf(wish, run.row.name);
    const std::string what =
        !wish.down || !run.row.end.has_value()
            ? absl::StrCat("bring checkpoints to ", place)
            : absl::StrCat("bring results to ", place, " and give its machine back");
    deeds.push_back({"wish", {"keep", "--wish", wish.wish_id}, kWishWithin, "", what});
  }
}

}  // namespace

std::vector<KeepDeed> DeedsFor(const KeptRun& run, int64_t now_ms) {
  std::vector<KeepDeed> deeds;
  const RunRow& row = run.row;
  const std::string& rule = run.record.spec.on_price_rise;
  if (run.rise_waits && !row.end.has_value()) {
    if (rule == "accept") {
      deeds.push_back(
          {"accept-price", {"price", row.run_id, "--accept", "-y"}, kAnswerPriceWithin, ""});
    } else if (rule == "refuse") {
      deeds.push_back(
          {"refuse-price", {"price", row.run_id, "--refuse", "-y"}, kAnswerPriceWithin, ""});
    } else if (rule == "stop") {
      deeds.push_back({"stop", {"stop", row.run_id}, run.record.spec.grace + kStopSlack, ""});
    }
  }
  if (IsToResume(run, now_ms)) {
    AddResume(run, deeds);
  } else if (IsToPull(run, now_ms)) {
    deeds.push_back({"pull",
                     {"pull", row.run_id, "--to", JoinPath(run.record.pull_dir, row.name)},
                     kPullWithin,
                     ""});
  }
  AddWishes(run, deeds);
  return deeds;
}

}  // namespace gpuctl
