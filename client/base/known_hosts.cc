#include "client/base/known_hosts.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/run_program.h"
#include "common/base/link_fault.h"
#include "common/files/files.h"
#include "common/files/sha256.h"

namespace gpuctl {
namespace {

constexpr int kSshPort = 22;

// All algorithms that libssh has, the preferred ones first.
constexpr const char* kHostKeyAlgorithms[] = {"ssh-ed25519",         "ecdsa-sha2-nistp521",
                                              "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp256",
                                              "rsa-sha2-512",        "rsa-sha2-256"};

// A key of type ssh-rsa signs with one of two algorithms.
std::string TypeOf(absl::string_view algorithm) {
  return absl::StartsWith(algorithm, "rsa-") ? "ssh-rsa" : std::string(algorithm);
}

std::string NameIn(const NodeTarget& target) {
  const std::string& host = target.host_key.alias.empty() ? target.host : target.host_key.alias;
  const bool plain = target.port == kSshPort || !target.host_key.alias.empty();
  return plain ? host : absl::StrCat("[", host, "]:", target.port);
}

absl::Status Refuse(const NodeTarget& target, absl::string_view why, const std::string& hint) {
  return WithHint(absl::PermissionDeniedError(absl::StrCat("connect to ", target.name, ": ", why)),
                  hint);
}

}  // namespace

std::string KeyFingerprint(absl::string_view base64) {
  std::string blob;
  if (!absl::Base64Unescape(base64, &blob) || blob.empty()) return "";
  std::string shown = absl::Base64Escape(absl::HexStringToBytes(Sha256HexOf(blob)));
  shown.erase(std::find(shown.begin(), shown.end(), '='), shown.end());
  return absl::StrCat("SHA256:", shown);
}

KnownHostKeys ParseKnownHostLines(absl::string_view text) {
  KnownHostKeys known;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    std::string mark;
    if (words[0][0] == '@') {
      mark = std::string(words[0]);
      words.erase(words.begin());
    }
    if (words.size() < 3) continue;
    const std::string fingerprint = KeyFingerprint(words[2]);
    if (fingerprint.empty() || mark == "@cert-authority") continue;
    if (mark == "@revoked") {
      known.revoked.push_back(fingerprint);
    } else {
      known.keys.push_back({std::string(words[1]), fingerprint});
    }
  }
  return known;
}

KnownHostKeys FindKnownHostKeys(const NodeTarget& target) {
  KnownHostKeys known;
  const std::string keygen = FindInPath("ssh-keygen");
  if (keygen.empty()) return known;
  for (const std::string& file : target.host_key.known_hosts) {
    if (!PathExists(file)) continue;
    // It fails when the file does not have the host.
    const absl::StatusOr<std::string> lines =
        OutputOf({keygen, "-F", NameIn(target), "-f", file}, "", /*quiet=*/true);
    if (!lines.ok()) continue;
    const KnownHostKeys more = ParseKnownHostLines(*lines);
    known.keys.insert(known.keys.end(), more.keys.begin(), more.keys.end());
    known.revoked.insert(known.revoked.end(), more.revoked.begin(), more.revoked.end());
  }
  return known;
}

std::string PreferredHostKeys(const KnownHostKeys& known) {
  if (known.keys.empty()) return "";
  const auto is_known = [&known](absl::string_view algorithm) {
    return std::any_of(
        known.keys.begin(), known.keys.end(),
        [type = TypeOf(algorithm)](const KnownHostKeys::Key& key) { return key.type == type; });
  };
  std::vector<std::string> order;
  for (const bool wanted : {true, false}) {
    for (const char* algorithm : kHostKeyAlgorithms) {
      if (is_known(algorithm) == wanted) order.emplace_back(algorithm);
    }
  }
  return absl::StrJoin(order, ",");
}

absl::Status CheckKnownHost(const NodeTarget& target, const KnownHostKeys& known,
                            absl::string_view fingerprint) {
  if (std::find(known.revoked.begin(), known.revoked.end(), fingerprint) != known.revoked.end()) {
    return Refuse(target, absl::StrCat("its host key ", fingerprint, " is marked as revoked"),
                  "ask who runs the machine; gpuctl does not connect to it");
  }
  const auto is_it = [fingerprint](const KnownHostKeys::Key& key) {
    return key.fingerprint == fingerprint;
  };
  if (std::any_of(known.keys.begin(), known.keys.end(), is_it)) return absl::OkStatus();
  if (!known.keys.empty()) {
    return WithFault(
        Refuse(target,
               absl::StrCat("its host key is ", fingerprint, ", and your ssh knows ",
                            known.keys[0].fingerprint, " for it"),
               absl::StrCat("if the machine was rebuilt: ssh-keygen -R '", NameIn(target), "'")),
        LinkFault::kHostKeyChanged);
  }
  if (!target.host_key.strict) return absl::OkStatus();
  return Refuse(target,
                absl::StrCat("its host key ", fingerprint,
                             " is unknown, and your ssh's StrictHostKeyChecking is yes"),
                "add the key to your known_hosts first, for example with ssh-keyscan, and compare");
}

}  // namespace gpuctl
