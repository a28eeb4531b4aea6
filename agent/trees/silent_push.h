// Ending a push whose laptop is silent in favour of another push. The laptop may be asleep or
// without a network for a long time before the node's sshd learns that it is gone.
#ifndef GPUCTL_AGENT_TREES_SILENT_PUSH_H_
#define GPUCTL_AGENT_TREES_SILENT_PUSH_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/byte_buffer.h"
#include "common/files/byte_stream.h"

namespace gpuctl {

// The silence after which a push may be ended. A laptop that waits for a silent node tries again
// after a minute (PumpOptions::dead_after), so this must be shorter.
inline constexpr absl::Duration kPeerSilence = absl::Seconds(30);

// The stream of one push. When nothing has come for `silence`, it writes a note in the staging
// directory. From then on, Receive ends with UNAVAILABLE if somebody asks; otherwise it goes on
// waiting. Used by one thread.
class YieldingStream : public ByteStream {
 public:
  YieldingStream(int in_fd, int out_fd, absl::Duration silence)
      : in_fd_(in_fd), silence_(silence), stream_(in_fd, out_fd) {}

  // Sets the staging directory that this push holds and others may need. Before this call the
  // stream only waits.
  void Holds(const std::string& staging_path);

  absl::Status Receive(ByteBuffer& into) override;
  absl::Status Send(ByteBuffer& from) override { return stream_.Send(from); }
  bool SendsFiles() const override { return stream_.SendsFiles(); }
  absl::Status SendFile(int fd, int64_t offset, int64_t size) override {
    return stream_.SendFile(fd, offset, size);
  }

 private:
  const int in_fd_;
  const absl::Duration silence_;
  FdStream stream_;
  std::string staging_path_;
  std::string note_path_;
};

// Asks the silent pushes that hold staging directories in `parent` to end, and waits for that, a
// few seconds at most. Their staging directories are then as after a lost connection; their other
// locks become free a moment later. False when none ended.
bool EndSilentPushes(const std::string& parent);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TREES_SILENT_PUSH_H_
