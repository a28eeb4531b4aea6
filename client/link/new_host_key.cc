#include "client/link/new_host_key.h"

#include <libssh/libssh.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace gpuctl {

absl::StatusOr<NewHostKey> MakeHostKey() {
  ssh_key key = nullptr;
  if (ssh_pki_generate(SSH_KEYTYPE_ED25519, 0, &key) != SSH_OK) {
    return absl::InternalError("make a host key");
  }
  const std::unique_ptr<ssh_key_struct, void (*)(ssh_key_struct*)> owner(key, ssh_key_free);
  char* secret = nullptr;
  char* base64 = nullptr;
  NewHostKey pair;
  if (ssh_pki_export_privkey_base64(key, nullptr, nullptr, nullptr, &secret) == SSH_OK &&
      ssh_pki_export_pubkey_base64(key, &base64) == SSH_OK) {
    pair.private_key = secret;
    pair.public_key = absl::StrCat("ssh-ed25519 ", base64);
  }
  ssh_string_free_char(secret);
  ssh_string_free_char(base64);
  if (pair.public_key.empty()) return absl::InternalError("write a host key");
  return pair;
}

}  // namespace gpuctl
