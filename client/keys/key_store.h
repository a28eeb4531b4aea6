// Finds, stores and removes the API keys of the user's accounts at rental markets, and the values
// of the secrets that runs name. Neither is ever in an argument list or a message.
#ifndef GPUCTL_CLIENT_KEYS_KEY_STORE_H_
#define GPUCTL_CLIENT_KEYS_KEY_STORE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

struct MarketKey {
  std::string key;
  std::string source;  // for people: "$RUNPOD_API_KEY", a file's path
  // True for MarketFacts::key_variable, which is there for other programs, too: nobody has said
  // that gpuctl may rent with it.
  bool borrowed = false;
};

// A store of keys. Searches in this order: $GPUCTL_<MARKET>_API_KEY, the market's own
// $<MARKET>_API_KEY, the system's store (macOS Keychain; libsecret when secret-tool and a D-Bus
// session exist), the file <config>/keys/<market>, MarketFacts::key_variable. GPUCTL_KEY_STORE=file
// disables the system's store.
class KeyStore {
 public:
  explicit KeyStore(std::string config_dir) : config_dir_(std::move(config_dir)) {}

  // Finds a key. NOT_FOUND: no key anywhere. FAILED_PRECONDITION: others can read its file.
  // INVALID_ARGUMENT: the found text cannot be a key.
  absl::StatusOr<MarketKey> Find(absl::string_view market) const;

  // Does the same without the environment and, when `session` is false, without the keyring of a
  // desktop session: as for a program that cron starts.
  absl::StatusOr<MarketKey> FindStored(absl::string_view market, bool session) const;

  // Finds the value of a secret: $<NAME>, also an empty one, else the stored one. Errors as of
  // Find. `name` can name an environment variable.
  absl::StatusOr<MarketKey> FindSecret(const std::string& name) const;
  // Does the same without the environment, as FindStored.
  absl::StatusOr<MarketKey> FindStoredSecret(const std::string& name, bool session) const;
  // As Store and Remove. A stored value can be longer than a key.
  absl::StatusOr<std::string> StoreSecret(const std::string& name, absl::string_view value) const;
  absl::StatusOr<std::vector<std::string>> RemoveSecret(const std::string& name) const;

  // Returns the name of the system's store, for people; "" where keys are kept in files.
  static std::string SystemStore();
  // Stores a secret there and nowhere else, as StoreSecret does before it takes a file.
  // UNIMPLEMENTED: there is no such store. FAILED_PRECONDITION: it refuses. DATA_LOSS: it does not
  // give back what it took.
  absl::Status StoreSecretInSystem(const std::string& name, absl::string_view value) const;

  // Stores a checked key in the system's store or, if there is none, in a file of mode 0600.
  // Returns the place, for people.
  absl::StatusOr<std::string> Store(absl::string_view market, absl::string_view key) const;

  // Removes the keys that Store stored. Returns the places, for people; empty when there was no
  // key.
  absl::StatusOr<std::vector<std::string>> Remove(absl::string_view market) const;

  std::string FileOf(absl::string_view market) const;

 private:
  // Where a key or a secret is stored.
  struct Place {
    std::string account;  // its name in the system's store
    std::string path;     // of its file
    size_t limit;         // most characters
  };
  Place PlaceOfKey(absl::string_view market) const;
  Place PlaceOfSecret(const std::string& name) const;
  static absl::StatusOr<MarketKey> FindAt(const Place& place, bool session);
  static absl::Status StoreInSystem(const Place& place, const std::string& key);
  static absl::StatusOr<std::string> StoreAt(const Place& place, absl::string_view text);
  static absl::StatusOr<std::vector<std::string>> RemoveAt(const Place& place);

  const std::string config_dir_;
};

inline constexpr size_t kMaxKeyLength = 512;
// Returns `text` without white space around it. INVALID_ARGUMENT when that cannot be a key: it is
// empty, longer than `limit` characters, or has characters other than visible ASCII.
absl::StatusOr<std::string> CheckedKey(absl::string_view text, size_t limit = kMaxKeyLength);

// Returns "GPUCTL_RUNPOD_API_KEY" for ("runpod", "API_KEY").
std::string MarketVariable(absl::string_view market, absl::string_view what);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_KEYS_KEY_STORE_H_
