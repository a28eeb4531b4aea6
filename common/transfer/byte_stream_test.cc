#include "common/files/byte_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <thread>

#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/transfer/frame_channel.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_peer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

std::string Content(size_t size) {
  std::string content(size, '\0');
  for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>('a' + i % 23);
  return content;
}

// Collects the bytes from a pipe until it is closed.
class PipeReader {
 public:
  explicit PipeReader(int fd) : thread_([this, fd] { Read(fd); }) {}
  const std::string& All() {
    thread_.join();
    return all_;
  }

 private:
  void Read(int fd) {
    FdStream stream(fd, -1);
    ByteBuffer buffer;
    while (stream.Receive(buffer).ok()) {
    }
    all_ = std::string(buffer.view());
  }
  std::string all_;
  std::thread thread_;
};

TEST(FdStream, SendsTheRangeOfAFile) {
  TempDir dir;
  const std::string content = Content(3 << 20);
  const UniqueFd file(file_ops::Open(dir.Write("file", content), O_RDONLY));
  FdPair ends = MakePipe("test").value();
  PipeReader reader(ends.first.get());
  FdStream stream(-1, ends.second.get());
  EXPECT_TRUE(stream.SendsFiles());
  EXPECT_THAT(stream.SendFile(file.get(), 1000, 2 << 20), IsOk());
  ends.second.reset();
  EXPECT_EQ(reader.All(), content.substr(1000, 2 << 20));
}

TEST(FdStream, AFileThatIsShorterIsFilledUpAndTold) {
  TempDir dir;
  const UniqueFd file(file_ops::Open(dir.Write("file", "abc"), O_RDONLY));
  FdPair ends = MakePipe("test").value();
  PipeReader reader(ends.first.get());
  FdStream stream(-1, ends.second.get());
  EXPECT_THAT(stream.SendFile(file.get(), 1, 300'000), StatusIs(absl::StatusCode::kAborted));
  ends.second.reset();
  EXPECT_EQ(reader.All(), "bc" + std::string(299'998, '\0'));
}

TEST(FdStream, AFileThatCannotBeReadIsTold) {
  TempDir dir;
  const UniqueFd file(file_ops::Open(dir.Write("file", "abc"), O_WRONLY));
  FdPair ends = MakePipe("test").value();
  PipeReader reader(ends.first.get());
  FdStream stream(-1, ends.second.get());
  EXPECT_FALSE(stream.SendFile(file.get(), 0, 3).ok());
  ends.second.reset();
  EXPECT_EQ(reader.All(), std::string(3, '\0'));
}

TEST(FdStream, AClosedPeerIsUnavailable) {
  signal(SIGPIPE, SIG_IGN);
  TempDir dir;
  const UniqueFd file(file_ops::Open(dir.Write("file", "abc"), O_RDONLY));
  FdPair ends = MakePipe("test").value();
  ends.first.reset();
  FdStream stream(-1, ends.second.get());
  EXPECT_THAT(stream.SendFile(file.get(), 0, 3), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(FrameChannel, AFilesContentIsAFrameLikeOthers) {
  TempDir dir;
  const std::string content = Content(200'000);
  const UniqueFd file(file_ops::Open(dir.Write("file", content), O_RDONLY));
  ScriptedPeer peer("");
  EXPECT_TRUE(peer.channel().SendsFiles());
  ASSERT_THAT(peer.channel().WriteFileContent(3, 1000, file.get(), content.size() - 1000), IsOk());
  ASSERT_THAT(peer.channel().Flush(), IsOk());
  EXPECT_EQ(peer.Heard(), Encode({DataFrame(3, 1000, content.substr(1000))}));
  ASSERT_THAT(peer.channel().SetCompression(true), IsOk());
  EXPECT_FALSE(peer.channel().SendsFiles());
}

}  // namespace
}  // namespace gpuctl
