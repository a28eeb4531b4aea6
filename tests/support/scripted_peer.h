#ifndef GPUCTL_TESTS_SUPPORT_SCRIPTED_PEER_H_
#define GPUCTL_TESTS_SUPPORT_SCRIPTED_PEER_H_

#include <fcntl.h>

#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/transfer/frame_channel.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {

// A peer that sends a script and closes. It never waits, because both directions are files. For
// tests in which only one side of a transfer is real.
class ScriptedPeer {
 public:
  explicit ScriptedPeer(const std::string& bytes)
      : in_(open(dir_.Write("in", bytes).c_str(), O_RDONLY | O_CLOEXEC)),
        out_(open(dir_.Sub("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)),
        channel_(in_.get(), out_.get()) {}

  int in_fd() const { return in_.get(); }
  int out_fd() const { return out_.get(); }
  FrameChannel& channel() { return channel_; }
  // Returns everything that was written to the peer.
  std::string Heard() const { return ReadFileToString(dir_.Sub("out")).value(); }

 private:
  TempDir dir_;
  UniqueFd in_;
  UniqueFd out_;
  FrameChannel channel_;
};

// Returns the frames in their encoded form.
inline std::string Encode(const std::vector<gpuctl::v1::TransferFrame>& frames) {
  ScriptedPeer peer("");
  for (const gpuctl::v1::TransferFrame& frame : frames)
    EXPECT_TRUE(peer.channel().Write(frame).ok());
  EXPECT_TRUE(peer.channel().Flush().ok());
  return peer.Heard();
}

// Returns the frames in `bytes`, which must be whole.
inline std::vector<gpuctl::v1::TransferFrame> Decode(const std::string& bytes) {
  ScriptedPeer peer(bytes);
  std::vector<gpuctl::v1::TransferFrame> frames;
  while (true) {
    auto frame = peer.channel().Read();
    if (!frame.ok()) break;
    frames.push_back(*std::move(frame));
  }
  EXPECT_EQ(Encode(frames), bytes);
  return frames;
}

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_SCRIPTED_PEER_H_
