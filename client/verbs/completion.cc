// gpuctl completion: scripts that let a shell complete gpuctl's command lines, and the words that
// these scripts ask for.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/suggest.h"
#include "client/runs/context.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/safe_text.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/complete_words.h"
#include "client/verbs/describe_verbs.h"
#include "client/verbs/verb.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr int kMostRuns = 200;
constexpr int kHelpColumns = 60;

// The scripts pass on the line up to the cursor. What comes back has a word a line, and behind a
// tab what it means; the line ":files" allows names of files.

// "=" and ":" end a word for readline, which replaces only what stands behind them.
constexpr char kBash[] = R"(# bash completion for gpuctl: source <(gpuctl completion bash)
_gpuctl() {
  local program=${COMP_WORDS[0]/#\~/$HOME} i n=0 word glue= words=() line prefix files=
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $n -gt 0 && ( $word == [=:]* || -n $glue ) ]]; then
      words[n-1]+=$word
    else
      words[n]=$word
      n=$((n + 1))
    fi
    glue=
    [[ $word != *[=:] ]] || glue=1
  done
  word=${COMP_WORDS[COMP_CWORD]}
  [[ $word != [=:] ]] || word=
  prefix=${words[n-1]%"$word"}
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ $line == :files ]]; then
      files=1
      continue
    fi
    line=${line%%  *}
    COMPREPLY+=("${line#"$prefix"}")
  done < <("$program" completion words -- "${words[@]}" 2>/dev/null)
  if [[ -n $files ]]; then
    while IFS= read -r line; do
      COMPREPLY+=("$line")
    done < <(compgen -f -- "$word")
    compopt -o filenames 2>/dev/null
  fi
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=:] ]]; then
    compopt -o nospace 2>/dev/null
  fi
}
complete -F _gpuctl gpuctl
)";

constexpr char kZsh[] = R"(#compdef gpuctl
# zsh completion for gpuctl: source <(gpuctl completion zsh), behind compinit; or as the file
# _gpuctl in a directory of $fpath.
_gpuctl() {
  local line word files=
  local -a found open texts open_texts
  for line in "${(@f)$("${(Q)words[1]/#\~/$HOME}" completion words -- \
      "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
    word=${line%%  *}
    if [[ $line == ':files' ]]; then
      files=1
    elif [[ -z $word ]]; then
      continue
    elif [[ $word == *[=:] ]]; then
      open+=("$word")
      open_texts+=("$line")
    else
      found+=("$word")
      texts+=("$line")
    fi
  done
  (( $#found )) && compadd -l -d texts -a -- found
  (( $#open )) && compadd -S '' -l -d open_texts -a -- open
  if [[ -n $files ]]; then
    [[ $PREFIX == --*=* ]] && compset -P '*='
    _files
  fi
  (( compstate[nmatches] > 0 ))
}
if [ "$funcstack[1]" = "_gpuctl" ]; then
  _gpuctl "$@"
else
  compdef _gpuctl gpuctl
fi
)";

constexpr char kFish[] = R"(# fish completion for gpuctl: gpuctl completion fish | source
function __gpuctl_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    set -e words[1]
    for line in ($program completion words -- $words "$typed" 2>/dev/null)
        if test "$line" = :files
            set -l before ''
            set -l path "$typed"
            if set -l parts (string match -r -- '^(--[^=]*=)(.*)' "$typed")
                set before $parts[2]
                set path $parts[3]
            end
            for found in (__fish_complete_path "$path")
                echo -- $before$found
            end
        else
            string replace -- '  ' \t "$line"
        end
    end
end
complete -c gpuctl -f -a '(__gpuctl_complete)'
)";

constexpr std::pair<const char*, const char*> kShells[] = {
    {"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};

std::string OneLine(absl::string_view text) {
  return TruncateToWidth(MakeSafe(text), kHelpColumns);
}

// A name that a shell would read as something else is not offered. gpuctl makes none.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

std::vector<Completion> RunNames(CommandContext& context, bool live_only,
                                 const std::string& prefix) {
  std::vector<Completion> runs;
  // A list that is not there yet is not made for this.
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok() || !PathExists(paths->database())) return runs;
  const absl::StatusOr<RunStore*> store = context.Store();
  if (!store.ok()) return runs;
  RunFilter filter;
  filter.live_only = live_only;
  filter.limit = kMostRuns;
  filter.prefix = prefix;
  const absl::StatusOr<std::vector<RunRow>> rows = (*store)->List(filter);
  if (!rows.ok()) return runs;
  for (const RunRow& row : *rows) {
    if (!IsPlainName(row.name)) continue;
    runs.push_back(
        {row.name, OneLine(absl::StrCat(row.end.has_value() ? "ended: " : "live: ", row.command))});
  }
  return runs;
}

std::vector<Completion> BatchNames(CommandContext& context) {
  std::vector<Completion> names;
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok() || !PathExists(paths->database())) return names;
  const absl::StatusOr<std::unique_ptr<BatchStore>> store = OpenBatches(context);
  if (!store.ok()) return names;
  const absl::StatusOr<std::vector<Batch>> batches = (*store)->List(/*open_only=*/false);
  if (!batches.ok()) return names;
  // The newest first, as for runs.
  for (auto batch = batches->rbegin(); batch != batches->rend(); ++batch) {
    if (IsPlainName(batch->name)) names.push_back({batch->name, "batch"});
  }
  return names;
}

// Prints what may stand at the end of the command line behind "--". It is called at every press of
// the tab key: it asks nobody, and errors are no words.
int PrintWords(CommandContext& context) {
  CompletionSource source;
  for (const Verb& verb : Verbs()) source.verbs.push_back({verb.name, verb.summary});
  source.describe = [&context](const std::string& name) { return DescribeVerb(context, name); };
  source.runs = [&context](bool live_only, const std::string& prefix) {
    return RunNames(context, live_only, prefix);
  };
  source.batches = [&context] { return BatchNames(context); };
  const std::vector<std::string> words = context.after_dashes.value_or(std::vector<std::string>());
  context.after_dashes.reset();
  const Completions found = CompleteWords(words, source);
  if (context.json()) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Completion& completion : found.words) {
      list.push_back({{"word", completion.word}, {"help", completion.help}});
    }
    context.PrintJson({{"words", std::move(list)}, {"files", found.files}});
    return kExitOk;
  }
  std::vector<std::string> lines;
  for (const Completion& completion : found.words) {
    lines.push_back(
        absl::StrCat(completion.word, completion.help.empty() ? "" : "  ", completion.help));
  }
  if (found.files) lines.push_back(":files");
  context.PrintLines(lines);
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> CmdCompletion(CommandContext& context, std::vector<std::string> args) {
  std::string shell;
  VerbParser parser(
      context, "completion bash|zsh|fish [FLAGS]",
      "Prints a script with which the shell completes gpuctl's verbs, flags, and their\n"
      "values: the names of your runs, GPUs, providers. It needs no network.",
      "  source <(gpuctl completion bash)     in ~/.bashrc\n"
      "  source <(gpuctl completion zsh)      in ~/.zshrc, behind compinit\n"
      "  gpuctl completion fish | source      in ~/.config/fish/config.fish");
  parser.Option("SHELL", shell, "bash, zsh or fish").Required();
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (shell == "words") return PrintWords(context);
  std::vector<std::string> names;
  for (const auto& [name, script] : kShells) {
    names.push_back(name);
    if (shell != name) continue;
    if (context.json()) {
      context.PrintJson({{"shell", name}, {"script", script}});
    } else {
      context.PrintOwnText(script);
    }
    return kExitOk;
  }
  return UsageError(absl::StrCat("no completion for \"", shell, "\"", DidYouMean(shell, names)),
                    "gpuctl completion bash, zsh or fish");
}

}  // namespace gpuctl
