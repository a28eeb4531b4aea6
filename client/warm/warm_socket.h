// The place and the messages of a warm link: an ssh connection to a node that a small process of
// ours keeps open for the commands that follow. Commands ask it for channels over a Unix socket.
//
// A command connects and sends kAsk, with the line for the node's shell and one end of a socket
// pair for the bytes. The holder answers kHere at once, kOpen when the node has shown that it
// lives, and only after that runs the line: a command that stops waiting before kOpen can ask
// elsewhere, and nothing runs twice. Messages go on until kEnd, or until a side closes the socket.
#ifndef GPUCTL_CLIENT_WARM_WARM_SOCKET_H_
#define GPUCTL_CLIENT_WARM_WARM_SOCKET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/base/node_target.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// The most holders of one state directory.
constexpr int kMostHolders = 16;

struct WarmPlace {
  std::string socket;
  std::string lock;  // locked while the holder lives; has its process id
};

// Returns where the holder for `target` is, if there is one. The name depends on all that a
// connection depends on: address, user, keys, the pinned host key, this version of gpuctl, this
// computer. FAILED_PRECONDITION when the path is too long for a socket, or the directory is not
// this user's alone, or cannot be made.
absl::StatusOr<WarmPlace> FindWarmPlace(const std::string& state_dir, const NodeTarget& target);
std::string WarmDirectory(const std::string& state_dir);

enum class WarmWord : uint8_t {
  // To the holder.
  kAsk = 'R',    // AskBytes, with a descriptor
  kState = 'S',  // answered by kState with JSON
  kLeave = 'Q',  // the holder ends, with all channels
  // To the command.
  kHere = 'A',      // the round trip in milliseconds
  kQueued = 'W',    // the node allows no more channels now; kOpen or kRefused comes within 3 s
  kOpen = 'O',      // the node lives, and the line runs now
  kRefused = 'N',   // the line did not run and will not; the reason
  kMagic = 'M',     // the rest of the line with the magic
  kPulse = 'P',     // every half a second: milliseconds since the last byte from the node
  kStderr = 'E',    // bytes
  kPreamble = 'B',  // what came in place of the magic
  kEnd = 'X',       // the exit code, or -1 and a blank and the reason why there is none
};

// A line for the node's shell.
struct WarmAsk {
  std::string magic;
  // True: the holder starts the next one of this line in advance.
  bool repeats = false;
  std::string line;  // without NUL
};
std::string AskBytes(const WarmAsk& ask);
std::optional<WarmAsk> ParseAsk(absl::string_view bytes);

// Returns the bytes of a message.
std::string WarmMessage(WarmWord word, absl::string_view bytes);
// Takes the first whole message out of `input`. False when there is none yet.
// INVALID_ARGUMENT when no message can look like this.
absl::StatusOr<bool> TakeMessage(std::string& input, std::pair<WarmWord, std::string>& message);

// Sends `bytes`, with a descriptor, in one call. False when the other side is gone or takes no
// more.
bool SendWithFd(int socket, absl::string_view bytes, int fd);
// Receives what is there, and a descriptor if one came. Returns recvmsg's result.
ssize_t ReceiveWithFd(int socket, std::string& bytes, UniqueFd& fd);

// True when the process at the other end of the socket belongs to this user.
bool IsPeerOurs(int socket);

// Makes the socket's address. False when the path does not fit.
bool FitsSocketPath(const std::string& path);
// Connects without waiting. NOT_FOUND when nobody listens there, FAILED_PRECONDITION when somebody
// else does.
absl::StatusOr<UniqueFd> ConnectToHolder(const std::string& path);
// Listens there; what is there is removed. The caller holds the place's lock.
absl::StatusOr<UniqueFd> ListenAsHolder(const std::string& path);

// Lets a holder go on that was stopped (SIGSTOP). Does nothing to one that was not, or is gone.
void WakeHolder(const WarmPlace& place);

// A holder, as it describes itself.
struct HolderState {
  std::string node;  // "user@host:port"
  std::string socket;
  int64_t pid = 0;
  int64_t commands = 0;    // now
  int64_t served = 0;      // since it began
  absl::Duration ends_in;  // without another command
  bool answers = true;     // false: the rest is not known
};
// Asks all holders of the state directory, each for at most a second.
std::vector<HolderState> ListHolders(const std::string& state_dir);
// Ends the holders for the node "user@host:port", or all when it is empty. Returns how many there
// were. One that does not answer is killed, if all are meant.
int CloseHolders(const std::string& state_dir, absl::string_view node);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WARM_WARM_SOCKET_H_
