#include "tests/support/fault_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <limits>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "tests/support/proxy_connection.h"

namespace gpuctl {
namespace {

absl::StatusOr<sockaddr_in> ParseAddress(absl::string_view text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const size_t colon = text.rfind(':');
  int port = -1;
  if (colon == text.npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 0 ||
      port > 65535 ||
      inet_pton(AF_INET, std::string(text.substr(0, colon)).c_str(), &address.sin_addr) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("parse address ", text, ": not a.b.c.d:port"));
  }
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

void SetCloseOnExec(int fd) { fcntl(fd, F_SETFD, FD_CLOEXEC); }

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

UniqueFd NewTcpSocket() {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  SetCloseOnExec(fd.get());
  SetNonBlocking(fd.get());
  return fd;
}

}  // namespace

class FaultProxy::Loop {
 public:
  Loop(UniqueFd listener, int port, sockaddr_in target)
      : listener_(std::move(listener)), port_(port), target_(target) {
    signal(SIGPIPE, SIG_IGN);
    int fds[2];
    if (pipe(fds) != 0) abort();
    for (const int fd : fds) {
      SetCloseOnExec(fd);
      SetNonBlocking(fd);
    }
    wake_read_.reset(fds[0]);
    wake_write_.reset(fds[1]);
  }

  ~Loop() {
    Do([this] { stop_ = true; });
    thread_.join();
  }

  void Add(UniqueFd first, UniqueFd second) {
    connections_.emplace_back(std::move(first), std::move(second), false);
    MutexLock lock(mutex_);
    open_ = static_cast<int>(connections_.size());
  }
  void Start() {
    thread_ = std::thread([this] { Run(); });
  }

  int port() const { return port_; }

  // Runs `command` on the loop's thread and waits for its end.
  void Do(std::function<void()> command) {
    MutexLock lock(mutex_);
    commands_.push_back(std::move(command));
    const int64_t ticket = ++given_;
    (void)!write(wake_write_.get(), "", 1);
    while (done_ < ticket) changed_.Wait(mutex_);
  }

  void Reset() {
    Do([this] {
      for (ProxyConnection& connection : connections_) connection.Reset();
      connections_.clear();
    });
  }
  void BlackHole() {
    Do([this] {
      rules_.black_hole = true;
      for (ProxyConnection& connection : connections_) connection.Swallow();
    });
  }
  void SetStalled(bool stalled) {
    Do([this, stalled] {
      rules_.stalled = stalled;
      if (stalled) return;
      rules_.black_hole = false;
      for (int64_t& room : rules_.room) room = std::numeric_limits<int64_t>::max();
    });
  }
  void HoldAfter(int direction, int64_t most) {
    // Commands run with the mutex held.
    Do([this, direction, most]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      rules_.room[direction] = std::max<int64_t>(0, most - forwarded_[direction]);
    });
  }
  void SetDelay(absl::Duration delay) {
    Do([this, delay] { rules_.delay = delay; });
  }

  void SetRate(int64_t bytes_per_second) {
    Do([this, bytes_per_second] { rules_.bytes_per_second = bytes_per_second; });
  }

  int64_t forwarded(int direction) const {
    MutexLock lock(mutex_);
    return forwarded_[direction];
  }
  int connections() const {
    MutexLock lock(mutex_);
    return open_;
  }
  bool BlockUntilForwarded(int direction, int64_t bytes, absl::Duration timeout) const {
    const absl::Duration deadline = Clock::Real().SinceBoot() + timeout;
    MutexLock lock(mutex_);
    while (forwarded_[direction] < bytes) {
      const absl::Duration left = deadline - Clock::Real().SinceBoot();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(mutex_, left);
    }
    return true;
  }

 private:
  void Run() {
    while (!stop_) {
      std::vector<pollfd> polls = {{wake_read_.get(), POLLIN, 0},
                                   {rules_.stalled ? -1 : listener_.get(), POLLIN, 0}};
      const absl::Duration before = Clock::Real().SinceBoot();
      absl::Duration next_due = absl::InfiniteDuration();
      for (const ProxyConnection& connection : connections_) {
        std::array<pollfd, 2> wanted{};
        connection.Want(rules_, before, wanted.data());
        polls.insert(polls.end(), wanted.begin(), wanted.end());
        next_due = std::min(next_due, connection.NextDue(before));
      }
      poll(polls.data(), static_cast<nfds_t>(polls.size()), TimeoutMs(next_due - before));
      MoveAll(polls);
      if (polls[1].revents != 0) Accept();
      RunCommands();
    }
  }

  static int TimeoutMs(absl::Duration left) {
    if (left == absl::InfiniteDuration()) return -1;
    return static_cast<int>(std::min<int64_t>(
        1000, absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
  }

  void MoveAll(const std::vector<pollfd>& polls) {
    int64_t moved[2] = {0, 0};
    const absl::Duration now = Clock::Real().SinceBoot();
    const pollfd* wanted = polls.data() + 2;
    for (auto connection = connections_.begin(); connection != connections_.end(); wanted += 2) {
      if (connection->Move(rules_, now, wanted, moved)) {
        ++connection;
        continue;
      }
      // Both sides ended it, or one broke it; then the other sees a reset, too.
      connection->Reset();
      connection = connections_.erase(connection);
    }
    MutexLock lock(mutex_);
    forwarded_[0] += moved[0];
    forwarded_[1] += moved[1];
    open_ = static_cast<int>(connections_.size());
    changed_.NotifyAll();
  }

  void Accept() {
    UniqueFd caller(accept(listener_.get(), nullptr, nullptr));
    if (!caller.valid()) return;
    SetCloseOnExec(caller.get());
    UniqueFd target;
    if (!rules_.black_hole) {
      target = NewTcpSocket();
      // It is in progress or refused; the first read or write shows which.
      (void)connect(target.get(), reinterpret_cast<const sockaddr*>(&target_), sizeof(target_));
    }
    connections_.emplace_back(std::move(caller), std::move(target), rules_.black_hole);
  }

  void RunCommands() {
    char bytes[64];
    while (read(wake_read_.get(), bytes, sizeof(bytes)) > 0) {
    }
    MutexLock lock(mutex_);
    for (const std::function<void()>& command : commands_) command();
    done_ += static_cast<int64_t>(commands_.size());
    commands_.clear();
    open_ = static_cast<int>(connections_.size());
    changed_.NotifyAll();
  }

  const UniqueFd listener_;
  const int port_;
  const sockaddr_in target_;
  UniqueFd wake_read_;
  UniqueFd wake_write_;
  std::thread thread_;
  // Used by the loop's thread only.
  std::list<ProxyConnection> connections_;
  ProxyRules rules_;
  bool stop_ = false;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<std::function<void()>> commands_ ABSL_GUARDED_BY(mutex_);
  int64_t given_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t forwarded_[2] ABSL_GUARDED_BY(mutex_) = {0, 0};
  int open_ ABSL_GUARDED_BY(mutex_) = 0;
};

FaultProxy::FaultProxy(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) { loop_->Start(); }
FaultProxy::~FaultProxy() = default;

std::unique_ptr<FaultProxy> FaultProxy::Between(UniqueFd first, UniqueFd second) {
  auto loop = std::make_unique<Loop>(UniqueFd(), 0, sockaddr_in{});
  loop->Add(std::move(first), std::move(second));
  return std::unique_ptr<FaultProxy>(new FaultProxy(std::move(loop)));
}

absl::StatusOr<std::unique_ptr<FaultProxy>> FaultProxy::Listen(absl::string_view listen_at,
                                                               absl::string_view target) {
  ASSIGN_OR_RETURN(sockaddr_in address, ParseAddress(listen_at));
  ASSIGN_OR_RETURN(const sockaddr_in target_address, ParseAddress(target));
  UniqueFd listener = NewTcpSocket();
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  socklen_t size = sizeof(address);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(listener.get(), 64) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listen at ", listen_at));
  }
  auto loop = std::make_unique<Loop>(std::move(listener), ntohs(address.sin_port), target_address);
  return std::unique_ptr<FaultProxy>(new FaultProxy(std::move(loop)));
}

int FaultProxy::port() const { return loop_->port(); }
void FaultProxy::Reset() { loop_->Reset(); }
void FaultProxy::BlackHole() { loop_->BlackHole(); }
void FaultProxy::Stall() { loop_->SetStalled(true); }
void FaultProxy::Resume() { loop_->SetStalled(false); }
void FaultProxy::SetDelay(absl::Duration each_way) { loop_->SetDelay(each_way); }
void FaultProxy::SetRate(int64_t bytes_per_second) { loop_->SetRate(bytes_per_second); }
void FaultProxy::HoldAfter(Direction direction, int64_t most) {
  loop_->HoldAfter(static_cast<int>(direction), most);
}

int64_t FaultProxy::forwarded(Direction direction) const {
  return loop_->forwarded(static_cast<int>(direction));
}
bool FaultProxy::BlockUntilForwarded(Direction direction, int64_t bytes,
                                     absl::Duration timeout) const {
  return loop_->BlockUntilForwarded(static_cast<int>(direction), bytes, timeout);
}
int FaultProxy::connections() const { return loop_->connections(); }

}  // namespace gpuctl
