#include "client/ignore/secret_files.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kNames[] = {
    // Passwords and tokens.
    ".env", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".npmrc", ".pypirc", ".git-credentials",
    ".htpasswd", ".s3cfg", ".boto", ".vault-token", ".databrickscfg", "credentials.json",
    "service-account.json", "service_account.json", "application_default_credentials.json",
    "client_secret.json", "client_secrets.json", "secrets.json", "secrets.yaml", "secrets.yml",
    "secrets.toml", "kaggle.json",
    // Private keys of ssh.
    "id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"};

constexpr absl::string_view kEndings[] = {".pem", ".key",      ".p12",  ".pfx", ".jks",
                                          ".ppk", ".keystore", ".kdbx", ".p8"};

// The last two components of paths.
constexpr absl::string_view kPaths[] = {
    ".aws/credentials", ".docker/config.json",      ".kube/config",           ".cargo/credentials",
    ".gem/credentials", ".cargo/credentials.toml",  "huggingface/token",      ".huggingface/token",
    "gh/hosts.yml",     ".azure/accesstokens.json", ".streamlit/secrets.toml"};

// Endings of variants of .env that are made to be shared.
constexpr absl::string_view kExamples[] = {".example", ".sample", ".template", ".dist"};

bool IsEnvironment(absl::string_view name) {
  if (!absl::StartsWith(name, ".env.")) return false;
  for (const absl::string_view example : kExamples) {
    if (absl::EndsWith(name, example)) return false;
  }
  return true;
}

}  // namespace

bool LooksLikeSecret(absl::string_view path) {
  const std::string lower = absl::AsciiStrToLower(path);
  absl::string_view name = lower;
  if (const size_t slash = name.rfind('/'); slash != absl::string_view::npos) {
    name.remove_prefix(slash + 1);
  }
  for (const absl::string_view known : kNames) {
    if (name == known) return true;
  }
  for (const absl::string_view ending : kEndings) {
    if (name.size() > ending.size() && absl::EndsWith(name, ending)) return true;
  }
  for (const absl::string_view known : kPaths) {
    if (absl::EndsWith(lower, known) &&
        (lower.size() == known.size() || lower[lower.size() - known.size() - 1] == '/')) {
      return true;
    }
  }
  return IsEnvironment(name);
}

}  // namespace gpuctl
