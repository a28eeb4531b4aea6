// What was asked for the end of a run, as text and JSON.
#ifndef GPUCTL_CLIENT_WISHES_WISH_TEXT_H_
#define GPUCTL_CLIENT_WISHES_WISH_TEXT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "client/runs/context.h"
#include "client/wishes/wish_store.h"

namespace gpuctl {

// Who does a wish, as things are now.
enum class WishDoer {
  kGpuctl,  // a living gpuctl that shows the run
  kKeep,    // gpuctl keep, which this computer calls regularly
  kNobody
};

struct KnownWish {
  Wish wish;
  WishDoer doer = WishDoer::kNobody;
};

// Returns the wishes of a run (of all runs when `run_id` is ""), with who does them. `kept`: this
// computer calls gpuctl keep. What cannot be read counts as none.
std::vector<KnownWish> KnownWishesOf(CommandContext& context, const std::string& run_id, bool kept);

// Returns "results to /w/fox-1, then its machine is given back" or "checkpoints to /w/fox-1".
std::string DescribeWish(const Wish& wish, const std::string& run_name);
// Returns "gpuctl keep does it", for a sentence about a wish.
std::string DescribeDoer(WishDoer doer, const std::string& run_name);

// Returns a word for a list about those that no living gpuctl does: "down by keep", "down by
// nobody", "pull by keep"; "" when there is none. That nobody pulls costs nothing, and is no word.
std::string WishWord(const std::vector<KnownWish>& wishes);

// Returns a list of objects (docs/json.md).
nlohmann::ordered_json WishesToJson(const std::vector<KnownWish>& wishes,
                                    const std::string& run_name);

// Says what becomes of a wish whose run goes on while this gpuctl leaves it.
void TellOfLeftWish(CommandContext& context, const Wish& wish, const std::string& run_name,
                    bool kept);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WISHES_WISH_TEXT_H_
