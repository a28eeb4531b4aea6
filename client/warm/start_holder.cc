#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/paths.h"
#include "client/link/local_sshd.h"
#include "client/warm/holder.h"
#include "client/warm/warm_socket.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

using Json = nlohmann::json;

// What a connection may need. A ProxyCommand, which is the user's own, gets everything.
constexpr const char* kNeeded[] = {"HOME",   "PATH",
                                   "USER",   "LOGNAME",
                                   "LANG",   "SSH_AUTH_SOCK",
                                   "TMPDIR", "XDG_RUNTIME_DIR",
                                   "LC_ALL", "GPUCTL_STATE_DIR"};

}  // namespace

std::string HolderRequestJson(const HolderRequest& request) {
  const NodeTarget& target = request.target;
  const Json json = {{"provider", target.provider},
                     {"name", target.name},
                     {"host", target.host},
                     {"port", target.port},
                     {"user", target.user},
                     {"identity_files", target.identity_files},
                     {"identities_only", target.identities_only},
                     {"proxy_command", target.proxy_command},
                     {"given_host_key", target.given_host_key},
                     {"root", target.root},
                     {"state_dir", request.state_dir},
                     {"bridge", request.bridge},
                     {"idle_s", absl::ToDoubleSeconds(request.idle)}};
  // Paths may have bytes that are no UTF-8; with them there is no holder.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<HolderRequest> ParseHolderRequest(absl::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        "hold-link: this is a part of gpuctl, not a command for people");
  }
  HolderRequest request;
  try {
    NodeTarget& target = request.target;
    target.provider = json.at("provider");
    target.name = json.at("name");
    target.host = json.at("host");
    target.port = json.at("port");
    target.user = json.at("user");
    target.identity_files = json.at("identity_files").get<std::vector<std::string>>();
    target.identities_only = json.at("identities_only");
    target.proxy_command = json.at("proxy_command");
    target.given_host_key = json.at("given_host_key");
    target.root = json.at("root");
    request.state_dir = json.at("state_dir");
    request.bridge = json.at("bridge");
    request.idle = absl::Seconds(json.at("idle_s").get<double>());
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("hold-link: ", error.what()));
  }
  return request;
}

absl::Status StartHolder(const HolderRequest& request) {
  ASSIGN_OR_RETURN(const WarmPlace place, FindWarmPlace(request.state_dir, request.target));
  if (IsLocked(place.lock).value_or(true)) return absl::OkStatus();
  ASSIGN_OR_RETURN(FdPair pipe, MakePipe("start a holder"));
  const std::string text = HolderRequestJson(request);
  // More would have to wait for the child.
  if (text.size() > (32 << 10)) return absl::FailedPreconditionError("the address is too long");
  RETURN_IF_ERROR(WriteAll(pipe.second.get(), text, "a holder"));
  pipe.second.reset();
  SpawnOptions spawn;
  spawn.argv = {ExecutablePath(), kHolderVerb};
  spawn.stdin_fd = pipe.first.get();
  spawn.new_session = true;
  if (request.target.proxy_command.empty()) {
    spawn.own_env = false;
    for (const char* name : kNeeded) {
      const char* value = std::getenv(name);
      if (value != nullptr) spawn.env.push_back(absl::StrCat(name, "=", value));
    }
  }
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(spawn));
  ReapLater(pid);
  return absl::OkStatus();
}

}  // namespace gpuctl
