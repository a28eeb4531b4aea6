// Fuzzes what ssh and ssh-keygen print, and destinations as users write them.
#include <cstdint>
#include <cstdlib>

#include "absl/strings/match.h"
#include "client/base/known_hosts.h"
#include "client/hosts/ssh_config.h"

namespace {

// What is accepted goes into command lines: nothing in it may be an option or end a word.
void CheckHost(const gpuctl::SshAddress& address) {
  for (const std::string& word : {address.host, address.user}) {
    if (absl::StartsWith(word, "-")) abort();
    for (const char c : word) {
      if (static_cast<unsigned char>(c) <= ' ' || c == '\'' || c == '"' || c == '$' || c == ';') {
        abort();
      }
    }
  }
  if (address.host.empty() || address.port < 0 || address.port > 65535) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto address = gpuctl::ParseSshDestination(text); address.ok()) CheckHost(*address);
  if (const auto host = gpuctl::ParseSshConfig(text, "/home/user"); host.ok()) {
    CheckHost(host->address);
  }
  const gpuctl::KnownHostKeys known = gpuctl::ParseKnownHostLines(text);
  for (const gpuctl::KnownHostKeys::Key& key : known.keys) {
    if (!absl::StartsWith(key.fingerprint, "SHA256:") || key.fingerprint.size() != 7 + 43) abort();
    gpuctl::NodeTarget target;
    target.name = "a@b:22";
    if (!gpuctl::CheckKnownHost(target, known, key.fingerprint).ok() && known.revoked.empty()) {
      abort();
    }
  }
  if (gpuctl::PreferredHostKeys(known).empty() != known.keys.empty()) abort();
  return 0;
}
