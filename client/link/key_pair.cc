#include "client/link/key_pair.h"

#include <libssh/libssh.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// Removes what processes left that were killed while they made the pair at `path`. The caller holds
// the pair's lock.
void RemoveTornPairs(const std::string& path) {
  const std::string dir = DirName(path), name = BaseName(path);
  const absl::StatusOr<std::vector<std::string>> entries = ListDirectory(dir);
  if (!entries.ok()) return;
  for (const std::string& entry : *entries) {
    if (absl::StartsWith(entry, absl::StrCat(name, ".tmp-")) ||
        absl::StartsWith(entry, absl::StrCat(name, ".pub.tmp-"))) {
      (void)file_ops::Unlink(JoinPath(dir, entry));
    }
  }
}

}  // namespace

absl::StatusOr<std::string> EnsureKeyPair(const std::string& path, absl::string_view comment) {
  const std::string public_path = absl::StrCat(path, ".pub");
  if (PathExists(path)) {
    ASSIGN_OR_RETURN(const std::string line, ReadFileToString(public_path, 16 << 10));
    return std::string(absl::StripTrailingAsciiWhitespace(line));
  }
  RETURN_IF_ERROR(MakeDirectories(DirName(path)));
  // Two processes that make the pair at once must not mix their halves.
  ASSIGN_OR_RETURN(const UniqueFd lock, WaitForLock(absl::StrCat(path, ".lock")));
  if (PathExists(path)) {
    ASSIGN_OR_RETURN(const std::string line, ReadFileToString(public_path, 16 << 10));
    return std::string(absl::StripTrailingAsciiWhitespace(line));
  }
  RemoveTornPairs(path);
  ssh_key key = nullptr;
  if (ssh_pki_generate(SSH_KEYTYPE_ED25519, 0, &key) != SSH_OK) {
    return absl::InternalError(absl::StrCat("make ssh key ", path));
  }
  const std::unique_ptr<ssh_key_struct, void (*)(ssh_key_struct*)> owner(key, ssh_key_free);
  const std::string temporary = absl::StrCat(path, ".tmp-", RandomHex(6));
  char* base64 = nullptr;
  if (ssh_pki_export_privkey_file(key, nullptr, nullptr, nullptr, temporary.c_str()) != SSH_OK ||
      chmod(temporary.c_str(), 0600) != 0 || ssh_pki_export_pubkey_base64(key, &base64) != SSH_OK) {
    unlink(temporary.c_str());
    return absl::InternalError(absl::StrCat("write ssh key ", path));
  }
  const std::string line = absl::StrCat("ssh-ed25519 ", base64, " ", comment);
  ssh_string_free_char(base64);
  // Write the public half first: when the private one exists, both can be read.
  RETURN_IF_ERROR(WriteFileAtomic(public_path, absl::StrCat(line, "\n"), 0644));
  if (file_ops::Rename(temporary, path) != 0) {
    return ErrnoStatus(errno, absl::StrCat("write ssh key ", path));
  }
  return line;
}

}  // namespace gpuctl
