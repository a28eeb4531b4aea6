// Whose ledger it is. The owner's id is in the names of our machines (provisioning/market/label.h):
// what carries it and is not wanted is ended. So a copy of a ledger needs an owner of its own, and
// a new ledger in the place of a lost one needs the old owner again.
#include <stdlib.h>

#include <algorithm>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/sqlite/sqlite.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/ledger/ledger_rows.h"

namespace gpuctl {
namespace {

constexpr int kOwnerBytes = 4;
constexpr char kOwner[] = "owner";
constexpr char kOwnerHome[] = "owner_home";
constexpr int64_t kMaxOwnerFile = 64;

std::string RealPathOf(const std::string& path) {
  const std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), free);
  return real == nullptr ? path : real.get();
}

bool IsOwnerId(absl::string_view text) {
  return text.size() == 2 * kOwnerBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

absl::StatusOr<std::string> Ledger::Meta(absl::string_view key) {
  SqliteStatement select(database_, "SELECT value FROM meta WHERE key = ?", "read the owner's id");
  select.Bind(key);
  ASSIGN_OR_RETURN(const bool found, select.Step());
  return found ? select.Text(0) : "";
}

// One line: the machine and the directory in which the ledger lies.
std::string Ledger::HomeLine() const {
  return home_.machine.empty() ? "" : absl::StrCat(home_.machine, ":", RealPathOf(state_dir_));
}

std::string Ledger::OwnerFile() const {
  if (home_.owner_dir.empty() || home_.machine.empty()) return "";
  return JoinPath(home_.owner_dir, Sha256HexOf(HomeLine()).substr(0, 16));
}

bool Ledger::WasMovedFrom(absl::string_view home) const {
  const std::string machine = absl::StrCat(home_.machine, ":");
  return absl::StartsWith(home, machine) &&
         !PathExists(JoinPath(home.substr(machine.size()), kLedgerFile));
}

absl::StatusOr<std::string> Ledger::OwnerId() {
  ASSIGN_OR_RETURN(std::string owner, Meta(kOwner));
  ASSIGN_OR_RETURN(const std::string home, Meta(kOwnerHome));
  const std::string here = HomeLine();
  const std::string file = OwnerFile();
  const bool copied = !home.empty() && !here.empty() && home != here && !WasMovedFrom(home);
  const bool known = !owner.empty() && !copied;
  if (known && (here.empty() || home == here)) {
    KeepOwnerFile(owner);
    return owner;
  }
  if (!known) {
    const absl::StatusOr<std::string> kept =
        file.empty() ? absl::NotFoundError("") : ReadFileToString(file, kMaxOwnerFile);
    owner = kept.ok() ? std::string(absl::StripAsciiWhitespace(*kept)) : "";
    if (!IsOwnerId(owner)) owner = RandomHex(kOwnerBytes);
  }
  // The file comes first: a machine must not be named after an owner that a lost ledger loses.
  if (!file.empty()) {
    absl::Status kept = MakeDirectories(home_.owner_dir);
    if (kept.ok()) kept = WriteFileAtomic(file, owner);
    if (!kept.ok()) return AsLedgerFault(Annotate(kept, "keep the owner's id"));
  }
  const auto store = [this](absl::string_view key, absl::string_view value, const char* how) {
    return SqliteStatement(
               database_,
               absl::StrCat("INSERT OR ", how, " INTO meta (key, value) VALUES (?, ?)").c_str(),
               "store the owner's id")
        .Bind(key)
        .Bind(value)
        .Run();
  };
  const auto store_both = [&]() -> absl::Status {
    // Without a change of home two processes may store at the same time: the first one holds.
    RETURN_IF_ERROR(store(kOwner, owner, copied ? "REPLACE" : "IGNORE"));
    return here.empty() ? absl::OkStatus() : store(kOwnerHome, here, "REPLACE");
  };
  RETURN_IF_ERROR(Write("owner", store_both));
  ASSIGN_OR_RETURN(const std::string held, Meta(kOwner));
  KeepOwnerFile(held);
  return held;
}

// Another process, or another thread's ledger, may have written its own id into the file at the
// same time. The ledger's is the one that machines are named after.
void Ledger::KeepOwnerFile(const std::string& owner) const {
  const std::string file = OwnerFile();
  if (file.empty()) return;
  const absl::StatusOr<std::string> kept = ReadFileToString(file, kMaxOwnerFile);
  if (kept.ok() && absl::StripAsciiWhitespace(*kept) == owner) return;
  // What cannot be written now is written by a later call.
  if (MakeDirectories(home_.owner_dir).ok()) (void)WriteFileAtomic(file, owner);
}

}  // namespace gpuctl
