#include "client/programs/node_scripts.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/allocation_step.h"
#include "client/base/shell_quote.h"

namespace gpuctl {
namespace {

// Returns a shell function `own PATH`, which ends the script when PATH is there and belongs to
// another user, who could have put a program of his own there.
constexpr char kOwn[] =
    "own() { if [ -e \"$1\" ] && [ ! -O \"$1\" ]; then "
    "echo \"$1 belongs to another user\" >&2; exit 126; fi; }; ";

// Returns the beginning of a script, which sets `r` to the root and `b` to the bundle's directory,
// and checks both.
std::string CheckOwner(const std::string& root, const Bundle& bundle) {
  return absl::StrCat(kOwn, "r=", RootWord(root), "; b=$r/bin/", bundle.digest,
                      "; for p in \"$r\" \"$r/bin\" \"$b\" \"$b/gpuctl-agent\" "
                      "\"$b/gpuctl-shim\"; do own \"$p\"; done; ");
}

}  // namespace

std::string ShellCommand(const std::string& script) {
  return absl::StrCat("exec /bin/sh -c ", ShellQuote(script));
}

std::string RootWord(const std::string& root) {
  if (root == kHeldRoot) return absl::StrCat("\"${", kHeldRootVariable, ":?}\"");
  return root.empty() ? "\"$HOME/.gpuctl\"" : ShellQuote(root);
}

std::string AgentScript(const std::string& root, const Bundle& bundle,
                        absl::string_view arguments) {
  return absl::StrCat(CheckOwner(root, bundle), "exec \"$b/gpuctl-agent\" ", arguments,
                      " --root \"$r\"");
}

std::string LookScript(const std::string& root, const std::vector<Bundle>& bundles,
                       absl::string_view mark) {
  std::string digests;
  for (const Bundle& bundle : bundles) absl::StrAppend(&digests, " ", bundle.digest);
  return absl::StrCat(
      kOwn, "r=", RootWord(root), "; own \"$r\"; own \"$r/bin\"; ",
      // Nobody else puts anything below it from here on.
      "if [ -d \"$r\" ]; then chmod go-rwx \"$r\"; fi; ", "echo; echo \"", mark,
      " is $(uname -sm)\"; for d in", digests,
      "; do b=$r/bin/$d; for p in \"$b\" \"$b/gpuctl-agent\" \"$b/gpuctl-shim\"; do own \"$p\"; "
      "done; if test -x \"$b/gpuctl-agent\"; then echo \"",
      mark, " has $d\"; fi; done");
}

NodeLook ParseLook(absl::string_view said, absl::string_view mark) {
  NodeLook look;
  for (absl::string_view line : absl::StrSplit(said, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&line, mark)) continue;
    if (absl::ConsumePrefix(&line, " is")) {
      look.uname = std::string(absl::StripAsciiWhitespace(line));
    } else if (absl::ConsumePrefix(&line, " has ")) {
      look.digests.emplace_back(line);
    }
  }
  return look;
}

std::string UnpackScript(const std::string& partial, const Bundle& bundle, size_t roots_bytes) {
  // An agent without this command exits with 2, for a wrong command line, or does nothing.
  return absl::StrCat(
      "a=", partial, "; \"$a/gpuctl-agent\" unpack \"$a/gpuctl-shim\"",
      bundle.roots_path.empty() ? "" : absl::StrCat(" \"$a/roots.pem\" ", roots_bytes),
      "; c=$?; case $c in "
      "0) test -s \"$a/gpuctl-shim\" || exit ",
      kUnpacksNothing, ";; 1) exit ", kUnpackFailed, ";; 2) exit ", kUnpacksNothing,
      ";; *) exit $c;; esac; ");
}

std::string CheckScript(const std::string& partial, const Bundle& bundle,
                        absl::string_view publish) {
  return absl::StrCat(
      "a=", partial, "; s() { \"$a/gpuctl-agent\" sha256 \"$a/$1\"; }; ",
      "h=$(s gpuctl-agent) && h=\"$h $(s gpuctl-shim)\"",
      bundle.roots_path.empty() ? "" : " && h=\"$h $(s roots.pem)\"", " || exit; echo \"$h\"; ",
      // An agent without this command is older than API levels.
      "\"$a/gpuctl-agent\" api-level > \"$a/api_level\" 2> /dev/null || rm \"$a/api_level\"; ",
      "case $h in *", bundle.agent_sha256, "*", bundle.shim_sha256, "*", bundle.roots_sha256, "*) ",
      publish, ";; esac");
}

bool HasHashesOf(const Bundle& bundle, absl::string_view said) {
  return absl::StrContains(said, bundle.agent_sha256) &&
         absl::StrContains(said, bundle.shim_sha256) &&
         absl::StrContains(said, bundle.roots_sha256);
}

std::optional<int64_t> FreeKbOf(absl::string_view df) {
  df = absl::StripTrailingAsciiWhitespace(df);
  const size_t before = df.find_last_of('\n');
  const absl::string_view line = before == df.npos ? df : df.substr(before + 1);
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
  // "<device> <size> <used> <available> <used>% <mount point>"; the first and the last may contain
  // blanks.
  for (size_t i = 1; i < fields.size(); ++i) {
    int64_t free_kb = 0;
    if (absl::EndsWith(fields[i], "%") && absl::SimpleAtoi(fields[i - 1], &free_kb)) return free_kb;
  }
  return std::nullopt;
}

}  // namespace gpuctl
