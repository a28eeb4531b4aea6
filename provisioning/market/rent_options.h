// Functions for rent options and command-line text that all adapters share.
#ifndef GPUCTL_PROVISIONING_MARKET_RENT_OPTIONS_H_
#define GPUCTL_PROVISIONING_MARKET_RENT_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// One GB of disk, in bytes, as the markets bill it.
constexpr int64_t kDiskGb = 1'000'000'000;
// The markets do not publish how long a month of storage is. Of the usual readings, 30 days are the
// dearest.
constexpr double kHoursPerMonth = 720;

// Returns whole GB, rounded up; `fallback_gb` for 0 bytes.
int64_t DiskGb(int64_t disk_bytes, int64_t fallback_gb);

// True when `text` is a safe host name, address or user name for ssh: it has no spaces and does not
// begin with '-'.
bool IsSafeHost(absl::string_view text);
bool IsSafeUser(absl::string_view text);

// Returns type and blob of one line of authorized_keys, which are the same in all lines of one key.
// Empty for any other line.
std::string SshKeyIdentity(absl::string_view line);
// Returns the same, and "" for an empty line, which gives no key. INVALID_ARGUMENT for a line that
// is not a key.
absl::StatusOr<std::string> CheckedSshKey(absl::string_view line);

// True when `name` can be an environment variable.
bool IsEnvName(absl::string_view name);
// Returns INVALID_ARGUMENT when a variable has a name that it cannot have.
absl::Status CheckEnvNames(const std::map<std::string, std::string>& env);

// Returns `text` compressed by gzip and encoded by base64 without line breaks, for a command line.
// A machine reads it with `base64 -d | gzip -d`.
std::string GzipBase64(absl::string_view text);

// Returns `word` in single quotes, for a POSIX shell.
std::string QuoteForShell(absl::string_view word);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_RENT_OPTIONS_H_
