#include "absl/strings/str_cat.h"
#include "client/keys/key_store.h"
#include "client/self_test/parts.h"
#include "common/base/ids.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// Only the file of a store is in the place; a system's store has no directories.
KeyStore StoreOf(const TestPlace& place) { return KeyStore(JoinPath(place.dir, "config")); }

std::string SecretName(const TestPlace& place) {
  return absl::StrCat("GPUCTL_SELF_TEST_", place.token());
}

#ifdef __APPLE__
constexpr bool kAlwaysHasStore = true;
#else
constexpr bool kAlwaysHasStore = false;
#endif

constexpr char kUseFiles[] =
    "export GPUCTL_KEY_STORE=file: then gpuctl login keeps keys in files that only you can read";
constexpr char kInFiles[] = "gpuctl login keeps keys in files of mode 0600 below ~/.config/gpuctl";

}  // namespace

Judgement JudgeKeyStore(const KeyStoreFindings& found) {
  const std::string store = found.system_store.empty() ? "a file" : found.system_store;
  const std::string unlock =
      found.always_there
          ? absl::StrCat(
                "security unlock-keychain, in this terminal (a Mac that is used by ssh "
                "has a locked one); or ",
                kUseFiles)
          : absl::StrCat("start the keyring, or unlock it; or ", kUseFiles);
  if (!found.stored.ok()) {
    return {false, absl::StrCat("gpuctl login could keep no key: ", found.stored.message()),
            kUseFiles};
  }
  if (absl::IsDataLoss(found.system)) {
    return {false, std::string(found.system.message()), kUseFiles};
  }
  if (!found.same) return {false, absl::StrCat(store, " gave back another secret"), kUseFiles};
  if (!found.removed.ok() || !found.gone) {
    return {false,
            absl::StrCat("a secret that was removed from ", store, " is still there",
                         found.removed.ok() ? "" : ": ", found.removed.message()),
            absl::StrCat("remove \"secret:", found.secret, "\" of the service gpuctl there; and ",
                         kUseFiles)};
  }
  if (found.system_store.empty()) {
    return {true, absl::StrCat("there is no system's store; ", kInFiles), ""};
  }
  if (!found.system.ok()) {
    if (found.always_there) return {false, absl::StrCat(store, " takes no secret"), unlock};
    return {true, absl::StrCat(store, " does not answer; ", kInFiles), ""};
  }
  return {true, absl::StrCat("a secret was stored in ", store, ", read back and removed"), ""};
}

void TestKeyStore(const TestPlace& place, Reporter& report) {
  const KeyStore keys = StoreOf(place);
  const std::string value = RandomHex(16);
  KeyStoreFindings found;
  found.secret = SecretName(place);
  found.always_there = kAlwaysHasStore;
  found.system_store = KeyStore::SystemStore();
  if (!found.system_store.empty()) found.system = keys.StoreSecretInSystem(found.secret, value);
  found.stored = keys.StoreSecret(found.secret, value).status();
  const absl::StatusOr<MarketKey> back = keys.FindStoredSecret(found.secret, /*session=*/true);
  found.same = back.ok() && back->key == value;
  found.removed = CleanKeyStore(place);
  found.gone = absl::IsNotFound(keys.FindStoredSecret(found.secret, /*session=*/true).status());
  report.Add("key store", JudgeKeyStore(found));
}

absl::Status CleanKeyStore(const TestPlace& place) {
  return StoreOf(place).RemoveSecret(SecretName(place)).status();
}

}  // namespace gpuctl
