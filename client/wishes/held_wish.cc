#include "client/wishes/held_wish.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/paths.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

std::string LockPathOf(const ClientPaths& paths, const std::string& wish_id) {
  return JoinPath(paths.state_dir, absl::StrCat("locks/wish-", wish_id));
}

// A probe of the lock holds it for an instant.
constexpr int kTakeTries = 5;
constexpr absl::Duration kTakeAgainIn = absl::Milliseconds(20);

absl::StatusOr<UniqueFd> TakeLock(CommandContext& context, const std::string& path) {
  absl::StatusOr<UniqueFd> lock = TryRemovableLock(path);
  for (int tries = 1; absl::IsUnavailable(lock.status()) && tries < kTakeTries; ++tries) {
    context.clock.SleepFor(kTakeAgainIn);
    lock = TryRemovableLock(path);
  }
  return lock;
}

absl::StatusOr<std::unique_ptr<WishStore>> OpenWishes(CommandContext& context) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  return WishStore::Open(paths.database());
}

}  // namespace

HeldWish::HeldWish(std::string database, std::string lock_path, UniqueFd lock, Wish wish)
    : database_(std::move(database)),
      lock_path_(std::move(lock_path)),
      lock_(std::move(lock)),
      wish_(std::move(wish)) {}

HeldWish& HeldWish::operator=(HeldWish&& other) {
  if (this == &other) return *this;
  Leave();
  database_ = std::move(other.database_);
  lock_path_ = std::move(other.lock_path_);
  lock_ = std::move(other.lock_);
  wish_ = std::move(other.wish_);
  return *this;
}

absl::StatusOr<HeldWish> HeldWish::Make(CommandContext& context, Wish wish) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  wish.wish_id = absl::StrCat("w-", RandomHex(6));
  const std::string lock_path = LockPathOf(paths, wish.wish_id);
  RETURN_IF_ERROR(MakeDirectories(DirName(lock_path)));
  // The lock comes first, so that nobody takes the new wish for one whose holder died.
  ASSIGN_OR_RETURN(UniqueFd lock, TryRemovableLock(lock_path));
  const absl::StatusOr<std::unique_ptr<WishStore>> store = WishStore::Open(paths.database());
  const absl::Status recorded = store.ok() ? (*store)->Insert(wish) : store.status();
  if (!recorded.ok()) {
    RemoveLock(std::move(lock), lock_path);
    return recorded;
  }
  return HeldWish(paths.database(), lock_path, std::move(lock), std::move(wish));
}

absl::StatusOr<HeldWish> HeldWish::Take(CommandContext& context, const std::string& wish_id) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::string lock_path = LockPathOf(paths, wish_id);
  RETURN_IF_ERROR(MakeDirectories(DirName(lock_path)));
  ASSIGN_OR_RETURN(UniqueFd lock, TakeLock(context, lock_path));
  // Its last holder may have done it before it gave the lock up.
  ASSIGN_OR_RETURN(const std::unique_ptr<WishStore> store, WishStore::Open(paths.database()));
  ASSIGN_OR_RETURN(std::optional<Wish> wish, store->Find(wish_id));
  if (!wish.has_value()) {
    RemoveLock(std::move(lock), lock_path);
    return absl::NotFoundError(absl::StrCat("nothing is asked for as ", wish_id, " any more"));
  }
  return HeldWish(paths.database(), lock_path, std::move(lock), *std::move(wish));
}

absl::Status HeldWish::Done() {
  if (!lock_.valid()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<WishStore> store, WishStore::Open(database_));
  RETURN_IF_ERROR(store->Drop(wish_.wish_id));
  RemoveLock(std::move(lock_), lock_path_);
  return absl::OkStatus();
}

void HeldWish::Leave() {
  if (!lock_.valid()) return;
  const absl::StatusOr<std::unique_ptr<WishStore>> store = WishStore::Open(database_);
  const auto there = store.ok() ? (*store)->Find(wish_.wish_id) : store.status();
  // Another process has dropped it: nobody will ask for its lock again.
  if (there.ok() && !there->has_value()) RemoveLock(std::move(lock_), lock_path_);
  lock_.reset();
}

absl::Status AllDone(std::vector<HeldWish>& held) {
  absl::Status first;
  for (HeldWish& one : held) first.Update(one.Done());
  if (first.ok()) held.clear();
  return first;
}

absl::StatusOr<std::vector<HeldWish>> HoldWishes(CommandContext& context, const std::string& run_id,
                                                 std::vector<Wish> wishes) {
  std::vector<HeldWish> held;
  for (Wish& wish : wishes) {
    wish.run_id = run_id;
    ASSIGN_OR_RETURN(HeldWish made, HeldWish::Make(context, std::move(wish)));
    held.push_back(std::move(made));
  }
  return held;
}

absl::StatusOr<std::vector<Wish>> WishesOf(CommandContext& context, const std::string& run_id) {
  ASSIGN_OR_RETURN(const std::unique_ptr<WishStore> store, OpenWishes(context));
  return store->List(run_id);
}

absl::StatusOr<std::vector<HeldWish>> TakeWishesOf(CommandContext& context,
                                                   const std::string& run_id) {
  ASSIGN_OR_RETURN(const std::vector<Wish> wishes, WishesOf(context, run_id));
  std::vector<HeldWish> taken;
  for (const Wish& wish : wishes) {
    absl::StatusOr<HeldWish> held = HeldWish::Take(context, wish.wish_id);
    if (held.ok()) {
      taken.push_back(*std::move(held));
    } else if (!absl::IsUnavailable(held.status()) && !absl::IsNotFound(held.status())) {
      return held.status();
    }
  }
  return taken;
}

absl::StatusOr<bool> IsHeld(CommandContext& context, const Wish& wish) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  return IsLocked(LockPathOf(paths, wish.wish_id));
}

absl::Status DropWishesOf(CommandContext& context, const std::string& run_id) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const std::unique_ptr<WishStore> store, WishStore::Open(paths.database()));
  ASSIGN_OR_RETURN(const std::vector<Wish> wishes, store->List(run_id));
  for (const Wish& wish : wishes) {
    RETURN_IF_ERROR(store->Drop(wish.wish_id));
    const std::string lock_path = LockPathOf(paths, wish.wish_id);
    absl::StatusOr<UniqueFd> lock = TryRemovableLock(lock_path);
    // The holder removes it when it lives.
    if (lock.ok()) RemoveLock(*std::move(lock), lock_path);
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
