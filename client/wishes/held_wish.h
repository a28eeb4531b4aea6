// A wish that a living process looks after. A lock tells: whoever holds it does what was asked for,
// and nobody else may.
#ifndef GPUCTL_CLIENT_WISHES_HELD_WISH_H_
#define GPUCTL_CLIENT_WISHES_HELD_WISH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/wishes/wish_store.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

class HeldWish {
 public:
  // Records `wish`, gives it an id, and holds it. It is durable when this returns, and nobody sees
  // it without its holder.
  static absl::StatusOr<HeldWish> Make(CommandContext& context, Wish wish);
  // Takes a recorded wish. UNAVAILABLE: another process holds it. NOT_FOUND: it was done or
  // dropped.
  static absl::StatusOr<HeldWish> Take(CommandContext& context, const std::string& wish_id);

  HeldWish(HeldWish&&) = default;
  HeldWish& operator=(HeldWish&& other);
  // Gives the wish up. It stays recorded unless Done was called.
  ~HeldWish() { Leave(); }

  const Wish& wish() const { return wish_; }
  // Says that it was done, or that nobody wants it any more.
  absl::Status Done();

 private:
  HeldWish(std::string database, std::string lock_path, UniqueFd lock, Wish wish);
  void Leave();

  std::string database_, lock_path_;
  UniqueFd lock_;  // not valid: moved from, or done
  Wish wish_;
};

// Marks all of `held` as done.
absl::Status AllDone(std::vector<HeldWish>& held);

// Records these wishes for a run, and holds them.
absl::StatusOr<std::vector<HeldWish>> HoldWishes(CommandContext& context, const std::string& run_id,
                                                 std::vector<Wish> wishes);

// Takes all wishes of a run that nobody holds.
absl::StatusOr<std::vector<HeldWish>> TakeWishesOf(CommandContext& context,
                                                   const std::string& run_id);

// True when a living process holds the wish.
absl::StatusOr<bool> IsHeld(CommandContext& context, const Wish& wish);

// Returns the wishes of a run, or of all runs when `run_id` is "".
absl::StatusOr<std::vector<Wish>> WishesOf(CommandContext& context, const std::string& run_id);

// Drops the wishes of a run, also those that another process holds: its user has ended the run.
// Nobody does them any more, but a process that holds one may be in the middle of it.
absl::Status DropWishesOf(CommandContext& context, const std::string& run_id);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WISHES_HELD_WISH_H_
