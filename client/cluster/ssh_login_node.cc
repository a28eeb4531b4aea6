#include "client/cluster/ssh_login_node.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/hosts/resolve_target.h"
#include "client/hosts/ssh_config.h"
#include "client/link/link.h"
#include "client/programs/node_scripts.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// Commands have limits of their own; this is for a login node that does not answer.
constexpr absl::Duration kAnswersWithin = absl::Seconds(60);
// A connection that was idle for longer may be dead without a word.
constexpr absl::Duration kKept = absl::Seconds(30);

class SshLoginNode : public LoginNode {
 public:
  SshLoginNode(SshAddress address, std::unique_ptr<LinkFactory> links, Clock& clock)
      : address_(std::move(address)), links_(std::move(links)), clock_(clock) {}

  const SshAddress& address() const override { return address_; }

  absl::StatusOr<CommandAnswer> Run(const std::string& command, absl::string_view input) override {
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
  const std::unique_ptr<LinkFactory> links_;
  Clock& clock_;
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
  return std::make_shared<SshLoginNode>(std::move(address), MakeSshLinkFactory(std::move(options)),
                                        context.clock);
}

}  // namespace gpuctl
