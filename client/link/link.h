// One connection from the laptop to a node: ssh session, exec channel to `gpuctl-agent bridge`,
// gRPC channel over it. A broken link is never repaired, only replaced.
#ifndef GPUCTL_CLIENT_LINK_LINK_H_
#define GPUCTL_CLIENT_LINK_LINK_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/base/node_target.h"
#include "client/link/remote_end.h"
#include "client/link/ssh_session.h"
#include "client/programs/node_programs.h"
#include "common/base/unique_fd.h"
#include "common/files/byte_stream.h"

namespace gpuctl {

struct AgentCalls;

// The magic of a bridge's first line, and of the line that ExecLine writes before the command's
// output.
inline constexpr char kBridgeMagic[] = "GPUCTL-BRIDGE 1 ";
inline constexpr char kExecMagic[] = "GPUCTL-EXEC 1";
// Returns the line that a node's login shell gets for a script of ours.
std::string ExecLine(const std::string& script);

class Link {
 public:
  virtual ~Link() = default;
  virtual const AgentCalls& agent() = 0;
  // Returns OK while the link lives; afterwards the reason of its end. Safe from any thread.
  virtual absl::Status status() = 0;
  // For a link over which a call failed: true when it is certain that nothing sent over it reached
  // this node's agent ("": any agent): no program is there, or another node answers. Takes <= 2 s.
  virtual bool NeverReached(absl::string_view /*node_id*/) { return false; }
  // Returns the time since the last byte from the node. Safe from any thread.
  virtual absl::Duration Silence() = 0;
  // Ends every call at once with UNAVAILABLE. Safe from any thread.
  virtual void Break() = 0;
};

// A raw byte pipe to a user's command on the node, in a separate ssh session.
class RemoteCommand {
 public:
  virtual ~RemoteCommand() = default;
  // Returns a blocking socket to the command's stdin and stdout. shutdown(SHUT_WR) closes its
  // stdin.
  virtual int fd() = 0;
  // Waits for the command's end and returns its exit status (128+n for a signal), or the reason why
  // the session broke. Call it after fd() reached its end.
  virtual absl::StatusOr<int> Wait() = 0;
  // Returns the command's stderr so far, at most 64 KiB of it.
  virtual std::string Stderr() = 0;
};

// A raw byte pipe to a command of the agent (`receive`, `send`), for much content: it uses buffers
// in memory. The command ends with the object.
class AgentStream : public ByteStream {
 public:
  // Returns the time that a packet takes there and back, measured when the connection was made.
  virtual absl::Duration RoundTrip() = 0;
};

// Make a link of a bridge, and a command of a shell line, of which `fd` has the bytes.
// `on_no_agent` is called when the link is destroyed, if the node turned out to have no agent.
std::unique_ptr<Link> MakeLinkOver(std::unique_ptr<RemoteEnd> end, UniqueFd fd,
                                   std::function<void()> on_no_agent);
std::unique_ptr<RemoteCommand> MakeCommandOver(std::unique_ptr<RemoteEnd> end, UniqueFd fd);

class LinkFactory {
 public:
  virtual ~LinkFactory() = default;
  // Returns a new link; delivers the node bundle first when the node lacks it. Errors: UNAVAILABLE
  // (unreachable), UNAUTHENTICATED (no key accepted), PERMISSION_DENIED (the host key changed),
  // FAILED_PRECONDITION (the node cannot run the agent, or there are no programs for its platform),
  // UNIMPLEMENTED (gpuctl has programs for no such machine).
  virtual absl::StatusOr<std::unique_ptr<Link>> Connect() = 0;
  // Does the same for a few short calls: the link may share a connection with other processes.
  virtual absl::StatusOr<std::unique_ptr<Link>> ConnectForCalls() { return Connect(); }
  // Runs a shell command line on the node.
  virtual absl::StatusOr<std::unique_ptr<RemoteCommand>> Run(const std::string& command) = 0;
  // Does the same, and passes the command's stderr to `on_stderr` as it comes, on the session's
  // thread.
  virtual absl::StatusOr<std::unique_ptr<RemoteCommand>> RunStreaming(
      const std::string& command, std::function<void(absl::string_view)> on_stderr) {
    (void)on_stderr;
    return Run(command);
  }
  // Runs `gpuctl-agent <arguments>` of the delivered bundle against the node's root. If the node
  // turns out to have no bundle, the command ends at once, and the next call delivers it.
  virtual absl::StatusOr<std::unique_ptr<AgentStream>> RunAgent(const std::string& arguments) = 0;
  // Returns the line that starts a bridge which waits for its first byte; nothing when this laptop
  // does not know that the node has the programs.
  virtual std::optional<std::string> WaitingBridge() { return std::nullopt; }
  // Tells that the node lacks the programs that this laptop noted.
  virtual void ForgetPrograms() {}
  // Returns the node's platform; nothing before the first link, and where it is not known.
  virtual std::optional<NodePlatform> platform() { return std::nullopt; }
  // Returns a connection to the node's ssh server, before any word of ssh: for another program's
  // ssh. It is a blocking socket. UNAVAILABLE when the server cannot be reached.
  virtual absl::StatusOr<UniqueFd> Dial() {
    return absl::UnimplementedError(
        "connect to the ssh server: this node is reached in another way");
  }
  // Connects, checks the host key, logs in, and leaves. Errors are those of Connect.
  virtual absl::Status TryLogin() { return OpenSshSession().status(); }
  // Does the same at the address that this object has now, whatever a market says: for a machine
  // that has just been rented.
  virtual absl::Status Reach() { return OpenSshSession().status(); }
  // Returns an ssh session without an agent.
  virtual absl::StatusOr<std::unique_ptr<SshSession>> OpenSshSession() {
    return absl::UnimplementedError("open an ssh session: this node is reached in another way");
  }
};

// The paths of the keys and of the files to deliver, and options of the connection.
struct SshLinkOptions {
  NodeTarget target;
  std::string state_dir;  // keys and pinned host keys: <state_dir>/ssh/…
  NodePrograms programs;  // what can be delivered, for each platform
  absl::Duration connect_timeout = absl::Seconds(15);
  // Replaces the connection that `target` describes, for tests: returns a connected stream socket.
  std::function<absl::StatusOr<UniqueFd>()> dial;
  // Called when a host key is pinned that the user's ssh does not know.
  std::function<void(absl::string_view fingerprint)> on_new_host_key;
  // Gets the lines that the target's ProxyCommand writes to its stderr: see StartProxyCommand.
  std::function<void(absl::string_view line)> on_proxy_line;
  bool trace = false;
};
std::unique_ptr<LinkFactory> MakeSshLinkFactory(SshLinkOptions options);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_LINK_H_
