// gpuctl login: check and keep a key for a rental market.
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/keys/key_store.h"
#include "client/keys/market_access.h"
#include "client/link/ssh_session.h"
#include "client/market/holdings.h"
#include "client/terminal/console.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/markets.h"
#include "provisioning/rental/account.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxInput = 4096;

// Switches the terminal's echo off, and restores the terminal at the end.
class NoEcho {
 public:
  NoEcho() {
    if (tcgetattr(STDIN_FILENO, &before_) != 0) return;
    // Ctrl-C must not leave the terminal silent, so it becomes a character that ends the input.
    termios silent = before_;
    silent.c_lflag &= ~static_cast<tcflag_t>(ECHO | ISIG | ICANON);
    silent.c_cc[VMIN] = 1;
    silent.c_cc[VTIME] = 0;
    changed_ = tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent) == 0;
  }
  ~NoEcho() {
    if (changed_) tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
  }
  NoEcho(const NoEcho&) = delete;
  NoEcho& operator=(const NoEcho&) = delete;

 private:
  termios before_ = {};
  bool changed_ = false;
};

// Reads up to a newline or the end of the input. CANCELLED at Ctrl-C.
absl::StatusOr<std::string> ReadLine() {
  constexpr char kCtrlC = 3, kCtrlD = 4, kBackspace = 8, kCtrlU = 21, kDelete = 127;
  std::string line;
  char c = 0;
  while (line.size() < kMaxInput) {
    const ssize_t count = read(STDIN_FILENO, &c, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || c == '\n' || c == '\r' || c == kCtrlD) break;
    if (c == kCtrlC) {
      return WithExitCode(absl::CancelledError("login was interrupted; nothing was kept"),
                          kExitInterrupted);
    }
    if (c == kBackspace || c == kDelete) {
      if (!line.empty()) line.pop_back();
    } else if (c == kCtrlU) {
      line.clear();
    } else {
      line += c;
    }
  }
  return line;
}

// Reads a line from stdin; from a terminal after `prompt`, and without echo.
absl::StatusOr<std::string> AskFor(CommandContext& context, absl::string_view note,
                                   absl::string_view prompt) {
  if (isatty(STDIN_FILENO) == 0) return ReadLine();
  const NoEcho quiet;
  // Ask on the terminal even when stdout is JSON.
  if (!note.empty()) context.NoteForQuestion(note);
  context.Prompt(prompt);
  absl::StatusOr<std::string> line = ReadLine();
  context.EndPrompt();
  return line;
}

absl::StatusOr<std::string> AskForKey(CommandContext& context, const MarketFacts& market) {
  const absl::StatusOr<std::string> line =
      AskFor(context, absl::StrCat("Keys are made at ", market.keys_page),
             absl::StrCat(market.title, " API key (not shown): "));
  if (!line.ok()) return line.status();
  absl::StatusOr<std::string> key = CheckedKey(*line);
  if (key.ok()) return key;
  return WithExitCode(
      WithHint(Annotate(key.status(), absl::StrCat("read the key for ", market.name)),
               absl::StrCat("paste it at the prompt, or: gpuctl login ", market.name,
                            " < FILE; keys are made at ", market.keys_page)),
      kExitCredentials);
}

// Checks the key with the cheapest call that needs it.
absl::Status CheckKey(CommandContext& context, const MarketFacts& facts, const std::string& key) {
  ASSIGN_OR_RETURN(const Market market, OpenMarketWithKey(context, facts.name, key));
  const absl::Status status = market.provider->ListInstances().status();
  return ExplainMarketError(Annotate(status, absl::StrCat("check the key for ", facts.name)),
                            facts.name);
}

int Show(CommandContext& context, const MarketFacts& market, absl::string_view what,
         const std::vector<std::string>& places) {
  if (context.json()) {
    const nlohmann::ordered_json json = {
        {"provider", market.name}, {"action", what}, {"places", places}};
    context.PrintJson(json);
  } else if (context.quiet) {
    // Its end without an error says all.
  } else if (places.empty()) {
    context.PrintLine(absl::StrCat("there was no key for ", market.name));
  } else {
    context.PrintLine(absl::StrCat("the key for ", market.name, " is ",
                                   what == "stored" ? "accepted and kept in " : "removed from ",
                                   absl::StrJoin(places, " and ")));
  }
  return kExitOk;
}

// Stores or removes the value of a secret.
absl::StatusOr<int> LoginSecret(CommandContext& context, const KeyStore& keys,
                                const std::string& name, bool remove) {
  if (!IsEnvName(name)) {
    return UsageError("login --secret takes the name of a secret, never its value",
                      "for example: gpuctl login --secret GHCR_TOKEN < FILE");
  }
  std::vector<std::string> places;
  if (remove) {
    ASSIGN_OR_RETURN(places, keys.RemoveSecret(name));
  } else {
    ASSIGN_OR_RETURN(const std::string value,
                     AskFor(context, "", absl::StrCat("Value of ", name, " (not shown): ")));
    const absl::StatusOr<std::string> place = keys.StoreSecret(name, value);
    if (!place.ok()) {
      return WithExitCode(
          WithHint(Annotate(place.status(), absl::StrCat("keep the value of ", name)),
                   absl::StrCat("paste it at the prompt, or: gpuctl login --secret ", name,
                                " < FILE; what cannot be kept can still be exported")),
          kExitCredentials);
    }
    places = {*place};
  }
  if (context.json()) {
    const nlohmann::ordered_json json = {
        {"secret", name}, {"action", remove ? "removed" : "stored"}, {"places", places}};
    context.PrintJson(json);
  } else if (context.quiet) {
    // Its end without an error says all.
  } else if (places.empty()) {
    context.PrintLine(absl::StrCat("there was no value of ", name));
  } else {
    context.PrintLine(absl::StrCat("the value of ", name, " is ",
                                   remove ? "removed from " : "kept in ",
                                   absl::StrJoin(places, " and ")));
  }
  if (std::getenv(name.c_str()) != nullptr) {
    context.Warn(absl::StrCat("$", name, " is set, and is used before any value that is stored"));
  }
  return kExitOk;
}

// Warns when a variable is set, because it is used before the stored key.
void WarnOfVariable(CommandContext& context, const KeyStore& keys, const MarketFacts& market) {
  const absl::StatusOr<MarketKey> used = keys.Find(market.name);
  if (used.ok() && used->source[0] == '$') {
    context.Warn(absl::StrCat(used->source, " is set, and is used before any key that is stored"));
  }
}

// Looks for rented machines that the new key does not know. With `same_account` it is recorded as
// another key of their account.
absl::Status SettleAccount(CommandContext& context, const std::string& name, const std::string& key,
                           bool same_account) {
  Holdings holdings(context);
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Market market, OpenMarketWithKey(context, name, key));
  ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger->List(/*open_only=*/true));
  for (const Lease& lease : open) {
    if (lease.provider != name) continue;
    const absl::Status mine = CheckAccount(*ledger, *market.provider, lease);
    if (!absl::IsPermissionDenied(mine)) {
      RETURN_IF_ERROR(mine);
    } else if (same_account) {
      RETURN_IF_ERROR(ledger->JoinAccounts(name, lease.key_print, market.provider->key_print()));
    } else {
      context.Warn(mine.message());
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> CmdLogin(CommandContext& context, std::vector<std::string> args) {
  std::string name, secret;
  bool remove = false, same_account = false;
  VerbParser parser(context, absl::StrCat("login ", absl::StrJoin(MarketNames(), "|"), " [FLAGS]"),
                    "Takes the API key of your account at a provider, checks it, and keeps it in\n"
                    "the system's keychain or, where there is none, in a file only you can read.\n"
                    "The key comes from the terminal, without echo, or from stdin.",
                    "  gpuctl login vast\n"
                    "  gpuctl login vast < key.txt\n"
                    "  gpuctl login --secret HF_TOKEN\n\n"
                    "A key in GPUCTL_VAST_API_KEY, and so for the other providers, or in the same\n"
                    "names without GPUCTL_, needs no login.");
  parser.Option("PROVIDER", name, absl::StrJoin(MarketNames(), ", "));
  parser.Option("--secret", secret,
                "Keep the value of a run's secret instead, for launches without the variable\n"
                "of this name and for gpuctl keep");
  parser.Switch("--remove", remove, "Forget the key that is kept here");
  parser.Switch("--same-account", same_account,
                "It is a new key of the account in which machines are rented now");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (!secret.empty()) {
    if (!name.empty() || same_account) {
      return UsageError("login --secret goes with no provider", "gpuctl login --help");
    }
    ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
    return LoginSecret(context, KeyStore(paths.config_dir), secret, remove);
  }
  if (name.empty()) {
    return UsageError("login where?",
                      absl::StrCat("gpuctl login ", absl::StrJoin(MarketNames(), "|")));
  }
  RETURN_IF_ERROR(CheckMarketName(name));
  if (FindMarket(name) == nullptr) {
    return UsageError(absl::StrCat(name, " has no key: its login node is reached by ssh"),
                      absl::StrCat("gpuctl config set ", name, ".host USER@HOST"));
  }
  const MarketFacts& market = *FindMarket(name);
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const KeyStore keys(paths.config_dir);
  if (remove) {
    ASSIGN_OR_RETURN(const std::vector<std::string> places, keys.Remove(name));
    Show(context, market, "removed", places);
    WarnOfVariable(context, keys, market);
    return kExitOk;
  }
  ASSIGN_OR_RETURN(const std::string key, AskForKey(context, market));
  RETURN_IF_ERROR(CheckKey(context, market, key));
  ASSIGN_OR_RETURN(const std::string place, keys.Store(name, key));
  Show(context, market, "stored", {place});
  if (!market.ssh_keys_page.empty()) {
    ASSIGN_OR_RETURN(const std::string line, EnsureKeyPair(paths.own_key(), "gpuctl"));
    context.Warn(absl::StrCat("before the first launch, ", AskForSshKey(name, line)));
  }
  RETURN_IF_ERROR(SettleAccount(context, name, key, same_account));
  WarnOfVariable(context, keys, market);
  return kExitOk;
}

}  // namespace gpuctl
