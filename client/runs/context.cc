#include "client/runs/context.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<ClientPaths> CommandContext::Paths() { return ClientPaths::FromEnvironment(); }

absl::StatusOr<RunStore*> CommandContext::Store() {
  if (store_ == nullptr) {
    ASSIGN_OR_RETURN(const ClientPaths paths, Paths());
    ASSIGN_OR_RETURN(store_, RunStore::Open(paths.database()));
    store_->SetUnknownHint(unknown_hint);
  }
  return store_.get();
}

absl::StatusOr<RunStore*> CommandContext::StoreOrCopy() {
  const absl::StatusOr<RunStore*> store = Store();
  if (store.ok()) return store;
  ASSIGN_OR_RETURN(const ClientPaths paths, Paths());
  absl::StatusOr<std::unique_ptr<RunStore>> copy = RunStore::OpenCopy(paths.database());
  if (!copy.ok()) return store;
  Warn(absl::StrCat("what becomes of runs cannot be written down now: ", store.status().message()));
  store_ = *std::move(copy);
  store_->SetUnknownHint(unknown_hint);
  return store_.get();
}

void CommandContext::SayOnce(absl::string_view text) {
  constexpr absl::Duration kAgainAfter = absl::Seconds(30);
  {
    const MutexLock lock(said_mutex_);
    const absl::Duration now = clock.SinceBoot();
    if (said_ == text && now < said_at_ + kAgainAfter) return;
    said_ = std::string(text);
    said_at_ = now;
  }
  Say(text);
}

}  // namespace gpuctl
