// Reads the host keys that the user's ssh knows.
#ifndef GPUCTL_CLIENT_BASE_KNOWN_HOSTS_H_
#define GPUCTL_CLIENT_BASE_KNOWN_HOSTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/base/node_target.h"

namespace gpuctl {

// The keys of one host in known_hosts files (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).
struct KnownHostKeys {
  struct Key {
    std::string type;         // "ssh-ed25519"
    std::string fingerprint;  // "SHA256:<base64>"
  };
  std::vector<Key> keys;
  std::vector<std::string> revoked;  // fingerprints
};

// Returns the fingerprint of a key in base64, as OpenSSH prints it: "SHA256:<base64>"; "" when it
// is none.
std::string KeyFingerprint(absl::string_view base64);

// Reads the lines that `ssh-keygen -F` prints for a host. Keys of authorities are left out: they
// sign certificates, which gpuctl does not read.
KnownHostKeys ParseKnownHostLines(absl::string_view text);

// Returns what the target's files say about it. Asks ssh-keygen, which knows hashed names and
// patterns. Nothing where there is no ssh-keygen, or no such file.
KnownHostKeys FindKnownHostKeys(const NodeTarget& target);

// Returns the key algorithms to ask the server for, as OpenSSH orders them: those of known keys
// first. "" when no key is known.
std::string PreferredHostKeys(const KnownHostKeys& known);

// Judges a key that the server showed at the first contact, by the target's rules. OK: known, or
// unknown and not refused. PERMISSION_DENIED: the user's ssh knows another key of the server,
// nobody knows one and the rules are strict, or the key was revoked.
absl::Status CheckKnownHost(const NodeTarget& target, const KnownHostKeys& known,
                            absl::string_view fingerprint);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_KNOWN_HOSTS_H_
