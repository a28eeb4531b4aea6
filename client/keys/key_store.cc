#include "client/keys/key_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/run_program.h"
#include "client/base/shell_quote.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// Some registries give out tokens of two thousand characters.
constexpr size_t kMaxSecretLength = 4096;
constexpr char kService[] = "gpuctl";

std::string Environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

bool SystemStoreIsWanted() { return Environment("GPUCTL_KEY_STORE") != "file"; }

#ifdef __APPLE__

constexpr char kStoreName[] = "the macOS Keychain";
constexpr char kSecurity[] = "/usr/bin/security";

bool HasSystemStore() { return SystemStoreIsWanted() && access(kSecurity, X_OK) == 0; }

absl::StatusOr<std::string> Lookup(const std::string& market) {
  return OutputOf({kSecurity, "find-generic-password", "-s", kService, "-a", market, "-w"}, "",
                  /*quiet=*/true);
}

// Stores the key by commands on the program's stdin: its arguments would show the key to every
// process.
absl::Status Keep(const std::string& market, const std::string& key) {
  return OutputOf({kSecurity, "-i"},
                  absl::StrCat("add-generic-password -U -s ", kService, " -a ", market, " -w \"",
                               key, "\"\n"),
                  /*quiet=*/true)
      .status();
}

absl::Status Forget(const std::string& market) {
  return OutputOf({kSecurity, "delete-generic-password", "-s", kService, "-a", market}, "",
                  /*quiet=*/true)
      .status();
}

#else

constexpr char kStoreName[] = "the keyring (libsecret)";

std::string SecretTool() {
  return Environment("DBUS_SESSION_BUS_ADDRESS").empty() ? "" : FindInPath("secret-tool");
}

bool HasSystemStore() { return SystemStoreIsWanted() && !SecretTool().empty(); }

absl::StatusOr<std::string> Lookup(const std::string& market) {
  return OutputOf({SecretTool(), "lookup", "service", kService, "market", market}, "",
                  /*quiet=*/true);
}

absl::Status Keep(const std::string& market, const std::string& key) {
  return OutputOf({SecretTool(), "store", absl::StrCat("--label=gpuctl: key for ", market),
                   "service", kService, "market", market},
                  key, /*quiet=*/true)
      .status();
}

absl::Status Forget(const std::string& market) {
  return OutputOf({SecretTool(), "clear", "service", kService, "market", market}, "",
                  /*quiet=*/true)
      .status();
}

#endif

absl::StatusOr<MarketKey> Checked(absl::string_view text, size_t limit, std::string source) {
  absl::StatusOr<std::string> key = CheckedKey(text, limit);
  if (!key.ok()) {
    return WithExitCode(Annotate(key.status(), absl::StrCat("read the key in ", source)),
                        kExitCredentials);
  }
  return MarketKey{*std::move(key), std::move(source)};
}

absl::StatusOr<std::string> ReadKeyFile(const std::string& path, size_t limit) {
  const UniqueFd fd(file_ops::Open(path, O_RDONLY));
  struct stat info = {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("read the key in ", path));
  }
  if ((info.st_mode & 077) != 0) {
    return WithExitCode(
        WithHint(absl::FailedPreconditionError(absl::StrCat(
                     "read the key in ", path, ": other users of this machine can read it")),
                 absl::StrCat("chmod 600 ", ShellQuote(path),
                              "; and, if they may have, make a new key")),
        kExitCredentials);
  }
  return ReadFileToString(path, static_cast<int64_t>(2 * limit));
}

}  // namespace

std::string MarketVariable(absl::string_view market, absl::string_view what) {
  return absl::StrCat("GPUCTL_", absl::AsciiStrToUpper(market), "_", what);
}

absl::StatusOr<std::string> CheckedKey(absl::string_view text, size_t limit) {
  const absl::string_view key = absl::StripAsciiWhitespace(text);
  if (key.empty()) return absl::InvalidArgumentError("it is empty");
  if (key.size() > limit) return absl::InvalidArgumentError("it is too long for a key");
  const bool visible =
      std::all_of(key.begin(), key.end(), [](unsigned char c) { return absl::ascii_isgraph(c); });
  if (!visible || key.find_first_of("\"\\") != key.npos) {
    return absl::InvalidArgumentError("it has characters that no key has");
  }
  return std::string(key);
}

std::string KeyStore::FileOf(absl::string_view market) const {
  return JoinPath(JoinPath(config_dir_, "keys"), market);
}

KeyStore::Place KeyStore::PlaceOfKey(absl::string_view market) const {
  return {std::string(market), FileOf(market), kMaxKeyLength};
}

KeyStore::Place KeyStore::PlaceOfSecret(const std::string& name) const {
  return {absl::StrCat("secret:", name), JoinPath(JoinPath(config_dir_, "secrets"), name),
          kMaxSecretLength};
}

absl::StatusOr<MarketKey> KeyStore::Find(absl::string_view market) const {
  const std::string own = MarketVariable(market, "API_KEY");
  for (const std::string& name : {own, own.substr(absl::string_view("GPUCTL_").size())}) {
    if (const std::string value = Environment(name); !value.empty()) {
      return Checked(value, kMaxKeyLength, absl::StrCat("$", name));
    }
  }
  absl::StatusOr<MarketKey> stored = FindStored(market, /*session=*/true);
  const MarketFacts* const facts = FindMarket(market);
  if (!absl::IsNotFound(stored.status()) || facts == nullptr || facts->key_variable.empty()) {
    return stored;
  }
  // It may be there for other reasons, so what was given to gpuctl comes first.
  const std::string value = Environment(facts->key_variable);
  if (value.empty()) return stored;
  absl::StatusOr<MarketKey> key =
      Checked(value, kMaxKeyLength, absl::StrCat("$", facts->key_variable));
  // What it is there for is not ours to judge.
  if (!key.ok()) return stored;
  key->borrowed = true;
  return key;
}

absl::StatusOr<MarketKey> KeyStore::FindStored(absl::string_view market, bool session) const {
  absl::StatusOr<MarketKey> found = FindAt(PlaceOfKey(market), session);
  if (!absl::IsNotFound(found.status())) return found;
  return absl::NotFoundError(absl::StrCat("there is no key for ", market));
}

absl::StatusOr<MarketKey> KeyStore::FindSecret(const std::string& name) const {
  const char* const value = std::getenv(name.c_str());
  if (value != nullptr) return MarketKey{value, "the environment"};
  return FindStoredSecret(name, /*session=*/true);
}

absl::StatusOr<MarketKey> KeyStore::FindStoredSecret(const std::string& name, bool session) const {
  return FindAt(PlaceOfSecret(name), session);
}

absl::StatusOr<std::string> KeyStore::StoreSecret(const std::string& name,
                                                  absl::string_view value) const {
  return StoreAt(PlaceOfSecret(name), value);
}

std::string KeyStore::SystemStore() { return HasSystemStore() ? kStoreName : ""; }

absl::Status KeyStore::StoreSecretInSystem(const std::string& name, absl::string_view value) const {
  const Place place = PlaceOfSecret(name);
  ASSIGN_OR_RETURN(const std::string key, CheckedKey(value, place.limit));
  return StoreInSystem(place, key);
}

absl::StatusOr<std::vector<std::string>> KeyStore::RemoveSecret(const std::string& name) const {
  return RemoveAt(PlaceOfSecret(name));
}

absl::StatusOr<std::string> KeyStore::Store(absl::string_view market,
                                            absl::string_view text) const {
  return StoreAt(PlaceOfKey(market), text);
}

absl::StatusOr<std::vector<std::string>> KeyStore::Remove(absl::string_view market) const {
  return RemoveAt(PlaceOfKey(market));
}

absl::StatusOr<MarketKey> KeyStore::FindAt(const Place& place, bool session) {
  if (session && HasSystemStore()) {
    const absl::StatusOr<std::string> kept = Lookup(place.account);
    if (kept.ok() && !kept->empty()) return Checked(*kept, place.limit, kStoreName);
  }
  const absl::StatusOr<std::string> text = ReadKeyFile(place.path, place.limit);
  if (absl::IsNotFound(text.status())) return absl::NotFoundError("nothing is stored");
  RETURN_IF_ERROR(text.status());
  return Checked(*text, place.limit, place.path);
}

absl::Status KeyStore::StoreInSystem(const Place& place, const std::string& key) {
  if (!HasSystemStore()) return absl::UnimplementedError("this system has no store for keys");
  RETURN_IF_ERROR(Annotate(Keep(place.account, key), absl::StrCat("store in ", kStoreName)));
  const absl::StatusOr<std::string> kept = Lookup(place.account);
  if (kept.ok() && absl::StripAsciiWhitespace(*kept) == key) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(kStoreName, " took a secret and ",
                   kept.ok() && !kept->empty() ? "gives another back" : "does not give it back"));
}

absl::StatusOr<std::string> KeyStore::StoreAt(const Place& place, absl::string_view text) {
  ASSIGN_OR_RETURN(const std::string key, CheckedKey(text, place.limit));
  if (StoreInSystem(place, key).ok()) {
    // Remove an older copy in the file, which would survive a change or removal of the key.
    if (unlink(place.path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("remove the old key in ", place.path));
    }
    return kStoreName;
  }
  RETURN_IF_ERROR(MakeDirectories(DirName(place.path), 0700));
  RETURN_IF_ERROR(
      Annotate(WriteFileAtomic(place.path, absl::StrCat(key, "\n"), 0600), "keep the key"));
  return place.path;
}

absl::StatusOr<std::vector<std::string>> KeyStore::RemoveAt(const Place& place) {
  std::vector<std::string> places;
  if (HasSystemStore()) {
    const absl::StatusOr<std::string> kept = Lookup(place.account);
    if (kept.ok() && !kept->empty()) {
      RETURN_IF_ERROR(
          Annotate(Forget(place.account), absl::StrCat("remove the key from ", kStoreName)));
      places.push_back(kStoreName);
    }
  }
  if (unlink(place.path.c_str()) == 0) {
    places.push_back(place.path);
  } else if (errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("remove the key in ", place.path));
  }
  return places;
}

}  // namespace gpuctl
