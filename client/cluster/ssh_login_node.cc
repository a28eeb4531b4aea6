#include "client/cluster/ssh_login_node.h"

#include <poll.h>

#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/wake_pipe.h"
#include "client/hosts/resolve_target.h"
#include "client/hosts/ssh_config.h"
#include "client/link/link.h"
#include "client/programs/node_scripts.h"
#include "client/terminal/console.h"
#include "client/terminal/panel_terminal.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// Commands have limits of their own; this is for a login node that does not answer.
constexpr absl::Duration kAnswersWithin = absl::Seconds(60);
// A connection that was idle for longer may be dead without a word.
constexpr absl::Duration kKept = absl::Seconds(30);

constexpr absl::Duration kSaysSoAfter = absl::Seconds(3);

// Says once that Slurm is slow, when this object lives for longer than a command usually takes; a
// quick answer of a later one makes it say so again. Of several at a time one speaks.
class SlowWord {
 public:
  SlowWord(const Console& console, const std::string& host) {
    if (!done_.Open().ok()) return;
    thread_ = std::thread([this, console, host] {
      pollfd polled{done_.fd(), POLLIN, 0};
      const int ended = poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(kSaysSoAfter)));
      if (ended > 0) {
        said = false;
      } else if (!PanelIsShown() && !said.exchange(true)) {
        console.Say(absl::StrCat("Slurm does not answer yet (", host, "); waiting"));
      }
    });
  }
  ~SlowWord() {
    done_.Wake();
    if (thread_.joinable()) thread_.join();
  }

 private:
  static inline std::atomic<bool> said{false};
  WakePipe done_;
  std::thread thread_;
};

class SshLoginNode : public LoginNode {
 public:
  SshLoginNode(SshAddress address, std::string host, std::unique_ptr<LinkFactory> links,
               const CommandContext& context)
      : address_(std::move(address)),
        host_(std::move(host)),
        links_(std::move(links)),
        clock_(context.clock),
        console_(context) {}

  const SshAddress& address() const override { return address_; }

  absl::StatusOr<CommandAnswer> Run(const std::string& command, absl::string_view input) override {
    const SlowWord slow(console_, host_);
    const absl::Duration now = clock_.SinceBoot();
    if (session_ != nullptr && now - used_ > kKept) session_.reset();
    if (session_ == nullptr) {
      ASSIGN_OR_RETURN(session_, links_->OpenSshSession());
    }
    absl::StatusOr<SshSession::Result> result =
        session_->RunToEnd(ShellCommand(command), input, kAnswersWithin);
    used_ = clock_.SinceBoot();
    // A connection that broke has no exit code.
    if (result.ok() && result->exit_code < 0) {
      result = absl::UnknownError("the connection to the login node broke");
    }
    if (!result.ok()) {
      session_.reset();
      return absl::UnknownError(
          absl::StrCat("run a command on the login node: ", result.status().message()));
    }
    return CommandAnswer{result->exit_code, std::move(result->out), std::move(result->err)};
  }

 private:
  const SshAddress address_;
  const std::string host_;  // as the user named it
  const std::unique_ptr<LinkFactory> links_;
  Clock& clock_;
  const Console console_;  // a copy: another thread speaks
  std::unique_ptr<SshSession> session_;
  absl::Duration used_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<LoginNode>> MakeSshLoginNode(CommandContext& context,
                                                            const std::string& host) {
  TargetFlags flags;
  flags.host = host;
  SshLinkOptions options;
  ASSIGN_OR_RETURN(options.target, ResolveTarget(flags));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(SshAddress address, ParseSshDestination(host));
  options.state_dir = paths.state_dir;
  options.trace = context.trace;
  options.on_new_host_key = [&context, name = options.target.name](absl::string_view fingerprint) {
    context.Warn(absl::StrCat("first contact with ", name, ": its host key is ", fingerprint,
                              ", and no other is accepted from now on"));
  };
  return std::make_shared<SshLoginNode>(std::move(address), host,
                                        MakeSshLinkFactory(std::move(options)), context);
}

}  // namespace gpuctl
