#include "client/link/link.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/allocation_step.h"
#include "client/base/exit_codes.h"
#include "client/base/host_keys.h"
#include "client/base/known_hosts.h"
#include "client/base/reach_error.h"
#include "client/link/agent_calls.h"
#include "client/link/local_side.h"
#include "client/link/local_sshd.h"
#include "client/link/proxy_command.h"
#include "client/link/pump.h"
#include "client/link/ssh_session.h"
#include "client/programs/bundle_delivery.h"
#include "client/programs/node_scripts.h"
#include "common/base/clock.h"
#include "common/base/link_fault.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"
#include "common/transfer/error_detail.h"
#include "common/transfer/fault_line.h"

namespace gpuctl {
namespace {

// The type of the host keys that rented machines get.
constexpr char kGivenKeyAlgorithm[] = "ssh-ed25519";
constexpr int kShellNotFound = 127;
constexpr int kShellNotRunnable = 126;
constexpr int64_t kControlWindow = 4 << 20;
constexpr int64_t kLeastPullWindow = 3 << 19;  // bytes; libssh begins with a little less
constexpr int64_t kLargestPullWindow = 8 << 20;
constexpr int64_t kLeastAhead = 256 << 10;
constexpr absl::Duration kDeliveryStepWithin = absl::Minutes(10);
// Limit for the silence of a transfer, which may be long: the node reads a large tree, or syncs it.
constexpr absl::Duration kTransferDeadAfter = absl::Minutes(1);

bool ShellFoundNone(std::optional<int> exit_code) {
  return exit_code == kShellNotFound || exit_code == kShellNotRunnable;
}

// Returns the node's message for an error: the end of stderr, else of the text before the magic.
std::string LastWords(RemoteEnd& pump) {
  std::string text = pump.stderr_text();
  if (absl::StripAsciiWhitespace(text).empty()) text = pump.preamble();
  absl::string_view words = absl::StripAsciiWhitespace(text);
  if (words.size() > 400) words.remove_prefix(words.size() - 400);
  return std::string(words);
}

class SshLink : public Link {
 public:
  SshLink(std::unique_ptr<RemoteEnd> pump, UniqueFd fd, std::function<void()> on_no_agent)
      : pump_(std::move(pump)),
        agent_{gpuctl::v1::Agent::NewStub(NodeChannel(std::move(fd)))},
        on_no_agent_(std::move(on_no_agent)) {}
  ~SshLink() override {
    if (BundleMissing() && on_no_agent_) on_no_agent_();
  }

  const AgentCalls& agent() override { return agent_; }

  absl::Status status() override {
    const absl::Status ended = pump_->status();
    if (ended.ok()) return ended;
    const std::optional<int> exit_code = pump_->exit_code();
    const std::string words = LastWords(*pump_);
    // Without the magic line the bridge did not begin; its stderr, or the shell's, has the reason.
    if (!pump_->magic_line().has_value() && exit_code.has_value()) {
      const std::string message = absl::StrCat("start the agent's bridge: exit ", *exit_code,
                                               words.empty() ? "" : ": ", words);
      // The next link delivers a missing program and restarts a killed one; else a person helps.
      if (BundleMissing()) {
        return WithFault(absl::UnavailableError(message), LinkFault::kAgentCannotRun);
      }
      // An allocation may be over, or not begun: its scheduler knows.
      if (*exit_code == kNotHeldExit) {
        return WithFault(absl::UnavailableError(message), LinkFault::kNotHeld);
      }
      const bool may_change = *exit_code > 128 || absl::StartsWith(words, "srun:");
      return FromPeer(
          may_change ? absl::UnavailableError(message) : absl::FailedPreconditionError(message),
          FindFaultLine(pump_->preamble()));
    }
    return ended;
  }

  bool BundleMissing() {
    const std::optional<int> exit_code = pump_->exit_code();
    return !pump_->magic_line().has_value() && ShellFoundNone(exit_code);
  }

  bool NeverReached(absl::string_view node_id) override {
    Clock& clock = Clock::Real();
    const absl::Duration deadline = clock.SinceBoot() + absl::Seconds(2);
    // The channel's end comes before the exit code.
    while (pump_->status().ok() && !pump_->magic_line().has_value() &&
           clock.SinceBoot() < deadline) {
      clock.SleepFor(absl::Milliseconds(5));
    }
    const std::optional<std::string> line = pump_->magic_line();  // see agent/bridge.h
    return line.has_value() ? !absl::StrContains(*line, node_id) : BundleMissing();
  }

  absl::Duration Silence() override { return pump_->Silence(); }
  void Break() override { pump_->Stop(); }

 private:
  std::unique_ptr<RemoteEnd> pump_;
  const AgentCalls agent_;
  const std::function<void()> on_no_agent_;
};

class SshCommand : public RemoteCommand {
 public:
  SshCommand(std::unique_ptr<RemoteEnd> pump, UniqueFd fd)
      : pump_(std::move(pump)), fd_(std::move(fd)) {}
  int fd() override { return fd_.get(); }
  absl::StatusOr<int> Wait() override { return pump_->WaitForExit(); }
  std::string Stderr() override { return pump_->stderr_text(); }

 private:
  std::unique_ptr<RemoteEnd> pump_;
  UniqueFd fd_;
};

class SshAgentStream : public AgentStream {
 public:
  // `local` belongs to the pump.
  SshAgentStream(std::unique_ptr<Pump> pump, StreamSide& local, absl::Duration round_trip,
                 std::string delivered_file)
      : pump_(std::move(pump)),
        local_(local),
        round_trip_(round_trip),
        delivered_file_(std::move(delivered_file)) {}
  ~SshAgentStream() override {
    // The shell found no agent: the delivered bundle was removed.
    const std::optional<int> exit_code = pump_->exit_code();
    if (ShellFoundNone(exit_code)) unlink(delivered_file_.c_str());
  }
  absl::Status Receive(ByteBuffer& into) override { return local_.Receive(into); }
  absl::Status Send(ByteBuffer& from) override { return local_.Send(from); }
  absl::Duration RoundTrip() override { return round_trip_; }

 private:
  const std::unique_ptr<Pump> pump_;
  StreamSide& local_;
  const absl::Duration round_trip_;
  const std::string delivered_file_;
};

// Returns the bytes in transit on such a path at 1 GB/s; at least `least`.
int64_t PathBytes(absl::Duration round_trip, int64_t least) {
  return std::max(least, static_cast<int64_t>(1e9 * absl::ToDoubleSeconds(round_trip)));
}

// Returns options for much content in either direction. With more ahead than the path holds, sshd
// spends its time on the memory of its read-ahead.
PumpOptions OptionsFor(const SshSession& session) {
  PumpOptions options;
  options.magic = kExecMagic;
  options.window_bytes =
      std::min(PathBytes(session.round_trip(), kLeastPullWindow), kLargestPullWindow);
  // OpenSSH grants a new window after it has passed on three packets; another server might wait for
  // more than this limit allows.
  if (session.IsOpenSsh()) {
    options.max_ahead_bytes = PathBytes(session.round_trip(), kLeastAhead);
  }
  return options;
}

class SshLinkFactory : public LinkFactory {
 public:
  explicit SshLinkFactory(SshLinkOptions options)
      : options_(std::move(options)), bundles_(options_.programs, options_.state_dir) {}

  absl::StatusOr<std::unique_ptr<Link>> Connect() override {
    absl::StatusOr<std::unique_ptr<Link>> link = ConnectOnce();
    if (!link.ok()) return ReachError(link.status(), options_.target.name);
    return link;
  }

  absl::StatusOr<std::unique_ptr<RemoteCommand>> Run(const std::string& command) override {
    return RunStreaming(command, nullptr);
  }

  absl::StatusOr<std::unique_ptr<RemoteCommand>> RunStreaming(
      const std::string& command, std::function<void(absl::string_view)> on_stderr) override {
    ASSIGN_OR_RETURN(std::unique_ptr<SocketSide> side, SocketSide::Make());
    UniqueFd fd = side->TakeFd();
    ASSIGN_OR_RETURN(std::unique_ptr<Pump> pump,
                     Start(ExecLine(command), std::move(side), std::move(on_stderr)));
    return std::make_unique<SshCommand>(std::move(pump), std::move(fd));
  }

  absl::StatusOr<std::unique_ptr<AgentStream>> RunAgent(const std::string& arguments) override {
    Bundle bundle;
    {
      MutexLock lock(mutex_);
      RETURN_IF_ERROR(Prepare());
      ASSIGN_OR_RETURN(bundle, Delivered());
    }
    ASSIGN_OR_RETURN(std::unique_ptr<StreamSide> side, StreamSide::Make());
    StreamSide& local = *side;
    absl::Duration round_trip;
    ASSIGN_OR_RETURN(std::unique_ptr<Pump> pump, Start(ExecLine(AgentLine(bundle, arguments)),
                                                       std::move(side), nullptr, &round_trip));
    return std::make_unique<SshAgentStream>(std::move(pump), local, round_trip, DeliveredFile());
  }

  std::optional<std::string> WaitingBridge() override {
    MutexLock lock(mutex_);
    const absl::StatusOr<Bundle> bundle = NotedBundle();
    if (!bundle.ok()) return std::nullopt;
    platform_ = bundle->platform;
    return OnNode(ShellCommand(AgentScript(options_.target.root, *bundle, "bridge --wait")));
  }

  void ForgetPrograms() override {
    MutexLock lock(mutex_);
    last_ = std::make_shared<LinkEnd>(LinkEnd{LinkEnd::kBundleMissing});
  }

  std::optional<NodePlatform> platform() override {
    MutexLock lock(mutex_);
    return platform_;
  }

  absl::StatusOr<UniqueFd> Dial() override {
    if (!options_.target.allocation.empty()) {
      return WithHint(absl::UnimplementedError("an allocation has no ssh server of its own"),
                      "gpuctl exec runs commands in it");
    }
    RETURN_IF_ERROR(PrepareAlone());
    absl::StatusOr<ProxyConnection> server = DialServer();
    if (!server.ok()) return ReachError(server.status(), options_.target.name);
    const int fd = server->socket.get();
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return std::move(server->socket);
  }

  absl::Status TryLogin() override {
    const absl::Status status = Reach();
    return status.ok() ? status : ReachError(status, options_.target.name);
  }

  absl::Status Reach() override {
    return options_.target.allocation.empty() ? OpenSshSession().status() : TryStep();
  }

  absl::StatusOr<std::unique_ptr<SshSession>> OpenSshSession() override {
    // A session would be one on the login node.
    if (!options_.target.allocation.empty()) return LinkFactory::OpenSshSession();
    RETURN_IF_ERROR(PrepareAlone());
    return OpenSession();
  }

 private:
  absl::Status Prepare() {
    if (options_.target.provider == "local" && !local_.has_value()) {
      ASSIGN_OR_RETURN(local_, PrepareLocalSshd(JoinPath(options_.state_dir, "ssh/local")));
    }
    return absl::OkStatus();
  }

  absl::Status PrepareAlone() {
    MutexLock lock(mutex_);
    return Prepare();
  }

  // Returns a line for the server's shell by which the node's shell runs `command`.
  std::string OnNode(const std::string& command) const {
    return InStep(options_.target.allocation, options_.target.allocation_node, command);
  }

  std::string AgentLine(const Bundle& bundle, absl::string_view arguments) const {
    return AgentScript(options_.target.root, bundle, AgentArguments(options_.target, arguments));
  }

  // Starts a step that does nothing. UNAVAILABLE: the allocation takes none, or has no holder yet.
  absl::Status TryStep() {
    RETURN_IF_ERROR(PrepareAlone());
    ASSIGN_OR_RETURN(const std::unique_ptr<SshSession> session, OpenSession());
    ASSIGN_OR_RETURN(const SshSession::Result result,
                     session->RunToEnd(OnNode("exit 0"), "", options_.connect_timeout));
    if (result.exit_code == 0) return absl::OkStatus();
    const absl::Status status = absl::UnavailableError(
        absl::StrCat("start a step in job ", options_.target.allocation, ": exit ",
                     result.exit_code, ": ", absl::StripAsciiWhitespace(result.err)));
    return result.exit_code == kNotHeldExit ? WithFault(status, LinkFault::kNotHeld) : status;
  }

  // The words are null when there is no proxy command.
  absl::StatusOr<ProxyConnection> DialServer() {
    if (!options_.dial && !local_.has_value() && !options_.target.proxy_command.empty()) {
      return StartProxyCommand(options_.target.proxy_command, options_.on_proxy_line);
    }
    ASSIGN_OR_RETURN(UniqueFd socket, DialSocket());
    return ProxyConnection{std::move(socket), nullptr};
  }

  absl::StatusOr<UniqueFd> DialSocket() {
    if (options_.dial) return options_.dial();
    if (local_.has_value()) return DialLocalSshd(*local_);
    return ConnectTcp(options_.target.host, options_.target.port, options_.connect_timeout);
  }

  // `compressed` is for the programs: much that compresses well, over a link of which nothing is
  // known yet.
  absl::StatusOr<std::unique_ptr<SshSession>> OpenSession(bool compressed = false) {
    ASSIGN_OR_RETURN(ProxyConnection server, DialServer());
    SshOptions ssh;
    ssh.user = options_.target.user.empty() ? CurrentUser() : options_.target.user;
    ssh.host = options_.target.name;
    ssh.identity_files = options_.target.identity_files;
    ssh.timeout = options_.connect_timeout;
    ssh.compressed = compressed && !local_.has_value();
    if (local_.has_value()) ssh.identity_files = {local_->identity_path};
    // A rented machine learns nothing of the user's other keys.
    ssh.use_agent = IsUsersOwn() && !options_.target.identities_only;
    const std::string pins = JoinPath(options_.state_dir, "ssh/host-keys");
    const std::string pin = PinName(options_.target);
    const bool first = !local_.has_value() && !PathExists(HostKeyFile(pins, pin));
    const std::string& given = options_.target.given_host_key;
    KnownHostKeys known;
    if (!given.empty()) ssh.host_key_algorithms = kGivenKeyAlgorithm;
    if (first && IsUsersOwn()) {
      known = FindKnownHostKeys(options_.target);
      ssh.host_key_algorithms = PreferredHostKeys(known);
    }
    ssh.check_host_key = [&](absl::string_view fingerprint) -> absl::Status {
      if (!given.empty()) {
        RETURN_IF_ERROR(CheckGivenHostKey(options_.target.name, given, fingerprint));
      } else if (first) {
        RETURN_IF_ERROR(CheckKnownHost(options_.target, known, fingerprint));
        if (known.keys.empty() && options_.on_new_host_key) options_.on_new_host_key(fingerprint);
      }
      return CheckHostKey(pins, pin, fingerprint);
    };
    ssh.on_host_key = [this](const std::string& key) {
      // For another program's ssh only, so an error here is none of the link's.
      (void)KeepKnownHost(JoinPath(options_.state_dir, kKnownHostsDir), PinName(options_.target),
                          key);
    };
    absl::StatusOr<std::unique_ptr<SshSession>> session =
        SshSession::Open(std::move(server.socket), ssh);
    if (!absl::IsUnavailable(session.status()) || server.words == nullptr) return session;
    const std::string said = server.words->LastLine();
    if (said.empty()) return session;
    return Annotate(session.status(), absl::StrCat("its ProxyCommand said \"", said, "\""));
  }

  // True for a machine that the user named, false for a rented one and for our own sshd.
  bool IsUsersOwn() const { return options_.target.provider == "ssh"; }

  // Returns the bundle that the node has. Delivers it when the last link ended because the node has
  // none, or when this target never got one of these programs.
  absl::StatusOr<Bundle> Delivered() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (last_ != nullptr && last_->status == LinkEnd::kBundleMissing) {
      unlink(DeliveredFile().c_str());
      last_.reset();
    }
    if (absl::StatusOr<Bundle> noted = NotedBundle(); noted.ok()) {
      platform_ = noted->platform;
      return noted;
    }
    ASSIGN_OR_RETURN(std::unique_ptr<SshSession> session, OpenSession(/*compressed=*/true));
    const auto run = [this, &session](const std::string& command,
                                      absl::string_view input) -> absl::StatusOr<NodeAnswer> {
      ASSIGN_OR_RETURN(SshSession::Result result,
                       session->RunToEnd(OnNode(command), input, kDeliveryStepWithin));
      return NodeAnswer{result.exit_code, std::move(result.out), std::move(result.err)};
    };
    ASSIGN_OR_RETURN(const Bundle bundle, DeliverBundle(run, options_.target.root, bundles_));
    RETURN_IF_ERROR(MakeDirectories(DirName(DeliveredFile())));
    RETURN_IF_ERROR(WriteFileAtomic(DeliveredFile(), DeliveredMark(bundle)));
    platform_ = bundle.platform;
    return bundle;
  }

  // Returns the bundle that was delivered to this target, as far as this laptop knows, when it is
  // the one that would be delivered now. The node's platform is the last word of the note.
  absl::StatusOr<Bundle> NotedBundle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ASSIGN_OR_RETURN(const std::string noted, ReadFileToString(DeliveredFile(), 4096));
    const absl::string_view words = absl::StripTrailingAsciiWhitespace(noted);
    ASSIGN_OR_RETURN(const NodePlatform platform,
                     PlatformOfName(words.substr(words.find_last_of(' ') + 1)));
    ASSIGN_OR_RETURN(const Bundle bundle, bundles_.For(platform));
    if (noted != DeliveredMark(bundle)) return absl::NotFoundError("another bundle is there");
    return bundle;
  }

  std::string DeliveredFile() const {
    const NodeTarget& target = options_.target;
    return HostKeyFile(JoinPath(options_.state_dir, "ssh/delivered"), NameForPrograms(target));
  }
  std::string DeliveredMark(const Bundle& bundle) const {
    return absl::StrCat(bundle.digest, " ", options_.target.root, " ",
                        PlatformName(bundle.platform), "\n");
  }

  // The end of a link, which the next connection considers.
  struct LinkEnd {
    enum Status { kUnknown, kBundleMissing } status = kUnknown;
  };

  absl::StatusOr<std::unique_ptr<Link>> ConnectOnce() {
    const auto end = std::make_shared<LinkEnd>();
    Bundle bundle;
    {
      MutexLock lock(mutex_);
      RETURN_IF_ERROR(Prepare());
      ASSIGN_OR_RETURN(bundle, Delivered());
      last_ = end;
    }
    ASSIGN_OR_RETURN(std::unique_ptr<SshSession> session, OpenSession());
    const std::string script = AgentLine(bundle, "bridge");
    ASSIGN_OR_RETURN(ssh_channel_struct * channel, session->Exec(OnNode(ShellCommand(script))));
    PumpOptions pump;
    pump.window_bytes = kControlWindow;
    pump.magic = kBridgeMagic;
    ASSIGN_OR_RETURN(std::unique_ptr<SocketSide> side, SocketSide::Make());
    UniqueFd fd = side->TakeFd();
    return MakeLinkOver(
        std::make_unique<Pump>(std::move(session), channel, std::move(side), std::move(pump)),
        std::move(fd), [end] { end->status = LinkEnd::kBundleMissing; });
  }

  absl::StatusOr<std::unique_ptr<Pump>> Start(const std::string& command,
                                              std::unique_ptr<LocalSide> local,
                                              std::function<void(absl::string_view)> on_stderr,
                                              absl::Duration* round_trip = nullptr) {
    RETURN_IF_ERROR(PrepareAlone());
    ASSIGN_OR_RETURN(std::unique_ptr<SshSession> session, OpenSession());
    ASSIGN_OR_RETURN(ssh_channel_struct * channel, session->Exec(OnNode(command)));
    PumpOptions pump = OptionsFor(*session);
    if (round_trip != nullptr) {
      *round_trip = session->round_trip();
      pump.dead_after = kTransferDeadAfter;
    }
    pump.on_stderr = std::move(on_stderr);
    return std::make_unique<Pump>(std::move(session), channel, std::move(local), std::move(pump));
  }

  const SshLinkOptions options_;
  // Made once, by the first use, under the mutex; then only read.
  std::optional<LocalSshd> local_;
  Mutex mutex_;
  NodeBundles bundles_ ABSL_GUARDED_BY(mutex_);
  std::optional<NodePlatform> platform_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<LinkEnd> last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::string ExecLine(const std::string& script) {
  return ShellCommand(absl::StrCat("echo; echo ", kExecMagic, "; ", script));
}

std::unique_ptr<Link> MakeLinkOver(std::unique_ptr<RemoteEnd> end, UniqueFd fd,
                                   std::function<void()> on_no_agent) {
  return std::make_unique<SshLink>(std::move(end), std::move(fd), std::move(on_no_agent));
}

std::unique_ptr<RemoteCommand> MakeCommandOver(std::unique_ptr<RemoteEnd> end, UniqueFd fd) {
  return std::make_unique<SshCommand>(std::move(end), std::move(fd));
}

std::unique_ptr<LinkFactory> MakeSshLinkFactory(SshLinkOptions options) {
  // A write to a broken link must return an error code, not raise a signal.
  signal(SIGPIPE, SIG_IGN);
  return std::make_unique<SshLinkFactory>(std::move(options));
}

}  // namespace gpuctl
