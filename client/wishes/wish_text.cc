#include "client/wishes/wish_text.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/wishes/held_wish.h"

namespace gpuctl {
namespace {

const char* WishVerb(const Wish& wish) { return wish.down ? "down" : "pull"; }

}  // namespace

std::vector<KnownWish> KnownWishesOf(CommandContext& context, const std::string& run_id,
                                     bool kept) {
  std::vector<KnownWish> known;
  const absl::StatusOr<std::vector<Wish>> wishes = WishesOf(context, run_id);
  if (!wishes.ok()) return known;
  for (const Wish& wish : *wishes) {
    const bool held = IsHeld(context, wish).value_or(false);
    known.push_back({wish, held ? WishDoer::kGpuctl : kept ? WishDoer::kKeep : WishDoer::kNobody});
  }
  return known;
}

std::string DescribeWish(const Wish& wish, const std::string& run_name) {
  const std::string place = PlaceOf(wish, run_name);
  if (wish.down) return absl::StrCat("results to ", place, ", then its machine is given back");
  return absl::StrCat("checkpoints to ", place);
}

std::string DescribeDoer(WishDoer doer, const std::string& run_name) {
  switch (doer) {
    case WishDoer::kGpuctl:
      return "the gpuctl that shows it does that";
    case WishDoer::kKeep:
      return "gpuctl keep does that";
    case WishDoer::kNobody:
      break;
  }
  return absl::StrCat("nobody does that now: gpuctl attach ", run_name,
                      " does it here, gpuctl keep --install does it without a terminal");
}

std::string WishWord(const std::vector<KnownWish>& wishes) {
  std::string word;
  for (const KnownWish& known : wishes) {
    if (known.doer == WishDoer::kGpuctl) continue;
    if (known.doer == WishDoer::kNobody && !known.wish.down) continue;
    // What ends a bill is told before what brings checkpoints.
    if (!word.empty() && !known.wish.down) continue;
    word = absl::StrCat(WishVerb(known.wish), " by ",
                        known.doer == WishDoer::kKeep ? "keep" : "nobody");
  }
  return word;
}

nlohmann::ordered_json WishesToJson(const std::vector<KnownWish>& wishes,
                                    const std::string& run_name) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [wish, doer] : wishes) {
    nlohmann::ordered_json by;
    if (doer != WishDoer::kNobody) by = doer == WishDoer::kGpuctl ? "gpuctl" : "keep";
    list.push_back({{"to", PlaceOf(wish, run_name)},
                    {"pull", wish.pull},
                    {"keep", wish.keep},
                    {"down", wish.down},
                    {"by", by}});
  }
  return list;
}

void TellOfLeftWish(CommandContext& context, const Wish& wish, const std::string& run_name,
                    bool kept) {
  const std::string place = PlaceOf(wish, run_name);
  if (kept) {
    context.Say(wish.down
                    ? absl::StrCat("at its end gpuctl keep brings its results to ", place,
                                   " and gives its machine back")
                    : absl::StrCat("gpuctl keep goes on bringing its checkpoints to ", place));
    context.Hint(absl::StrCat("gpuctl keep --forget ", run_name, " calls that off"));
    return;
  }
  if (wish.down) {
    context.Say("nobody brings its results home now, and only its limits end its machine's bill",
                Tone::kAlarm);
  } else {
    context.Warn("nobody brings its checkpoints home now");
  }
  context.Hint(absl::StrCat("gpuctl attach ", run_name,
                            " goes on with it; gpuctl keep --install does it without a terminal"));
}

}  // namespace gpuctl
