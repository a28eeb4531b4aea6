#include "client/base/host_keys.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/sha256.h"

namespace gpuctl {

std::string HostKeyFile(const std::string& dir, absl::string_view name) {
  // The file name is readable, and unique for every `name`.
  std::string readable;
  for (const char c : name.substr(0, 60)) {
    readable += absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '_';
  }
  return JoinPath(dir, absl::StrCat(readable, "-", Sha256HexOf(name).substr(0, 12)));
}

std::string PinName(const NodeTarget& target) {
  if (target.user.empty() || target.name != absl::StrCat(target.provider, "/", target.user)) {
    return target.name;
  }
  return absl::StrCat(target.provider, "@", target.host);
}

absl::Status CheckHostKey(const std::string& dir, absl::string_view name,
                          absl::string_view fingerprint) {
  const std::string path = HostKeyFile(dir, name);
  absl::StatusOr<std::string> pinned = ReadFileToString(path, 4096);
  if (absl::IsNotFound(pinned.status())) {
    RETURN_IF_ERROR(MakeDirectories(dir));
    return WriteFileAtomic(path, absl::StrCat(fingerprint, "\n"));
  }
  if (!pinned.ok()) return pinned.status();
  const absl::string_view expected = absl::StripAsciiWhitespace(*pinned);
  if (expected == fingerprint) return absl::OkStatus();
  return WithFault(absl::PermissionDeniedError(
                       absl::StrCat("the host key of ", name, " has changed: it is ", fingerprint,
                                    " and was ", expected, " (pinned in ", path, ")")),
                   LinkFault::kHostKeyChanged);
}

absl::Status CheckGivenHostKey(absl::string_view name, absl::string_view given,
                               absl::string_view fingerprint) {
  if (given == fingerprint) return absl::OkStatus();
  return WithFault(absl::PermissionDeniedError(absl::StrCat(
                       "the host key of ", name, " is ", fingerprint,
                       ", and gpuctl gave the machine ", given, " when it was rented")),
                   LinkFault::kForeignHostKey);
}

std::string KnownHostAlias(absl::string_view name) { return HostKeyFile("", name); }

absl::Status KeepKnownHost(const std::string& dir, absl::string_view name, absl::string_view key) {
  const std::string path = HostKeyFile(dir, name);
  const std::string line = absl::StrCat(KnownHostAlias(name), " ", key, "\n");
  if (const absl::StatusOr<std::string> there = ReadFileToString(path, 64 << 10);
      there.ok() && *there == line) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(MakeDirectories(dir));
  return WriteFileAtomic(path, line);
}

}  // namespace gpuctl
