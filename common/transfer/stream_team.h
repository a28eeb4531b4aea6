// Several streams that share the pieces of one transfer.
#ifndef GPUCTL_COMMON_TRANSFER_STREAM_TEAM_H_
#define GPUCTL_COMMON_TRANSFER_STREAM_TEAM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transfer/transfer.h"
#include "common/tree/manifest.h"
#include "common/tree/missing_content.h"

namespace gpuctl {

// Hands out the pieces, counts the moved ones, and opens further streams as long as they make the
// transfer faster. Thread-safe.
class StreamTeam {
 public:
  // The work of a further stream from its opening to its end. It takes pieces until there are none.
  using RunStream = std::function<absl::Status(const TransferStream& stream)>;

  StreamTeam(const Manifest& manifest, const MissingContent& missing, Clock& clock,
             const TransferOptions& options);

  // Returns the next pieces to move: together about a mebibyte, or one larger piece. Empty when
  // none are left, or when another stream has failed.
  std::vector<Piece> Next();
  // Counts a piece. `there` of its bytes were there and did not come.
  void Moved(const Piece& piece, int64_t there = 0);
  // Counts `bytes` that were moved beside the pieces, and a file when they are its first ones.
  void MovedBeside(int64_t bytes, bool is_new_file);
  TransferCount count();

  // Calls `first` on this thread and, at the same time on threads of their own, `further` for each
  // stream that is worth opening. Returns the first error of any, after all have ended.
  absl::Status Run(const std::function<absl::Status()>& first, const RunStream& further);

 private:
  void Recruit(const RunStream& further);
  bool WaitForGain(int64_t& bytes_before, double& best_rate);
  void Fail(const absl::Status& status);

  Clock& clock_;
  const TransferOptions& options_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Piece> pieces_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  TransferCount count_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_STREAM_TEAM_H_
