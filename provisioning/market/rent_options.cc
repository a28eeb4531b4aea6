#include "provisioning/market/rent_options.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace gpuctl {
namespace {

bool IsAlnum(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

bool AllOf(absl::string_view text, absl::string_view more) {
  return !text.empty() && text[0] != '-' && std::all_of(text.begin(), text.end(), [&](char c) {
    return IsAlnum(c) || absl::StrContains(more, c);
  });
}

}  // namespace

int64_t DiskGb(int64_t disk_bytes, int64_t fallback_gb) {
  if (disk_bytes <= 0) return fallback_gb;
  return disk_bytes / kDiskGb + (disk_bytes % kDiskGb != 0 ? 1 : 0);
}

bool IsSafeHost(absl::string_view text) { return text.size() <= 255 && AllOf(text, ".-:_"); }
bool IsSafeUser(absl::string_view text) { return text.size() <= 64 && AllOf(text, ".-_"); }

std::string SshKeyIdentity(absl::string_view line) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty());
  if (words.size() < 2 || words[1].size() < 16) return "";
  return absl::StrCat(words[0], " ", words[1]);
}

absl::StatusOr<std::string> CheckedSshKey(absl::string_view line) {
  std::string identity = SshKeyIdentity(line);
  if (identity.empty() && !line.empty()) {
    return absl::InvalidArgumentError("the ssh public key is none");
  }
  return identity;
}

bool IsEnvName(absl::string_view name) {
  return !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](char c) { return IsAlnum(c) || c == '_'; });
}

absl::Status CheckEnvNames(const std::map<std::string, std::string>& env) {
  for (const auto& variable : env) {
    if (IsEnvName(variable.first)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", variable.first, "\" is no name of an environment variable"));
  }
  return absl::OkStatus();
}

std::string GzipBase64(absl::string_view text) {
  z_stream stream = {};
  constexpr int kGzipWindow = 15 + 16;
  std::string packed;
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) ==
      Z_OK) {
    packed.resize(deflateBound(&stream, static_cast<uLong>(text.size())));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    deflate(&stream, Z_FINISH);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
  }
  return absl::Base64Escape(packed);
}

std::string QuoteForShell(absl::string_view word) {
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace gpuctl
