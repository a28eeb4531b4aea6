// The one thread that uses an ssh session: it copies between an exec channel and the local side.
// libssh has traps: it reads ahead and keeps bytes where poll cannot see them, its windows are
// small, its buffers unbounded. The code that avoids a trap describes it, and each has a test.
#ifndef GPUCTL_CLIENT_LINK_PUMP_H_
#define GPUCTL_CLIENT_LINK_PUMP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/link/local_side.h"
#include "client/link/remote_end.h"
#include "client/link/ssh_session.h"
#include "common/base/mutex.h"
#include "common/base/unique_fd.h"

struct ssh_channel_callbacks_struct;
struct ssh_counter_struct;

namespace gpuctl {

struct PumpOptions {
  // Bytes of download that the server may send ahead. Larger is faster on long paths.
  int64_t window_bytes = 4 << 20;
  // Bytes of upload to send ahead of those that the command has taken, if the server's window
  // allows. sshd keeps them in buffers; on a short path their growth costs more than it gains.
  int64_t max_ahead_bytes = 64 << 20;
  // When set, the pump removes everything up to and including the first line that begins with this
  // (with a newline before it): the output of a shell's start-up files.
  std::string magic;
  // When set, a server that is silent for this long, in spite of questions, counts as gone. A dead
  // network is found after the same time.
  absl::Duration dead_after = absl::InfiniteDuration();
  // Gets stderr as it comes, on the pump's thread. It may block, which stalls this session only.
  std::function<void(absl::string_view)> on_stderr;
};

class Pump : public RemoteEnd {
 public:
  // Takes over the session and starts the thread.
  Pump(std::unique_ptr<SshSession> session, ssh_channel_struct* channel,
       std::unique_ptr<LocalSide> local, PumpOptions options);
  // Stops; the command on the other side sees its stdin end.
  ~Pump() override;

  // Ends the pump from any thread, at once, also when the network is dead.
  void Stop() override;

  // Returns OK while the pump runs; afterwards the reason of its end. Safe from any thread.
  absl::Status status() override;
  // Blocks until the pump has ended. Returns the command's exit code (128+n for a signal), or the
  // reason why there is none.
  absl::StatusOr<int> WaitForExit() override;
  // Returns the text after the magic on its line, once it came. Safe from any thread.
  std::optional<std::string> magic_line() override;
  // Blocks until the magic line came (returns its text), the pump ended (returns its status), or
  // `timeout` is over (UNAVAILABLE).
  absl::StatusOr<std::string> WaitForMagic(absl::Duration timeout);
  // Return the text before the magic, and stderr; at most 64 KiB each. Safe from any thread.
  std::string preamble() override;
  std::string stderr_text() override;
  // Returns the exit code if the command has ended. Safe from any thread.
  std::optional<int> exit_code() override;
  // Returns the time since the last byte from the server. Safe from any thread.
  absl::Duration Silence() override;

 private:
  static int OnData(ssh_session_struct*, ssh_channel_struct*, void* data, uint32_t size,
                    int is_stderr, void* self);

  void Run();
  absl::Status Loop();
  void TakeEarlyBytes();
  // Return true when they moved any bytes.
  bool ReceivePackets(bool ready);
  bool TakeHeldBack();
  absl::StatusOr<bool> SendFromLocal();
  absl::Status WaitForWork(bool& ssh_ready);
  absl::Status TakePulse();
  bool NeedsNoMorePackets();
  bool WantsHeldBack() const;
  // Returns how many bytes may be sent now.
  size_t RoomToSend();
  // Gives bytes to the local side; returns how many it took.
  size_t Deliver(const char* data, size_t size);
  size_t SkipPreamble(const char* data, size_t size);
  bool RemoteEnded();

  std::unique_ptr<SshSession> session_;
  ssh_channel_struct* const channel_;
  const std::unique_ptr<LocalSide> local_;
  const PumpOptions options_;
  UniqueFd wake_read_;
  UniqueFd wake_write_;
  std::unique_ptr<ssh_channel_callbacks_struct> callbacks_;

  // Used by the pump's thread only.
  const uint32_t buffer_size_;
  const std::unique_ptr<char[]> buffer_;
  bool called_back_ = false;  // a callback ran in this round: do not sleep
  bool held_back_ = false;    // libssh keeps bytes that Deliver did not take
  bool eof_sent_ = false;
  bool input_ended_ = false;
  bool exit_status_known_ = false;
  bool signalled_ = false;  // a signal ended the command
  bool magic_done_ = false;
  int64_t since_top_up_ = 0;
  int64_t full_window_ = 0;  // the server's window when it has passed on all bytes it got
  std::unique_ptr<ssh_counter_struct> counter_;  // counts the session's bytes, whoever reads them
  uint64_t seen_bytes_ = 0;
  int unanswered_ = 0;  // questions to the server since its last bytes
  int64_t asked_ns_ = 0;

  std::atomic<bool> stop_{false};
  std::atomic<int64_t> last_byte_ns_{0};
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

#endif  // GPUCTL_CLIENT_LINK_PUMP_H_
