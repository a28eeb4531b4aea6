#include "tests/support/fault_proxy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using Direction = FaultProxy::Direction;

// A listening TCP socket on loopback.
struct Server {
  Server() : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
    EXPECT_EQ(listen(fd.get(), 8), 0);
    socklen_t size = sizeof(any);
    EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&any), &size), 0);
    port = ntohs(any.sin_port);
  }
  std::string Address() const { return absl::StrCat("127.0.0.1:", port); }
  UniqueFd Accept() const { return UniqueFd(accept(fd.get(), nullptr, nullptr)); }
  UniqueFd fd;
  int port = 0;
};

UniqueFd Connect(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

void Say(const UniqueFd& fd, const std::string& bytes) {
  ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
}

std::string Hear(const UniqueFd& fd, size_t size) {
  std::string bytes(size, '\0');
  const ssize_t got = recv(fd.get(), bytes.data(), size, MSG_WAITALL);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

bool SomethingToRead(const UniqueFd& fd, int timeout_ms) {
  pollfd wanted{fd.get(), POLLIN, 0};
  return poll(&wanted, 1, timeout_ms) > 0;
}

// Both ends of a TCP connection through a proxy.
struct Connected {
  Connected() : proxy(FaultProxy::Listen("127.0.0.1:0", server.Address()).value()) {
    near = Connect(proxy->port());
    far = server.Accept();
  }
  Server server;
  std::unique_ptr<FaultProxy> proxy;
  UniqueFd near;
  UniqueFd far;
};

TEST(FaultProxy, ForwardsBothWaysAndCounts) {
  Connected c;
  Say(c.near, "hello");
  EXPECT_EQ(Hear(c.far, 5), "hello");
  Say(c.far, "hi");
  EXPECT_EQ(Hear(c.near, 2), "hi");
  EXPECT_TRUE(c.proxy->BlockUntilForwarded(Direction::kForward, 5));
  EXPECT_TRUE(c.proxy->BlockUntilForwarded(Direction::kBackward, 2));
  EXPECT_EQ(c.proxy->forwarded(Direction::kForward), 5);
  EXPECT_EQ(c.proxy->forwarded(Direction::kBackward), 2);
  EXPECT_FALSE(c.proxy->BlockUntilForwarded(Direction::kForward, 6, absl::Milliseconds(1)));
  EXPECT_EQ(c.proxy->connections(), 1);
}

TEST(FaultProxy, ClosesOneDirectionAtATime) {
  Connected c;
  Say(c.near, "last");
  ASSERT_EQ(shutdown(c.near.get(), SHUT_WR), 0);
  EXPECT_EQ(Hear(c.far, 100), "last");  // up to the end
  Say(c.far, "answer");
  c.far.reset();
  EXPECT_EQ(Hear(c.near, 100), "answer");
}

TEST(FaultProxy, WorksBetweenDescriptors) {
  int a[2];
  int b[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, a), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, b), 0);
  UniqueFd near(a[0]);
  UniqueFd far(b[1]);
  auto proxy = FaultProxy::Between(UniqueFd(a[1]), UniqueFd(b[0]));
  Say(near, "hello");
  EXPECT_EQ(Hear(far, 5), "hello");
  proxy->Reset();
  EXPECT_EQ(Hear(near, 1), "");
  EXPECT_EQ(proxy->connections(), 0);
}

TEST(FaultProxy, ResetIsAReset) {
  Connected c;
  Say(c.near, "x");
  ASSERT_EQ(Hear(c.far, 1), "x");
  c.proxy->Reset();
  char byte;
  EXPECT_EQ(recv(c.near.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(recv(c.far.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
  // The next connection works normally.
  const UniqueFd near = Connect(c.proxy->port());
  const UniqueFd far = c.server.Accept();
  Say(near, "again");
  EXPECT_EQ(Hear(far, 5), "again");
}

TEST(FaultProxy, ABlackHoleSwallowsWithoutASign) {
  Connected c;
  c.proxy->BlackHole();
  // It is more than all buffers on the way hold, so the proxy must take it.
  const std::string much(32 << 20, 'x');
  Say(c.near, much);
  Say(c.far, much);
  // No data arrives, and no end, even from a closed peer.
  c.far.reset();
  EXPECT_FALSE(SomethingToRead(c.near, 50));
  const UniqueFd late = Connect(c.proxy->port());
  Say(late, "anyone?");
  EXPECT_FALSE(SomethingToRead(late, 20));
  EXPECT_EQ(c.proxy->forwarded(Direction::kForward), 0);
  c.proxy->Resume();
  const UniqueFd near = Connect(c.proxy->port());
  const UniqueFd far = c.server.Accept();
  Say(near, "again");
  EXPECT_EQ(Hear(far, 5), "again");
  EXPECT_FALSE(SomethingToRead(c.near, 0));
}

TEST(FaultProxy, AStallFillsTheBuffersAndResumeLosesNothing) {
  Connected c;
  c.proxy->Stall();
  // Write until the buffers are full: the proxy takes nothing.
  const std::string block(1 << 16, 'x');
  size_t written = 0;
  while (true) {
    const ssize_t sent = send(c.near.get(), block.data(), block.size(), MSG_DONTWAIT);
    if (sent < 0) break;
    written += static_cast<size_t>(sent);
  }
  EXPECT_GT(written, 0u);
  EXPECT_EQ(c.proxy->forwarded(Direction::kForward), 0);
  c.proxy->Resume();
  EXPECT_EQ(Hear(c.far, written).size(), written);
}

TEST(FaultProxy, DelayAddsLatencyButNotPerPiece) {
  Connected c;
  c.proxy->SetDelay(absl::Milliseconds(40));
  const absl::Duration start = Clock::Real().SinceBoot();
  Say(c.near, "ping");
  EXPECT_EQ(Hear(c.far, 4), "ping");
  Say(c.far, "pong");
  EXPECT_EQ(Hear(c.near, 4), "pong");
  const absl::Duration round_trip = Clock::Real().SinceBoot() - start;
  EXPECT_GE(round_trip, absl::Milliseconds(80));
  // Many pieces are on their way at once: it takes far less than 200 times 40 ms.
  const absl::Duration begin = Clock::Real().SinceBoot();
  std::thread sender([&] {
    for (int i = 0; i < 200; ++i) Say(c.near, std::string(10'000, 'd'));
  });
  EXPECT_EQ(Hear(c.far, 2'000'000).size(), 2'000'000u);
  sender.join();
  EXPECT_LT(Clock::Real().SinceBoot() - begin, absl::Seconds(4));
}

TEST(FaultProxy, DeliversNoFasterThanItsRateAndTakesLittleAhead) {
  Connected c;
  c.proxy->SetRate(1'000'000);
  const absl::Duration begin = Clock::Real().SinceBoot();
  std::thread sender([&] { Say(c.near, std::string(300'000, 'r')); });
  EXPECT_EQ(Hear(c.far, 200'000).size(), 200'000u);
  EXPECT_GE(Clock::Real().SinceBoot() - begin, absl::Milliseconds(190));
  // Without a limit the rest comes as before.
  c.proxy->SetRate(0);
  EXPECT_EQ(Hear(c.far, 100'000).size(), 100'000u);
  sender.join();
}

TEST(FaultProxy, ADeadTargetEndsTheConnection) {
  auto server = std::make_unique<Server>();
  auto proxy = FaultProxy::Listen("127.0.0.1:0", server->Address()).value();
  server.reset();
  const UniqueFd near = Connect(proxy->port());
  EXPECT_EQ(Hear(near, 1), "");
}

TEST(FaultProxy, RefusesAddressesThatAreNone) {
  EXPECT_THAT(FaultProxy::Listen("localhost:1", "127.0.0.1:1"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(FaultProxy::Listen("127.0.0.1:0", "127.0.0.1:70000"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(FaultProxy::Listen("127.0.0.1", "127.0.0.1:1"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(FaultProxy, MovesBulkFast) {
  Connected c;
  constexpr size_t kBytes = 64 << 20;
  std::thread sender([&] {
    const std::string block(1 << 20, 'b');
    for (size_t sent = 0; sent < kBytes; sent += block.size()) Say(c.near, block);
  });
  size_t heard = 0;
  while (heard < kBytes) {
    const size_t got = Hear(c.far, 1 << 20).size();
    if (got == 0) break;
    heard += got;
  }
  sender.join();
  EXPECT_EQ(heard, kBytes);
  EXPECT_TRUE(c.proxy->BlockUntilForwarded(Direction::kForward, static_cast<int64_t>(kBytes)));
  EXPECT_EQ(c.proxy->forwarded(Direction::kForward), static_cast<int64_t>(kBytes));
}

}  // namespace
}  // namespace gpuctl
