// Finds, stores and removes the API keys of the user's accounts at rental markets. A key is never
// in an argument list or a message.
#ifndef GPUCTL_CLIENT_MARKET_KEY_STORE_H_
#define GPUCTL_CLIENT_MARKET_KEY_STORE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

struct MarketKey {
  std::string key;
  std::string source;  // for people: "$RUNPOD_API_KEY", a file's path
};

// A store of keys. Searches in this order: $GPUCTL_<MARKET>_API_KEY, the market's own
// $<MARKET>_API_KEY, the system's store (macOS Keychain; libsecret when secret-tool and a D-Bus
// session exist), the file <config>/keys/<market>. GPUCTL_KEY_STORE=file disables the system's
// store.
class KeyStore {
 public:
  explicit KeyStore(std::string config_dir) : config_dir_(std::move(config_dir)) {}

  // Finds a key. NOT_FOUND: no key anywhere. FAILED_PRECONDITION: others can read its file.
  // INVALID_ARGUMENT: the found text cannot be a key.
  absl::StatusOr<MarketKey> Find(absl::string_view market) const;

  // Does the same without the environment and, when `session` is false, without the keyring of a
  // desktop session: as for a program that cron starts.
  absl::StatusOr<MarketKey> FindStored(absl::string_view market, bool session) const;

  // Stores a checked key in the system's store or, if there is none, in a file of mode 0600.
  // Returns the place, for people.
  absl::StatusOr<std::string> Store(absl::string_view market, absl::string_view key) const;

  // Removes the keys that Store stored. Returns the places, for people; empty when there was no
  // key.
  absl::StatusOr<std::vector<std::string>> Remove(absl::string_view market) const;

  std::string FileOf(absl::string_view market) const;

 private:
  const std::string config_dir_;
};

// Returns `text` without white space around it. INVALID_ARGUMENT when that cannot be a key: it is
// empty, longer than 512 characters, or has characters other than visible ASCII.
absl::StatusOr<std::string> CheckedKey(absl::string_view text);

// Returns "GPUCTL_RUNPOD_API_KEY" for ("runpod", "API_KEY").
std::string MarketVariable(absl::string_view market, absl::string_view what);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_KEY_STORE_H_
