// A job whose mirror another process writes: what comes into the mirror, and what the node says.
#ifndef GPUCTL_CLIENT_STREAMS_BESIDE_H_
#define GPUCTL_CLIENT_STREAMS_BESIDE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/link/link.h"
#include "client/streams/ask_job.h"
#include "common/base/clock.h"

namespace gpuctl {

// The writer of a mirror may be stopped (Ctrl-Z, SIGSTOP) and keep its lock. So a reader must not
// wait for it without end, and asks the node itself. Not thread-safe.
class Beside {
 public:
  struct Options {
    std::string job_id;
    std::string mirror_dir;
    int64_t output_segment_bytes = 0;
    // Time without new bytes in the mirror after which the node is asked.
    absl::Duration ask_after;
  };
  // `links` and `clock` outlive it. `use_link` gets the link before its use, and null after it.
  Beside(Options options, LinkFactory& links, std::function<void(Link*)> use_link, Clock& clock);
  ~Beside();

  // Looks at the mirror. Returns true when it grew since the last look.
  absl::StatusOr<bool> Look();
  bool AskIsDue() const;
  // Asks the node, and stores its lifecycle beside the mirror. Errors as of AskJob and of the link.
  absl::StatusOr<JobAnswer> Ask();
  // True when the node has had more than the mirror for a while, and the mirror did not grow.
  bool WriterIsStuck() const;

 private:
  absl::StatusOr<JobAnswer> AskNow();
  absl::Status Compare(const JobAnswer& answer);
  void DropLink();

  const Options options_;
  LinkFactory& links_;
  const std::function<void(Link*)> use_link_;
  Clock& clock_;
  std::unique_ptr<Link> link_;
  std::optional<int64_t> stored_;
  absl::Duration grown_at_, ask_at_, pause_;
  std::optional<absl::Duration> ahead_since_;  // the node has more than the mirror
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_STREAMS_BESIDE_H_
