#include "client/reach/port_forward.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/programs/node_scripts.h"
#include "client/reach/local_port.h"
#include "client/reach/open_ssh.h"
#include "client/reach/run_script.h"
#include "common/base/backoff.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr char kMark[] = "GPUCTL-FORWARD 1";
constexpr absl::Duration kFirstWait = absl::Seconds(1);
constexpr absl::Duration kLongestWait = absl::Seconds(30);
// Time for ssh to connect and log in: TryLogin has just done the same.
constexpr absl::Duration kReadyWithin = absl::Seconds(60);
// Time for ssh to end when it is asked to.
constexpr absl::Duration kEndWithin = absl::Seconds(2);
constexpr size_t kMaxText = 8 << 10;
constexpr size_t kMaxLine = 300;
constexpr size_t kMaxTold = 20;

// A child with pipes; it ends with the object.
class Child {
 public:
  static absl::StatusOr<std::unique_ptr<Child>> Start(std::vector<std::string> argv) {
    constexpr char kDoing[] = "start ssh";
    ASSIGN_OR_RETURN(FdPair in, MakePipe(kDoing));
    ASSIGN_OR_RETURN(FdPair out, MakePipe(kDoing));
    ASSIGN_OR_RETURN(FdPair err, MakePipe(kDoing));
    SpawnOptions spawn;
    spawn.argv = std::move(argv);
    spawn.stdin_fd = in.first.get();
    spawn.stdout_fd = out.second.get();
    spawn.stderr_fd = err.second.get();
    spawn.env = {kLifeline};
    spawn.new_session = true;  // a Ctrl-C at gpuctl's terminal must not reach it
    ASSIGN_OR_RETURN(const pid_t pid, Spawn(spawn));
    return std::unique_ptr<Child>(
        new Child(pid, std::move(in.second), std::move(out.first), std::move(err.first)));
  }
  ~Child() {
    in_.reset();
    kill(pid_, SIGTERM);
    const absl::Duration end = Clock::Real().SinceBoot() + kEndWithin;
    while (waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (Clock::Real().SinceBoot() >= end) {
        kill(pid_, SIGKILL);
        while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
        return;
      }
      poll(nullptr, 0, 5);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  int out() const { return out_.get(); }
  int err() const { return err_.get(); }

 private:
  Child(pid_t pid, UniqueFd in, UniqueFd out, UniqueFd err)
      : pid_(pid), in_(std::move(in)), out_(std::move(out)), err_(std::move(err)) {}
  const pid_t pid_;
  UniqueFd in_, out_, err_;
};

// Reads once and appends to `text`, of which it keeps the end. Returns false at the end.
bool ReadMore(int fd, std::string& text) {
  char bytes[4096];
  const ssize_t count = read(fd, bytes, sizeof(bytes));
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  text.append(bytes, static_cast<size_t>(count));
  if (text.size() > kMaxText) text.erase(0, text.size() - kMaxText);
  return count > 0;
}

bool SamePorts(const std::vector<PortPair>& pairs) {
  return std::all_of(pairs.begin(), pairs.end(),
                     [](const PortPair& pair) { return IsFreeLocalPort(pair.local); });
}

}  // namespace

std::string LocalUrl(const PortPair& pair) { return absl::StrCat("http://127.0.0.1:", pair.local); }

PortForward::PortForward(CommandContext& context, RunRow row, std::vector<PortPair> pairs)
    : context_(context), row_(std::move(row)), asked_(std::move(pairs)), worker_(context.clock) {}

PortForward::~PortForward() { (void)Cancel(absl::ZeroDuration()); }

absl::Status PortForward::Start() {
  RETURN_IF_ERROR(cancel_.Open());
  return worker_.Start([this] { Run(); });
}

bool PortForward::Cancel(absl::Duration patience) {
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
  }
  cancel_.Wake();
  return worker_.Finish(patience);
}

bool PortForward::cancelled() {
  MutexLock lock(mutex_);
  return cancelled_;
}

bool PortForward::Sleep(absl::Duration time) {
  pollfd waited{cancel_.fd(), POLLIN, 0};
  poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(time)));
  return cancelled();
}

void PortForward::Tell(std::string notice) {
  worker_.Update([&](News& news) { news.notices.push_back(std::move(notice)); });
  worker_.Wake();
}

void PortForward::Run() {
  Backoff backoff(kFirstWait, kLongestWait);
  bool told = false;
  while (!cancelled()) {
    bool worked = false;
    const absl::Status ended = ForwardOnce(worked);
    if (cancelled()) return;
    // A machine that was given back does not come again.
    const bool passing = absl::IsUnavailable(ended) && FaultOf(ended) != LinkFault::kReleased;
    if (!passing || !ever_) {
      worker_.Update([&](News& news) { news.result = ended; });
      return;
    }
    if (worked) {
      backoff.Reset();
      told = false;
    }
    if (!std::exchange(told, true)) {
      Tell(absl::StrCat(
          "the connection to ", row_.target.name,
          " broke, and what went over it has ended; forwarding again once it answers"));
    }
    if (Sleep(backoff.Next())) return;
  }
}

absl::Status PortForward::ForwardOnce(bool& worked) {
  // Made anew, because a rented machine may have been given back meanwhile.
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context_, row_.target));
  if (const absl::Status status = links->TryLogin(); !status.ok()) {
    return ExplainLinkError(status, row_.target);
  }
  if (cancelled()) return absl::OkStatus();
  RETURN_IF_ERROR(ChoosePorts());
  ASSIGN_OR_RETURN(std::vector<std::string> argv, SshCommandFor(context_, row_, *links));
  argv.insert(argv.end(), {"-T", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o",
                           "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"});
  for (const PortPair& pair : pairs_) argv.insert(argv.end(), {"-L", ForwardArgument(pair)});
  argv.insert(argv.end(), {SshHostOf(row_), ShellCommand(StayScript(row_.target.root, kMark))});
  return Serve(std::move(argv), worked);
}

// Chooses the ports here, and keeps them as long as it can: the user has their numbers.
absl::Status PortForward::ChoosePorts() {
  if (!pairs_.empty() && SamePorts(pairs_)) return absl::OkStatus();
  pairs_ = asked_;
  RETURN_IF_ERROR(ChooseLocalPorts(row_.target, pairs_));
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const PortPair& pair = pairs_[i];
    if (asked_[i].local != 0 || pair.local == pair.port) continue;
    Tell(absl::StrCat("port ", pair.port, " here is in use: port ", pair.port, " of ", row_.name,
                      " is ", pair.local, " here, NOT ", pair.port));
  }
  return absl::OkStatus();
}

absl::Status PortForward::Serve(std::vector<std::string> argv, bool& worked) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Child> ssh, Child::Start(std::move(argv)));
  const absl::Duration deadline = Clock::Real().SinceBoot() + kReadyWithin;
  std::string out = "\n", err;
  const std::string mark = absl::StrCat("\n", kMark, "\n");
  bool open = true, err_open = true;
  while (open && !cancelled()) {
    pollfd waited[3] = {{ssh->out(), POLLIN, 0},
                        {err_open ? ssh->err() : -1, POLLIN, 0},
                        {cancel_.fd(), POLLIN, 0}};
    poll(waited, 3, worked ? -1 : 1000);
    if (waited[1].revents != 0) err_open = ReadMore(ssh->err(), err);
    if (worked) TellSshLines(err);
    if (waited[0].revents != 0) open = ReadMore(ssh->out(), out);
    if (!worked && absl::StrContains(out, mark)) {
      worked = ever_ = true;
      err.clear();
      Ready();
    }
    if (!worked && Clock::Real().SinceBoot() >= deadline) {
      return absl::UnavailableError("forward ports: ssh did not log in within a minute");
    }
  }
  if (cancelled() || worked) return absl::UnavailableError("ssh ended");
  // Its last words; what it started may keep the pipe open a little longer.
  pollfd last_words{ssh->err(), POLLIN, 0};
  while (err_open && poll(&last_words, 1, 500) > 0) err_open = ReadMore(ssh->err(), err);
  const std::string words(absl::StripAsciiWhitespace(err));
  const absl::string_view last =
      absl::string_view(words).substr(words.size() - std::min(words.size(), kMaxLine));
  const std::string message =
      absl::StrCat("forward ports: ssh ended", last.empty() ? "" : ": ", last);
  return ever_ ? absl::UnavailableError(message) : absl::FailedPreconditionError(message);
}

void PortForward::Ready() {
  told_.clear();
  worker_.Update([&](News& news) { news.ready = pairs_; });
  worker_.Wake();
}

// Tells whole lines of ssh's messages, each kind once: "channel 3: open failed: …".
void PortForward::TellSshLines(std::string& text) {
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
    const std::string line(absl::StripAsciiWhitespace(text.substr(0, std::min(end, kMaxLine))));
    text.erase(0, end + 1);
    std::string kind = line;
    kind.erase(std::remove_if(kind.begin(), kind.end(), absl::ascii_isdigit), kind.end());
    if (line.empty() || told_.size() >= kMaxTold || !told_.insert(kind).second) continue;
    Tell(absl::StrCat("ssh: ", line));
  }
}

}  // namespace gpuctl
