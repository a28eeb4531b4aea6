// A push whose laptop has fallen silent makes way for another: the laptop may have been asleep or
// without a network for long before the node's sshd learns that it is gone.
#ifndef GPUCTL_AGENT_TREES_SILENT_PUSH_H_
#define GPUCTL_AGENT_TREES_SILENT_PUSH_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/byte_buffer.h"
#include "common/transfer/byte_stream.h"

namespace gpuctl {

// A laptop that waits for something silent tries again after a minute (PumpOptions::dead_after);
// by then this has passed.
inline constexpr absl::Duration kPeerSilence = absl::Seconds(30);

// The stream of one push. It says in the staging directory when nothing has come for `silence`;
// from then on, if somebody asks, Receive ends with UNAVAILABLE. Nobody asks: it waits on. One
// thread.
class YieldingStream : public ByteStream {
 public:
  YieldingStream(int in_fd, int out_fd, absl::Duration silence)
      : in_fd_(in_fd), silence_(silence), stream_(in_fd, out_fd) {}

  // What this push holds and others may want. Until then it just waits.
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

// Asks the silent pushes that hold staging directories in `parent` to end, and waits until they
// have, a few seconds at most. What they held is then as after a lost connection; what else they
// locked follows in a moment. False when none ended.
bool EndSilentPushes(const std::string& parent);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TREES_SILENT_PUSH_H_
