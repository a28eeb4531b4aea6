// The one thread that touches an ssh session: it copies between an exec channel and the local side.
// The traps it avoids (libssh reads ahead and parks bytes where poll cannot see them; its windows
// are small; its buffers unbounded) are described where they are avoided, and each has a test.
#ifndef GPUCTL_CLIENT_LINK_PUMP_H_
#define GPUCTL_CLIENT_LINK_PUMP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/link/local_side.h"
#include "client/link/ssh_session.h"
#include "common/base/mutex.h"
#include "common/base/unique_fd.h"

struct ssh_channel_callbacks_struct;
struct ssh_counter_struct;

namespace gpuctl {

struct PumpOptions {
  // Bytes of download the server may send ahead. Larger is faster on long paths.
  int64_t window_bytes = 4 << 20;
  // Bytes of upload sent ahead of what the command has taken, if the server's window allows. sshd
  // keeps them in buffers whose growth costs more on a short path than it gains.
  int64_t max_ahead_bytes = 64 << 20;
  // When set, everything up to and including the first line that begins with this (and with a
  // newline before it) is taken out of the stream: what a shell's start-up files printed.
  std::string magic;
  // When set: a server that says nothing for this long, though it is asked to, counts as gone. It
  // takes as long to find out that the network is.
  absl::Duration dead_after = absl::InfiniteDuration();
  // Gets stderr as it comes, on the pump's thread; it may block, which stalls this session only.
  std::function<void(absl::string_view)> on_stderr;
};

class Pump {
 public:
  // Takes the session over and starts the thread.
  Pump(std::unique_ptr<SshSession> session, ssh_channel_struct* channel,
       std::unique_ptr<LocalSide> local, PumpOptions options);
  // Stops; the command on the other side sees its stdin end.
  ~Pump();

  // Ends the pump from any thread, at once, also when the network is dead.
  void Stop();

  // OK while it runs; afterwards why it ended. Any thread.
  absl::Status status();
  // Blocks until the pump has ended, and returns the command's exit code (128+n for a signal) or
  // why there is none.
  absl::StatusOr<int> WaitForExit();
  // The text after the magic on its line, once it came. Any thread.
  std::optional<std::string> magic_line();
  // Blocks until the magic line came (its text), or the pump ended (its status), or `timeout`.
  absl::StatusOr<std::string> WaitForMagic(absl::Duration timeout);
  // What came before the magic, at most 64 KiB; and stderr, likewise. Any thread.
  std::string preamble();
  std::string stderr_text();
  // The exit code if the command has ended. Any thread.
  std::optional<int> exit_code();
  // Since the last byte from the server. Any thread.
  absl::Duration Silence();

 private:
  static int OnData(ssh_session_struct*, ssh_channel_struct*, void* data, uint32_t size,
                    int is_stderr, void* self);
  static void OnExitSignal(ssh_session_struct*, ssh_channel_struct*, const char* signal, int core,
                           const char* message, const char* language, void* self);

  void Run();
  absl::Status Loop();
  void TakeEarlyBytes();
  // Each returns whether it moved anything.
  bool ReceivePackets(bool ready);
  bool TakeHeldBack();
  absl::StatusOr<bool> SendFromLocal();
  absl::Status WaitForWork(bool& ssh_ready);
  absl::Status TakePulse();
  bool NeedsNoMorePackets();
  bool WantsHeldBack() const;
  // How many bytes may be sent now.
  size_t RoomToSend();
  // Gives bytes to the local side; returns how many were taken.
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

  // The pump thread's own.
  const uint32_t buffer_size_;
  const std::unique_ptr<char[]> buffer_;
  bool called_back_ = false;  // a callback ran in this round: do not sleep
  bool held_back_ = false;    // libssh keeps bytes that Deliver did not take
  bool eof_sent_ = false;
  bool input_ended_ = false;
  bool exit_status_known_ = false;
  bool magic_done_ = false;
  int64_t since_top_up_ = 0;
  int64_t full_window_ = 0;  // the server's, when it has passed on all it got
  int signal_code_ = 0;
  std::unique_ptr<ssh_counter_struct> counter_;  // of the session's bytes, whoever read them
  uint64_t seen_bytes_ = 0;
  int unanswered_ = 0;  // questions whether the server is there since bytes came
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
