#include "client/hosts/ssh_config.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpuctl {
namespace {

// True when `host` has only characters of host names, addresses and ssh aliases, and none that a
// shell or ssh would interpret.
bool IsHost(absl::string_view host) {
  if (host.empty() || host.size() > 255 || host[0] == '-') return false;
  for (const char c : host) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        absl::string_view("._-:%").find(c) == absl::string_view::npos) {
      return false;
    }
  }
  return true;
}

bool IsUser(absl::string_view user) {
  if (user.size() > 64 || (!user.empty() && user[0] == '-')) return false;
  for (const char c : user) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        absl::string_view("._-@\\").find(c) == absl::string_view::npos) {
      return false;
    }
  }
  return true;
}

bool ParsePort(absl::string_view text, int& port) {
  return absl::SimpleAtoi(text, &port) && port >= 1 && port <= 65535;
}

}  // namespace

absl::StatusOr<SshAddress> ParseSshDestination(absl::string_view destination) {
  const auto wrong = [destination] {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", destination, "\" is no ssh destination; write host, user@host or user@host:port"));
  };
  SshAddress address;
  address.port = 0;
  absl::string_view rest = destination;
  if (const size_t at = rest.rfind('@'); at != absl::string_view::npos) {
    address.user = std::string(rest.substr(0, at));
    if (at == 0 || !IsUser(address.user)) return wrong();
    rest = rest.substr(at + 1);
  }
  if (!rest.empty() && rest[0] == '[') {
    const size_t close = rest.find(']');
    if (close == absl::string_view::npos) return wrong();
    address.host = std::string(rest.substr(1, close - 1));
    rest = rest.substr(close + 1);
    if (!rest.empty() && (rest[0] != ':' || !ParsePort(rest.substr(1), address.port))) {
      return wrong();
    }
  } else if (const size_t colon = rest.find(':');
             colon != absl::string_view::npos &&
             rest.find(':', colon + 1) == absl::string_view::npos) {
    address.host = std::string(rest.substr(0, colon));
    if (!ParsePort(rest.substr(colon + 1), address.port)) return wrong();
  } else {
    address.host = std::string(rest);  // also an IPv6 address without brackets
  }
  if (!IsHost(address.host)) return wrong();
  return address;
}

absl::StatusOr<SshHost> ParseSshConfig(absl::string_view text, absl::string_view home) {
  SshHost host;
  SshAddress& address = host.address;
  std::string jump;
  const auto in_home = [home](absl::string_view path) {
    const bool tilde = path.size() > 1 && path[0] == '~' && path[1] == '/';
    return tilde ? absl::StrCat(home, path.substr(1)) : std::string(path);
  };
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(absl::StripAsciiWhitespace(line), absl::MaxSplits(' ', 1));
    const absl::string_view key = parts.first, value = parts.second;
    if (key == "hostname") {
      address.host = std::string(value);
    } else if (key == "user") {
      address.user = std::string(value);
    } else if (key == "port") {
      if (!ParsePort(value, address.port)) {
        return absl::InvalidArgumentError(absl::StrCat("read ssh's configuration: port ", value));
      }
    } else if (key == "identityfile") {
      address.identity_files.push_back(in_home(value));
    } else if (key == "identitiesonly") {
      host.identities_only = value == "yes";
    } else if (key == "userknownhostsfile" || key == "globalknownhostsfile") {
      for (const absl::string_view file : absl::StrSplit(value, ' ', absl::SkipEmpty())) {
        if (file != "none") host.host_key.known_hosts.push_back(in_home(file));
      }
    } else if (key == "hostkeyalias") {
      host.host_key.alias = value == "none" ? "" : std::string(value);
    } else if (key == "stricthostkeychecking") {
      host.host_key.strict = value == "yes" || value == "true";
    } else if (key == "proxycommand" && value != "none") {
      address.proxy_command = std::string(value);
    } else if (key == "proxyjump" && value != "none") {
      jump = std::string(value);
    }
  }
  if (!IsHost(address.host) || !IsUser(address.user)) {
    return absl::InvalidArgumentError("read ssh's configuration: no usable host name in it");
  }
  if (address.proxy_command.empty() && !jump.empty()) {
    // As in ssh itself, the last hop is reached through the ones before it.
    const size_t comma = jump.rfind(',');
    const std::string last = comma == std::string::npos ? jump : jump.substr(comma + 1);
    const std::string before = comma == std::string::npos ? "" : jump.substr(0, comma);
    const absl::StatusOr<SshAddress> hop = ParseSshDestination(last);
    if (!hop.ok()) return hop.status();
    address.proxy_command =
        absl::StrCat("ssh -W [%h]:%p", before.empty() ? "" : absl::StrCat(" -J ", before),
                     hop->user.empty() ? "" : absl::StrCat(" -l ", hop->user),
                     hop->port == 0 ? "" : absl::StrCat(" -p ", hop->port), " ", hop->host);
  }
  return host;
}

std::string SshName(const SshAddress& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return absl::StrCat(address.user, "@", v6 ? "[" : "", address.host, v6 ? "]" : "", ":",
                      address.port);
}

}  // namespace gpuctl
