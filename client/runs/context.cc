#include "client/runs/context.h"

#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<ClientPaths> CommandContext::Paths() { return ClientPaths::FromEnvironment(); }

absl::StatusOr<RunStore*> CommandContext::Store() {
  if (store_ == nullptr) {
    ASSIGN_OR_RETURN(const ClientPaths paths, Paths());
    ASSIGN_OR_RETURN(store_, RunStore::Open(paths.database()));
  }
  return store_.get();
}

}  // namespace gpuctl
