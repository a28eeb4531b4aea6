// A command on a node over a connection that a holder keeps open.
#ifndef GPUCTL_CLIENT_WARM_WARM_CHANNEL_H_
#define GPUCTL_CLIENT_WARM_WARM_CHANNEL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/link/link.h"
#include "client/warm/warm_socket.h"
#include "common/base/mutex.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

class WarmChannel : public RemoteEnd {
 public:
  // Asks the holder at `place` to run a line. An error means that it did not run and will not:
  // nobody is there, or nothing came within about a second, or the node allows no more channels.
  // `data` gets a blocking socket with the bytes. `on_stderr`, if any, is called on a thread.
  static absl::StatusOr<std::unique_ptr<WarmChannel>> Open(
      const WarmPlace& place, const WarmAsk& ask, UniqueFd& data,
      std::function<void(absl::string_view)> on_stderr);
  ~WarmChannel() override;

  void Stop() override;
  absl::Status status() override;
  absl::StatusOr<int> WaitForExit() override;
  std::optional<int> exit_code() override;
  std::optional<std::string> magic_line() override;
  std::string preamble() override;
  std::string stderr_text() override;
  absl::Duration Silence() override;

 private:
  WarmChannel(const WarmPlace& place, UniqueFd control, UniqueFd data,
              std::function<void(absl::string_view)> on_stderr, bool is_call);
  absl::Status WaitForOpen();
  // Waits for the next message; UNAVAILABLE when the holder is gone or says nothing for `patience`.
  absl::Status Next(absl::Duration patience, std::pair<WarmWord, std::string>& message);
  void Run();
  void Take(WarmWord word, const std::string& bytes);
  void End(const absl::Status& status);

  const WarmPlace place_;
  const UniqueFd control_;
  // A copy of the user's end of the data: shutting it down ends whatever waits there.
  const UniqueFd data_;
  const std::function<void(absl::string_view)> on_stderr_;
  const int missed_pulses_;
  std::string input_;  // of the thread that reads

  std::atomic<int64_t> heard_ns_{0};
  std::atomic<bool> stopped_{false};
  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::optional<int> exit_code_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> magic_line_ ABSL_GUARDED_BY(mutex_);
  std::string preamble_ ABSL_GUARDED_BY(mutex_);
  std::string stderr_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WARM_WARM_CHANNEL_H_
