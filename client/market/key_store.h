// The keys of the user's accounts at rental markets: found, kept, removed. A key is in no argument
// list and in no message.
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

// Looked for, in this order: $GPUCTL_<MARKET>_API_KEY, the market's own $<MARKET>_API_KEY, the
// system's store (macOS Keychain; libsecret where secret-tool and a D-Bus session are), the file
// <config>/keys/<market>. GPUCTL_KEY_STORE=file leaves the system's store out.
class KeyStore {
 public:
  explicit KeyStore(std::string config_dir) : config_dir_(std::move(config_dir)) {}

  // NOT_FOUND: no key anywhere. FAILED_PRECONDITION: a file that others can read.
  // INVALID_ARGUMENT: what was found cannot be a key.
  absl::StatusOr<MarketKey> Find(absl::string_view market) const;

  // The same without the environment, and without the keyring of a desktop session where `session`
  // is false: what a program finds that is started by cron.
  absl::StatusOr<MarketKey> FindStored(absl::string_view market, bool session) const;

  // Keeps a checked key in the system's store or, where there is none, in a file of mode 0600.
  // Returns where, for people.
  absl::StatusOr<std::string> Store(absl::string_view market, absl::string_view key) const;

  // Removes what Store kept. The places it was removed from: none, when there was none.
  absl::StatusOr<std::vector<std::string>> Remove(absl::string_view market) const;

  std::string FileOf(absl::string_view market) const;

 private:
  const std::string config_dir_;
};

// `text` less white space around it; INVALID_ARGUMENT when that cannot be a key: empty, longer than
// 512 characters, or not of visible ASCII.
absl::StatusOr<std::string> CheckedKey(absl::string_view text);

// "GPUCTL_RUNPOD_API_KEY" of ("runpod", "API_KEY").
std::string MarketVariable(absl::string_view market, absl::string_view what);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_KEY_STORE_H_
