// Tests traps of libssh and ssh that could lose bytes, hang or use too much memory; one test for
// each.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <libssh/libssh.h>
#include <libssh/server.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/link/agent_calls.h"
#include "client/link/link.h"
#include "client/link/local_side.h"
#include "client/link/pump.h"
#include "client/link/ssh_session.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/loopback_node.h"
#include "tests/support/matchers.h"

#if defined(GPUCTL_ASAN)
extern "C" size_t __sanitizer_get_current_allocated_bytes();  // sanitizer/allocator_interface.h
#endif

namespace gpuctl {
namespace {

// Returns the bytes of memory that this process holds. AddressSanitizer keeps freed memory, to
// catch late uses, but it reports how much is not freed.
int64_t HeldBytes() {
#if defined(GPUCTL_ASAN)
  return static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());
#else
  const std::string statm = ReadFileToString("/proc/self/statm").value();
  const std::vector<std::string> words = absl::StrSplit(statm, ' ');
  int64_t pages = 0;
  EXPECT_TRUE(absl::SimpleAtoi(words[1], &pages));
  return pages * sysconf(_SC_PAGESIZE);
#endif
}

void WriteAllTo(int fd, absl::string_view data) {
  while (!data.empty()) {
    const ssize_t written = send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    ASSERT_GT(written, 0);
    data.remove_prefix(static_cast<size_t>(written));
  }
}

std::string ReadExactly(int fd, size_t size) {
  std::string data(size, '\0');
  size_t at = 0;
  while (at < size) {
    const ssize_t got = read(fd, data.data() + at, size - at);
    if (got <= 0) break;
    at += static_cast<size_t>(got);
  }
  data.resize(at);
  return data;
}

std::string ReadToEnd(int fd) {
  std::string data;
  char buffer[1 << 16];
  ssize_t got = 0;
  while ((got = read(fd, buffer, sizeof(buffer))) > 0)
    data.append(buffer, static_cast<size_t>(got));
  return data;
}

class TransportTest : public ::testing::Test {
 protected:
  // Rewrites a directive of the local sshd's configuration before anything connects.
  void ConfigureSshd(absl::string_view from, const std::string& to) {
    const LocalSshd sshd = PrepareLocalSshd(JoinPath(node_.state_dir(), "ssh/local")).value();
    std::string config = ReadFileToString(sshd.config_path).value();
    ASSERT_NE(config.find(std::string(from)), std::string::npos);
    config = from.empty() ? config + to + "\n" : absl::StrReplaceAll(config, {{from, to}});
    const std::string path = node_.dir().Write("sshd_config", config);
    custom_ = sshd;
    custom_->config_path = path;
  }
  std::unique_ptr<LinkFactory> Links() {
    SshLinkOptions options = node_.Options();
    if (custom_.has_value()) options.dial = [this] { return DialLocalSshd(*custom_); };
    return MakeSshLinkFactory(options);
  }

  LoopbackNode node_;
  std::optional<LocalSshd> custom_;
};

// A pump would sleep for ever if it polled while libssh already holds bytes.
TEST_F(TransportTest, NoWakeUpIsLostBetweenStdoutAndStderr) {
  const auto links = Links();
  const auto command =
      links->Run("while read -r n; do echo e >&2; echo \"o $n\"; echo e >&2; done");
  ASSERT_OK(command);
  for (int i = 0; i < 2000; ++i) {
    WriteAllTo((*command)->fd(), absl::StrCat(i, "\n"));
    const std::string expected = absl::StrCat("o ", i, "\n");
    ASSERT_EQ(ReadExactly((*command)->fd(), expected.size()), expected);
  }
  shutdown((*command)->fd(), SHUT_WR);
  EXPECT_EQ(ReadToEnd((*command)->fd()), "");
  EXPECT_EQ((*command)->Wait().value_or(-1), 0);
}

// libssh grants windows however full its buffer is, and silently drops bytes past 256 MB.
TEST_F(TransportTest, ASlowReaderHoldsTheSenderNotTheMemory) {
  constexpr int64_t kBytes = 400 << 20;
  const auto links = Links();
  const auto command = links->Run(absl::StrCat("head -c ", kBytes, " /dev/zero"));
  ASSERT_OK(command);
  char buffer[4096];
  ASSERT_EQ(read((*command)->fd(), buffer, 1), 1);
  const int64_t before = HeldBytes();
  int64_t most = 0;
  int64_t total = 1;
  // Read slowly at first: 4 KiB at a time, with pauses in which an unbounded pump would take
  // everything.
  for (int i = 0; i < 300; ++i) {
    const ssize_t got = read((*command)->fd(), buffer, sizeof(buffer));
    ASSERT_GT(got, 0);
    total += got;
    poll(nullptr, 0, 5);
    most = std::max(most, HeldBytes() - before);
  }
  EXPECT_LT(most, 40 << 20);
  std::vector<char> large(1 << 20);
  for (ssize_t got = 1; got > 0; total += got) {
    got = read((*command)->fd(), large.data(), large.size());
    ASSERT_GE(got, 0);
  }
  EXPECT_EQ(total, kBytes);
  EXPECT_LT(HeldBytes() - before, 60 << 20);
}

// libssh's own window is 1.28 MB and is granted again when half of it is used: at 80 ms that gives
// 8 MB/s. The test holds everything that we send, so the bytes that still arrive show the size of
// the window.
TEST_F(TransportTest, TheWindowIsLargeEnoughForALongRoundTrip) {
  using Direction = FaultProxy::Direction;
  SshdListener listener(node_.state_dir());
  const auto proxy =
      FaultProxy::Listen("127.0.0.1:0", absl::StrCat("127.0.0.1:", listener.port())).value();
  SshLinkOptions options = node_.Options();
  options.dial = [&] { return ConnectTcp("127.0.0.1", proxy->port(), absl::Seconds(5)); };
  const auto links = MakeSshLinkFactory(options);
  proxy->SetDelay(absl::Milliseconds(10));  // each way
  constexpr int64_t kFirst = 20 << 20;
  constexpr int64_t kSecond = 100 << 20;
  const std::string gate = node_.dir().Sub("gate");
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  const auto command = links->Run(absl::StrCat("head -c ", kFirst, " /dev/zero; read line < ", gate,
                                               "; head -c ", kSecond, " /dev/zero"));
  ASSERT_OK(command);
  proxy->SetDelay(absl::ZeroDuration());  // the round trip has been measured as long
  // Everything is read, so the window has been granted again.
  ASSERT_EQ(ReadExactly((*command)->fd(), kFirst).size(), size_t{kFirst});
  size_t total = 0;
  std::thread reader([&] { total = ReadToEnd((*command)->fd()).size(); });
  proxy->HoldAfter(Direction::kForward, proxy->forwarded(Direction::kForward));
  const int64_t before = proxy->forwarded(Direction::kBackward);
  const UniqueFd opener(open(gate.c_str(), O_WRONLY | O_CLOEXEC));
  WriteAll(opener.get(), "now\n", gate).IgnoreError();
  // The last grant may be among the bytes that are held; half of the window is left then. Since
  // 0.11 libssh has one window for all, of 2 MiB.
  const int64_t least = LIBSSH_VERSION_INT >= SSH_VERSION_INT(0, 11, 0) ? 1 << 20 : 2 << 20;
  EXPECT_TRUE(proxy->BlockUntilForwarded(Direction::kBackward, before + least));
  proxy->Resume();
  reader.join();
  EXPECT_EQ(total, size_t{kSecond});
}

// sshd would accept its whole window of 2 MiB, into buffers that cost more than they help.
TEST_F(TransportTest, NoMoreIsSentAheadThanIsAllowed) {
  const auto links = Links();
  auto session = links->OpenSshSession();
  ASSERT_OK(session);
  const std::string gate = node_.dir().Sub("gate");
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  const auto channel = (*session)->Exec(absl::StrCat("read line < ", gate, "; wc -c"));
  ASSERT_OK(channel);
  auto side = SocketSide::Make().value();
  const UniqueFd local = side->TakeFd();
  const int fd = local.get();
  PumpOptions options;
  options.max_ahead_bytes = 256 << 10;
  Pump pump(*std::move(session), *channel, std::move(side), options);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  const std::string block(64 << 10, 'b');
  int64_t taken = 0;
  // Send until nothing more is accepted.
  for (pollfd waited{fd, POLLOUT, 0}; poll(&waited, 1, 500) == 1;) {
    const ssize_t sent = send(fd, block.data(), block.size(), MSG_NOSIGNAL);
    ASSERT_GT(sent, 0);
    taken += sent;
  }
  EXPECT_GT(taken, 256 << 10);
  EXPECT_LT(taken, 3 << 19);
  const UniqueFd opener(open(gate.c_str(), O_WRONLY | O_CLOEXEC));
  WriteAll(opener.get(), "now\n", gate).IgnoreError();
  fcntl(fd, F_SETFL, 0);
  WriteAllTo(fd, block);
  shutdown(fd, SHUT_WR);
  EXPECT_EQ(ReadToEnd(fd), absl::StrCat(taken + static_cast<int64_t>(block.size()), "\n"));
}

// During a key exchange writes take less than they are given, or nothing.
TEST_F(TransportTest, RekeyingLosesNothingInEitherDirection) {
  ConfigureSshd("", "RekeyLimit 1M");
  const auto links = Links();
  const auto command = links->Run("cat");
  ASSERT_OK(command);
  std::string data(24 << 20, '\0');
  std::mt19937 random(7);
  for (char& c : data) c = static_cast<char>(random());
  std::thread writer([&] {
    WriteAllTo((*command)->fd(), data);
    shutdown((*command)->fd(), SHUT_WR);
  });
  const std::string back = ReadToEnd((*command)->fd());
  writer.join();
  EXPECT_EQ(back.size(), data.size());
  EXPECT_EQ(Sha256HexOf(back), Sha256HexOf(data));
  EXPECT_EQ((*command)->Wait().value_or(-1), 0);
}

// The bytes and the exit code arrive after EOF, and a command may die by a signal.
TEST_F(TransportTest, ExitCodesComeHome) {
  const auto links = Links();
  for (const auto& [script, code] : {std::pair("exit 7", 7), std::pair("kill -9 $$", 137),
                                     std::pair("echo out; echo err >&2; exit 0", 0)}) {
    const auto command = links->Run(script);
    ASSERT_OK(command);
    ReadToEnd((*command)->fd());
    EXPECT_EQ((*command)->Wait().value_or(-1), code) << script;
  }
}

// Serves one ssh connection: lets everybody in, runs nothing, and says that each command ended with
// this exit status.
void ServeExitStatus(UniqueFd fd, const std::string& host_key, uint32_t exit_status) {
  const ssh_bind bind = ssh_bind_new();
  const bool off = false;
  ssh_bind_options_set(bind, SSH_BIND_OPTIONS_PROCESS_CONFIG, &off);
  ssh_bind_options_set(bind, SSH_BIND_OPTIONS_HOSTKEY, host_key.c_str());
  const ssh_session session = ssh_new();
  EXPECT_EQ(ssh_bind_accept_fd(bind, session, fd.release()), SSH_OK);
  EXPECT_EQ(ssh_handle_key_exchange(session), SSH_OK) << ssh_get_error(session);
  ssh_channel channel = nullptr;
  while (const ssh_message message = ssh_message_get(session)) {
    switch (ssh_message_type(message)) {
      case SSH_REQUEST_SERVICE:
        ssh_message_service_reply_success(message);
        break;
      case SSH_REQUEST_AUTH:
        ssh_message_auth_reply_success(message, /*partial=*/0);
        break;
      case SSH_REQUEST_CHANNEL_OPEN:
        channel = ssh_message_channel_request_open_reply_accept(message);
        break;
      case SSH_REQUEST_CHANNEL:
        ssh_message_channel_request_reply_success(message);
        ssh_channel_request_send_exit_status(channel, static_cast<int>(exit_status));
        ssh_channel_send_eof(channel);
        // The close must not come with the status: whoever reads no further never sees it.
        Clock::Real().SleepFor(absl::Milliseconds(100));
        ssh_channel_close(channel);
        break;
      default:
        ssh_message_reply_default(message);
    }
    ssh_message_free(message);
  }
  ssh_disconnect(session);
  ssh_free(session);
  ssh_bind_free(bind);
}

// The protocol has room for four bytes, a process for one. As gpuctl's own, 256 would be a success.
TEST_F(TransportTest, AnExitStatusThatNoProcessHasIsAFailure) {
  const std::string key = node_.dir().Sub("key");
  ASSERT_OK(EnsureKeyPair(key, "test"));
  for (const uint32_t status : {255u, 256u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    UniqueFd ours(fds[0]);
    std::thread server(ServeExitStatus, UniqueFd(fds[1]), key, status);
    {
      SshOptions options;
      options.user = "me";
      options.identity_files = {key};
      options.use_agent = false;
      auto session = SshSession::Open(std::move(ours), options);
      EXPECT_OK(session);
      const auto channel = session.ok() ? (*session)->Exec("true") : session.status();
      EXPECT_OK(channel);
      if (channel.ok()) {
        Pump pump(*std::move(session), *channel, SocketSide::Make().value(), {});
        const absl::StatusOr<int> code = pump.WaitForExit();
        EXPECT_TRUE(!code.ok() || *code == 255) << status << ": " << *code;
        EXPECT_EQ(code.ok(), status < 0x80000000u) << status;
      }
    }
    server.join();
  }
}

// A command may be dead before the answer to its request is read. Busy threads make that likely.
TEST_F(TransportTest, ASignalThatComesWithTheAnswerIsNotLost) {
  const auto links = Links();
  std::atomic<bool> over = false;
  std::vector<std::thread> busy;
  for (int i = 0; i < 6; ++i) {
    busy.emplace_back([&] {
      while (!over) {
      }
    });
  }
  for (int run = 0; run < 25; ++run) {
    const auto command = links->Run("kill -9 $$");
    EXPECT_OK(command);
    if (!command.ok()) break;
    ReadToEnd((*command)->fd());
    EXPECT_EQ((*command)->Wait().value_or(-1), 137) << run;
  }
  over = true;
  for (std::thread& one : busy) one.join();
}

// EOF, exit status and close may each come in a separate segment. libssh reads nothing more when it
// is asked for an exit status that it already has.
TEST_F(TransportTest, ACommandEndsWhereverItsLastBytesAreCut) {
  using Direction = FaultProxy::Direction;
  SshdListener listener(node_.state_dir());
  const auto proxy =
      FaultProxy::Listen("127.0.0.1:0", absl::StrCat("127.0.0.1:", listener.port())).value();
  SshLinkOptions options = node_.Options();
  options.dial = [&] { return ConnectTcp("127.0.0.1", proxy->port(), absl::Seconds(5)); };
  const auto links = MakeSshLinkFactory(options);
  for (int cut = 4; cut <= 160; cut += 12) {
    const auto command = links->Run("echo ready; read -r line; exit 7");
    ASSERT_OK(command);
    ASSERT_EQ(ReadExactly((*command)->fd(), 6), "ready\n");
    const int64_t at = proxy->forwarded(Direction::kBackward) + cut;
    proxy->HoldAfter(Direction::kBackward, at);
    shutdown((*command)->fd(), SHUT_WR);
    // The last cuts lie behind the last byte, so this may time out.
    (void)proxy->BlockUntilForwarded(Direction::kBackward, at, absl::Milliseconds(300));
    poll(nullptr, 0, 20);  // for the pump to take in what came
    proxy->Resume();
    EXPECT_EQ(ReadToEnd((*command)->fd()), "");
    EXPECT_EQ((*command)->Wait().value_or(-1), 7) << cut;
  }
}

// Returns the processor time of all threads of this process.
absl::Duration ProcessorTime() {
  struct timespec used {};
  EXPECT_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
  return absl::DurationFromTimespec(used);
}

// A command has ended, nobody reads its output, and the server sends more: a close. The pump must
// wait for the reader without polling all the time.
TEST_F(TransportTest, AnEndedCommandWhoseOutputWaitsCostsNothing) {
  using Direction = FaultProxy::Direction;
  constexpr size_t kOutput = 900'000;  // more than the socket takes, less than the pump
  SshdListener listener(node_.state_dir());
  const auto proxy =
      FaultProxy::Listen("127.0.0.1:0", absl::StrCat("127.0.0.1:", listener.port())).value();
  SshLinkOptions options = node_.Options();
  options.dial = [&] { return ConnectTcp("127.0.0.1", proxy->port(), absl::Seconds(5)); };
  const auto links = MakeSshLinkFactory(options);
  for (int cut = 64; cut <= 124; cut += 12) {
    const int64_t before = proxy->forwarded(Direction::kBackward);
    const auto command =
        links->Run(absl::StrCat("head -c ", kOutput, " /dev/zero; read -r line; exit 7"));
    ASSERT_OK(command);
    ASSERT_TRUE(proxy->BlockUntilForwarded(Direction::kBackward, before + int64_t{kOutput} / 2));
    poll(nullptr, 0, 50);  // for the rest
    const int64_t at = proxy->forwarded(Direction::kBackward) + cut;
    proxy->HoldAfter(Direction::kBackward, at);
    shutdown((*command)->fd(), SHUT_WR);
    (void)proxy->BlockUntilForwarded(Direction::kBackward, at, absl::Milliseconds(200));
    poll(nullptr, 0, 20);  // for the pump to take in what came
    proxy->Resume();
    // The pump comes to rest, even before somebody reads.
    absl::Duration least = absl::InfiniteDuration();
    for (int i = 0; i < 30 && least > absl::Milliseconds(15); ++i) {
      const absl::Duration used = ProcessorTime();
      poll(nullptr, 0, 100);
      least = std::min(least, ProcessorTime() - used);
    }
    EXPECT_LT(least, absl::Milliseconds(15)) << cut;
    EXPECT_EQ(ReadToEnd((*command)->fd()).size(), kOutput);
    EXPECT_EQ((*command)->Wait().value_or(-1), 7) << cut;
  }
}

// With a dead network and a full send buffer the pump is inside send(), where no wake-up reaches
// it.
TEST_F(TransportTest, AStalledNetworkDoesNotHoldUsWhenWeGiveUp) {
  SshdListener listener(node_.state_dir());
  const auto proxy =
      FaultProxy::Listen("127.0.0.1:0", absl::StrCat("127.0.0.1:", listener.port())).value();
  SshLinkOptions options = node_.Options();
  options.dial = [&]() -> absl::StatusOr<UniqueFd> {
    absl::StatusOr<UniqueFd> fd = ConnectTcp("127.0.0.1", proxy->port(), absl::Seconds(5));
    const int small = 4096;
    if (fd.ok()) setsockopt(fd->get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    return fd;
  };
  const auto links = MakeSshLinkFactory(options);
  auto command = links->Run("cat > /dev/null");
  ASSERT_OK(command);
  WriteAllTo((*command)->fd(), "x");
  proxy->Stall();
  // Fill all buffers.
  fcntl((*command)->fd(), F_SETFL, O_NONBLOCK);
  const std::string block(1 << 16, 'x');
  int refused = 0;
  while (refused < 20) {
    if (send((*command)->fd(), block.data(), block.size(), MSG_NOSIGNAL) < 0) {
      ++refused;
      poll(nullptr, 0, 5);
    }
  }
  const absl::Duration before = Clock::Real().SinceBoot();
  command->reset();
  EXPECT_LT(Clock::Real().SinceBoot() - before, absl::Seconds(10));
}

// The network dies silently after everything was sent: a transfer that waits for the node notices.
// A node that is only silent is asked for a sign of life, and answers.
TEST_F(TransportTest, ATransferOverADeadNetworkEnds) {
  using Direction = FaultProxy::Direction;
  SshdListener listener(node_.state_dir());
  const auto proxy =
      FaultProxy::Listen("127.0.0.1:0", absl::StrCat("127.0.0.1:", listener.port())).value();
  SshLinkOptions options = node_.Options();
  options.dial = [&] { return ConnectTcp("127.0.0.1", proxy->port(), absl::Seconds(5)); };
  const auto links = MakeSshLinkFactory(options);
  const std::string gate = node_.dir().Sub("gate");
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  for (const bool alive : {true, false}) {
    auto session = links->OpenSshSession();
    ASSERT_OK(session);
    // The second command ends with its sshd.
    const auto channel =
        (*session)->Exec(alive ? absl::StrCat("read line < ", gate, "; echo $line") : "cat");
    ASSERT_OK(channel);
    auto side = StreamSide::Make().value();
    StreamSide& local = *side;
    PumpOptions pump_options;
    pump_options.dead_after = alive ? absl::Seconds(12) : absl::Milliseconds(400);
    Pump pump(*std::move(session), *channel, std::move(side), pump_options);
    ByteBuffer bytes;
    if (!alive) {
      proxy->BlackHole();
      EXPECT_TRUE(absl::IsUnavailable(local.Receive(bytes)));
      EXPECT_THAT(std::string(pump.status().message()), ::testing::HasSubstr("nothing came"));
      continue;
    }
    // Wait for the answers to two questions.
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(proxy->BlockUntilForwarded(Direction::kBackward,
                                             proxy->forwarded(Direction::kBackward) + 1));
    }
    const UniqueFd opener(open(gate.c_str(), O_WRONLY | O_CLOEXEC));
    WriteAll(opener.get(), "now\n", gate).IgnoreError();
    ASSERT_OK(local.Receive(bytes));
    EXPECT_EQ(bytes.view(), "now\n");
  }
}

TEST_F(TransportTest, AStoppedSshdDoesNotHoldUsEither) {
  SshdListener listener(node_.state_dir());
  SshLinkOptions options = node_.Options();
  options.dial = [&] { return ConnectTcp("127.0.0.1", listener.port(), absl::Seconds(5)); };
  const auto links = MakeSshLinkFactory(options);
  auto link = links->Connect();
  ASSERT_OK(link);
  grpc::ClientContext context;
  gpuctl::v1::HelloReply reply;
  ASSERT_TRUE((*link)->agent().stub->Hello(&context, {}, &reply).ok());
  const std::vector<pid_t> servers = listener.pids();
  for (const pid_t pid : servers) kill(pid, SIGSTOP);
  const absl::Duration before = Clock::Real().SinceBoot();
  grpc::ClientContext second;
  std::thread breaker([&] { (*link)->Break(); });
  EXPECT_FALSE((*link)->agent().stub->Hello(&second, {}, &reply).ok());
  breaker.join();
  link->reset();
  EXPECT_LT(Clock::Real().SinceBoot() - before, absl::Seconds(10));
  for (const pid_t pid : servers) kill(pid, SIGCONT);
}

// keep and sync --watch make connections for days. libssh 0.12 leaves the closing of the socket to
// us.
TEST_F(TransportTest, ASessionLeavesNoSocketOpen) {
  SshdListener listener(node_.state_dir());
  SshLinkOptions options = node_.Options();
  options.dial = [&] { return ConnectTcp("127.0.0.1", listener.port(), absl::Seconds(5)); };
  const auto links = MakeSshLinkFactory(options);
  const auto open_files = [] { return ListDirectory("/dev/fd").value().size(); };
  ASSERT_OK(links->OpenSshSession());
  const size_t before = open_files();
  for (int i = 0; i < 3; ++i) ASSERT_OK(links->OpenSshSession());
  EXPECT_EQ(open_files(), before);
  options.dial = []() -> absl::StatusOr<UniqueFd> {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
      return absl::InternalError("socketpair");
    }
    close(fds[1]);  // nobody answers
    return UniqueFd(fds[0]);
  };
  EXPECT_FALSE(MakeSshLinkFactory(options)->OpenSshSession().ok());
  EXPECT_EQ(open_files(), before);
}

// sync --watch makes a new connection for each change, so ended proxy commands must not pile up.
TEST_F(TransportTest, ProxyCommandsThatEndedAreReaped) {
  const LocalSshd sshd = PrepareLocalSshd(JoinPath(node_.state_dir(), "ssh/local")).value();
  SshLinkOptions options = node_.Options();
  options.target.provider = "ssh";
  options.target.proxy_command = absl::StrCat(FindSshd(), " -i -f ", sshd.config_path);
  options.target.identity_files = {sshd.identity_path};
  const auto links = MakeSshLinkFactory(options);
  while (waitpid(-1, nullptr, 0) > 0) {  // those of other tests
  }
  for (int i = 0; i < 4; ++i) {
    auto command = links->Run("echo here");
    ASSERT_OK(command);
    EXPECT_EQ(ReadToEnd((*command)->fd()), "here\n");
    command->reset();
    // The proxy command has ended; the next connection reaps it.
    siginfo_t ended{};
    ASSERT_EQ(waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT), 0);
  }
  int left = 0;
  while (waitpid(-1, nullptr, 0) > 0) ++left;
  EXPECT_EQ(left, 1);
}

// The output of a shell's start-up files comes before the magic line and is skipped.
TEST_F(TransportTest, NoisyStartUpFilesDoNotDisturbTheLink) {
  const std::string home = node_.dir().Sub("home");
  node_.dir().Write("home/.bashrc",
                    "echo welcome to the machine\nprintf 'binary \\0\\377 GPUCTL\\n'\n"
                    "for i in $(seq 200); do echo \"motd line $i\"; done\necho noise >&2\n");
  ConfigureSshd("SetEnv SHLVL=1", absl::StrCat("SetEnv HOME=", home));
  const auto links = Links();
  {
    // Check that the noise is there.
    const auto command = links->Run("echo here");
    ASSERT_OK(command);
    EXPECT_EQ(ReadToEnd((*command)->fd()), "here\n");
    EXPECT_THAT((*command)->Stderr(), ::testing::HasSubstr("noise"));
  }
  const auto link = links->Connect();
  ASSERT_OK(link);
  grpc::ClientContext context;
  gpuctl::v1::HelloReply reply;
  const grpc::Status status = (*link)->agent().stub->Hello(&context, {}, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message() << (*link)->status();
}

// Too much noise ends the link with an error instead of filling memory.
TEST_F(TransportTest, EndlessNoiseIsAnError) {
  node_.dir().Write("home/.bashrc", "yes noise | head -c 10000000\n");
  ConfigureSshd("SetEnv SHLVL=1", absl::StrCat("SetEnv HOME=", node_.dir().Sub("home")));
  const auto links = Links();
  const auto command = links->Run("echo here");
  ASSERT_OK(command);
  EXPECT_EQ(ReadToEnd((*command)->fd()), "");
}

// Many sessions at once, each with its own pump, do not disturb each other.
TEST_F(TransportTest, SessionsInParallel) {
  const auto warm = Links();
  ASSERT_OK(warm->Run("true"));
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      const auto links = Links();
      const auto command = links->Run("head -c 8000000 /dev/zero");
      ASSERT_OK(command);
      EXPECT_EQ(ReadToEnd((*command)->fd()).size(), 8'000'000u);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gpuctl
