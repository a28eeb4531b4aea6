// The other end of a transfer, for tests: threads serve it, over a wire that counts bytes and can
// be cut.
#ifndef GPUCTL_TESTS_SUPPORT_TRANSFER_PEERS_H_
#define GPUCTL_TESTS_SUPPORT_TRANSFER_PEERS_H_

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"
#include "common/files/sha256.h"
#include "common/transfer/transfer.h"
#include "common/tree/manifest.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

inline constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

struct WireLimits {
  // The bytes that arrive, in each direction, before the wire breaks.
  int64_t up = std::numeric_limits<int64_t>::max();    // to the peer
  int64_t down = std::numeric_limits<int64_t>::max();  // from it
  // The approximate number of bytes in transit in each direction; 0: the system's default, about
  // 500 KB.
  int buffer = 0;
  // Called with the bytes so far after each step, on the thread that moves them. It may wait.
  std::function<void(int64_t up)> on_up;
  std::function<void(int64_t down)> on_down;
};

// One stream to a peer served by a thread. As with ssh, one end still reads what the other wrote
// before its close.
class Wire {
 public:
  // `serve` gets the peer's end, which is closed when it returns.
  explicit Wire(std::function<void(int fd)> serve, WireLimits limits = {}) {
    signal(SIGPIPE, SIG_IGN);
    MakePair(ours_, near_, limits.buffer);
    MakePair(far_, theirs_, limits.buffer);
    threads_.emplace_back([this, serve = std::move(serve)] {
      serve(theirs_.get());
      theirs_.reset();
    });
    threads_.emplace_back(
        [this, limits] { Pump(near_.get(), far_.get(), limits.up, up_, limits.on_up); });
    threads_.emplace_back(
        [this, limits] { Pump(far_.get(), near_.get(), limits.down, down_, limits.on_down); });
  }
  ~Wire() { Close(); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int fd() const { return ours_.get(); }
  // Closes our end and waits until the peer has ended.
  void Close() {
    ours_.reset();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  // Breaks the wire, as a lost connection does.
  void Cut() {
    shutdown(near_.get(), SHUT_RDWR);
    shutdown(far_.get(), SHUT_RDWR);
  }
  // Return the bytes that arrived.
  int64_t up() const { return up_; }
  int64_t down() const { return down_; }

 private:
  static void MakePair(UniqueFd& one, UniqueFd& other, int buffer) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    one.reset(fds[0]);
    other.reset(fds[1]);
    for (const int fd : fds) {
      if (buffer > 0) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    }
  }

  void Pump(int from, int to, int64_t limit, std::atomic<int64_t>& count,
            const std::function<void(int64_t)>& step) {
    std::string buffer(16 << 10, '\0');
    while (count < limit) {
      const auto wanted = static_cast<size_t>(
          std::min<int64_t>(static_cast<int64_t>(buffer.size()), limit - count));
      const ssize_t got = read(from, buffer.data(), wanted);
      if (got <= 0) {
        shutdown(to, SHUT_WR);
        return;
      }
      for (ssize_t sent = 0; sent < got;) {
        const ssize_t n = write(to, buffer.data() + sent, static_cast<size_t>(got - sent));
        if (n < 0) {
          shutdown(from, SHUT_RD);  // later writes there fail
          return;
        }
        sent += n;
      }
      count += got;
      if (step) step(count);
    }
    Cut();
  }

  UniqueFd ours_, near_, far_, theirs_;
  std::atomic<int64_t> up_{0};
  std::atomic<int64_t> down_{0};
  std::vector<std::thread> threads_;
};

class WireStream : public FdStream {
 public:
  explicit WireStream(std::shared_ptr<Wire> wire)
      : FdStream(wire->fd(), wire->fd()), wire_(std::move(wire)) {}

 private:
  const std::shared_ptr<Wire> wire_;
};

inline TransferStream StreamOf(const std::shared_ptr<Wire>& wire) {
  TransferStream stream;
  stream.bytes = std::make_shared<WireStream>(wire);
  return stream;
}

// A peer that sends a script and then closes its side, whatever it receives.
class ScriptedNode {
 public:
  explicit ScriptedNode(std::string bytes)
      : wire_(std::make_shared<Wire>([this, bytes = std::move(bytes)](int fd) {
          std::thread speaker([&] {
            for (size_t sent = 0; sent < bytes.size();) {
              const ssize_t n = write(fd, bytes.data() + sent, bytes.size() - sent);
              if (n < 0) break;
              sent += static_cast<size_t>(n);
            }
            shutdown(fd, SHUT_WR);
          });
          std::string buffer(64 << 10, '\0');
          while (true) {
            const ssize_t got = read(fd, buffer.data(), buffer.size());
            if (got <= 0) break;
            heard_.append(buffer.data(), static_cast<size_t>(got));
          }
          speaker.join();
        })) {}

  TransferStream stream() { return StreamOf(wire_); }
  // Ends the peer. Returns everything that it received.
  const std::string& Heard() {
    wire_->Close();
    return heard_;
  }

 private:
  std::string heard_;
  std::shared_ptr<Wire> wire_;
};

inline gpuctl::v1::FileEntry FileOf(absl::string_view path, absl::string_view content,
                                    uint32_t mode = 0640) {
  gpuctl::v1::FileEntry entry;
  entry.set_path(std::string(path));
  entry.set_kind(gpuctl::v1::FileEntry::KIND_FILE);
  entry.set_mode(mode);
  entry.set_size(static_cast<int64_t>(content.size()));
  std::string hashes;
  for (size_t at = 0; at < content.size(); at += kPartBytes) {
    hashes += Sha256Of(content.substr(at, kPartBytes));
  }
  SetHashes(hashes, entry);
  return entry;
}

inline gpuctl::v1::FileEntry DirectoryOf(absl::string_view path, uint32_t mode = 0755) {
  gpuctl::v1::FileEntry entry;
  entry.set_path(std::string(path));
  entry.set_kind(gpuctl::v1::FileEntry::KIND_DIRECTORY);
  entry.set_mode(mode);
  return entry;
}

inline gpuctl::v1::FileEntry SymlinkOf(absl::string_view path, absl::string_view target) {
  gpuctl::v1::FileEntry entry;
  entry.set_path(std::string(path));
  entry.set_kind(gpuctl::v1::FileEntry::KIND_SYMLINK);
  entry.set_mode(0777);
  entry.set_symlink_target(std::string(target));
  return entry;
}

inline Manifest ManifestOf(const std::vector<gpuctl::v1::FileEntry>& entries) {
  Manifest manifest;
  for (const gpuctl::v1::FileEntry& entry : entries) manifest.Append(entry);
  return manifest;
}

// Returns bytes that cannot be compressed, the same for the same seed.
inline std::string RandomBytes(size_t size, uint64_t seed) {
  std::string bytes;
  bytes.reserve(size + 8);
  while (bytes.size() < size) {
    seed += 0x9e3779b97f4a7c15;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    bytes.append(reinterpret_cast<const char*>(&z), sizeof(z));
  }
  bytes.resize(size);
  return bytes;
}

inline gpuctl::v1::TransferFrame DataFrame(uint32_t index, int64_t offset, absl::string_view data) {
  gpuctl::v1::TransferFrame frame;
  frame.mutable_file_data()->set_index(index);
  frame.mutable_file_data()->set_offset(offset);
  frame.mutable_file_data()->set_data(std::string(data));
  return frame;
}

inline gpuctl::v1::TransferFrame ZerosFrame(uint32_t index, int64_t offset, int64_t zeros) {
  gpuctl::v1::TransferFrame frame;
  frame.mutable_file_data()->set_index(index);
  frame.mutable_file_data()->set_offset(offset);
  frame.mutable_file_data()->set_zeros(zeros);
  return frame;
}

inline gpuctl::v1::TransferFrame PartFrame(absl::string_view data, bool last) {
  gpuctl::v1::TransferFrame frame;
  frame.mutable_manifest_part()->set_data(std::string(data));
  frame.mutable_manifest_part()->set_last(last);
  return frame;
}

inline gpuctl::v1::TransferFrame DoneFrame(absl::StatusCode code = absl::StatusCode::kOk) {
  gpuctl::v1::TransferFrame frame;
  frame.mutable_done()->set_code(static_cast<int>(code));
  frame.mutable_done()->set_message("because");
  return frame;
}

inline gpuctl::v1::TransferFrame NeedFrame(bool have = false) {
  gpuctl::v1::TransferFrame frame;
  frame.mutable_push_need()->set_have(have);
  return frame;
}

// Returns one last frame with runs of missing whole files.
inline gpuctl::v1::TransferFrame MissingFrame(const std::vector<uint32_t>& runs) {
  gpuctl::v1::TransferFrame frame;
  for (const uint32_t number : runs) frame.mutable_missing()->add_whole(number);
  frame.mutable_missing()->set_last(true);
  return frame;
}

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_TRANSFER_PEERS_H_
