// The context of every verb: the console and the flags common to all, a clock, the list of runs.
#ifndef GPUCTL_CLIENT_RUNS_CONTEXT_H_
#define GPUCTL_CLIENT_RUNS_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/base/node_target.h"
#include "client/base/paths.h"
#include "client/runs/run_store.h"
#include "client/terminal/console.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace gpuctl {

class LinkFactory;

class CommandContext : public Console {
 public:
  explicit CommandContext(Clock& the_clock) : clock(the_clock) {}

  // Returns the list of runs; opened at the first call.
  absl::StatusOr<ClientPaths> Paths();
  absl::StatusOr<RunStore*> Store();
  // The same for a verb that ends bills: where the list cannot be written, because the disk is full
  // or read-only, a copy in memory.
  absl::StatusOr<RunStore*> StoreOrCopy();

  // Says it, unless the same was said a moment ago. Any thread may call it.
  void SayOnce(absl::string_view text);

  int64_t NowMs() { return absl::ToUnixMillis(clock.Now()); }

  Clock& clock;
  // The arguments after "--"; absent when there was none.
  std::optional<std::vector<std::string>> after_dashes;
  // Given to the list of runs: RunStore::SetUnknownHint. Empty: none.
  std::function<std::string(absl::string_view reference)> unknown_hint;
  // False: no connection is kept for commands that follow, and none of theirs is used. For what
  // runs by itself, again and again.
  bool keeps_links = true;
  // False: what asks many runs at once tells in its own words which of them wait in a scheduler's
  // queue. Set before there are links.
  bool tells_what_waits = true;
  // Makes the links to a node in place of ssh and asks for no node bundle; empty: ssh. For tests.
  std::function<std::unique_ptr<LinkFactory>(const NodeTarget&)> make_links;

 private:
  std::unique_ptr<RunStore> store_;
  Mutex said_mutex_;
  std::string said_ ABSL_GUARDED_BY(said_mutex_);
  absl::Duration said_at_ ABSL_GUARDED_BY(said_mutex_);
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_CONTEXT_H_
