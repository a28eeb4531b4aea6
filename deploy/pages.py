#!/usr/bin/env python3
"""Writes man pages and shell completions from what `gpuctl VERB --help` says.

  pages.py GPUCTL OUT DATE    DATE: YYYY-MM-DD, for the pages' footers

OUT gets man1/gpuctl.1, man1/gpuctl-VERB.1, bash/gpuctl, zsh/_gpuctl, fish/gpuctl.fish.
"""
import dataclasses
import os
import re
import subprocess
import sys


@dataclasses.dataclass
class Flag:
    names: list  # as typed: ["-d", "--detach"]
    value: bool  # takes a value
    text: str


@dataclasses.dataclass
class Verb:
    name: str
    group: str
    summary: str
    intro: str = ""
    usage: str = ""
    sections: list = dataclasses.field(default_factory=list)  # (title, [(left, text)])
    outro: list = dataclasses.field(default_factory=list)     # lines

    def flags(self):
        """The flags of all sections."""
        found = []
        for title, rows in self.sections:
            if title == "Positionals":
                continue
            for left, text in rows:
                names, _, value = left.partition(" ")
                found.append(Flag(names.split(","), bool(value), text))
        return found

    def positionals(self):
        """The words of the positionals' names, e.g. {"RUN"}."""
        return {left.split(" ")[0] for title, rows in self.sections if title == "Positionals"
                for left, _ in rows}


def ask(gpuctl, *arguments):
    return subprocess.run([gpuctl, *arguments], check=True, capture_output=True, text=True,
                          env={**os.environ, "NO_COLOR": "1"}).stdout


def read_verbs(gpuctl):
    """Returns the verbs in the order of the help, with nothing but their summaries."""
    verbs, group = [], ""
    for line in ask(gpuctl, "--help").split("\n"):
        if re.fullmatch(r"[A-Z]\w*", line):
            group = line
        match = re.fullmatch(r"  ([a-z-]+) +(\S.*)", line)
        if match:
            verbs.append(Verb(match.group(1), group, match.group(2)))
    return verbs


def as_of_cli11_2_2(line):
    """Newer versions of CLI11 write "-h,      --help" under "OPTIONS:", and spaces at the end."""
    line = re.sub(r"^(POSITIONALS|OPTIONS):$", lambda m: m.group(1).capitalize() + ":", line.rstrip())
    line = re.sub(r"^  (-\w), +(--)", r"  \1,\2", line)
    return re.sub(r"^ {3,19}(--)", r"  \1", line)


def read_help(verb, text):
    """Fills a verb with what its help says."""
    lines = [as_of_cli11_2_2(line) for line in text.rstrip("\n").split("\n")]
    start = next(i for i, line in enumerate(lines) if line.startswith("Usage: "))
    verb.intro = "\n".join(lines[:start]).strip()
    verb.usage = lines[start][len("Usage: "):]
    rows = None
    for line in lines[start + 1:]:
        title = re.fullmatch(r"([A-Z][\w ]*):", line)
        if title and not verb.outro:
            rows = []
            verb.sections.append((title.group(1), rows))
        elif rows is not None and re.match(r"  \S", line):
            left, text = re.fullmatch(r"  (\S.*?)(?: {2,}(\S.*))?", line).groups()
            rows.append((left, text or ""))
        elif rows and re.match(r" {20,}\S", line):
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}".strip())
        elif line == "" and rows is not None:
            rows = None
        elif line or verb.outro:
            verb.outro.append(line)
    return verb


# --- man pages

def roff(text):
    """Escapes text for a man page."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^(?=[.'])", "\\&", text)


def paragraphs(lines):
    """Text as roff: indented lines are examples."""
    out, examples = [], False
    for line in lines:
        if line.startswith("  "):
            if not examples:
                out = out[:-1] if out[-1:] == [".PP"] else out
                out += ([".PP"] if out else []) + [".nf", ".RS 4"]
            examples = True
            out.append(roff(line.strip()))
            continue
        if examples:
            out += [".RE", ".fi"]
            examples = False
        if line.strip():
            out.append(roff(line.strip()))
        elif out and out[-1] != ".PP":
            out.append(".PP")
    if examples:
        out += [".RE", ".fi"]
    while out and out[-1] == ".PP":
        out.pop()
    return out


def head(name, summary, version, date):
    return [f'.TH {name.upper()} 1 "{date}" "gpuctl {version}" "User Commands"', ".SH NAME",
            f"{roff(name)} \\- {roff(summary)}"]


def synopsis(usage):
    words = usage.split(" ")
    bold = 1 + (len(words) > 1 and words[1].islower())
    return [".SH SYNOPSIS", f".B {roff(' '.join(words[:bold]))}", roff(" ".join(words[bold:]))]


def verb_page(verb, version, date):
    out = head(f"gpuctl-{verb.name}", verb.summary, version, date) + synopsis(verb.usage)
    table = "   " in verb.intro  # columns stay as they are
    intro = [roff(line) for line in verb.intro.split("\n")]
    out += [".SH DESCRIPTION"]
    out += [".nf", *intro, ".fi"] if table else paragraphs(verb.intro.split("\n"))
    for title, rows in verb.sections:
        out.append(f".SH {'ARGUMENTS' if title == 'Positionals' else title.upper()}")
        for left, text in rows:
            names, _, value = left.partition(" ")
            names = ", ".join(f"\\fB{roff(name)}\\fR" for name in names.split(","))
            value = f" \\fI{roff(value)}\\fR" if value and title != "Positionals" else ""
            out += [".TP", names + value, roff(text)]
    if any(line.strip() for line in verb.outro):
        out += [".SH NOTES"] + paragraphs(verb.outro)
    out += [".SH SEE ALSO", ".BR gpuctl (1)"]
    return "\n".join(out) + "\n"


FILES = [("~/.local/state/gpuctl", "the list of runs, the copies of their streams, the ledger of what "
          "was rented (GPUCTL_STATE_DIR)"),
         ("~/.cache/gpuctl", "hashes of files; programs of nodes (GPUCTL_CACHE_DIR)"),
         ("~/.config/gpuctl", "providers' keys, where there is no keychain (GPUCTL_CONFIG_DIR)"),
         ("~/.gpuctl", "on a node: programs, sent trees, jobs (GPUCTL_NODE_ROOT)")]


def main_page(verbs, version, date):
    out = head("gpuctl", "run training jobs on GPU machines", version, date)
    out += synopsis("gpuctl VERB [ARGUMENTS] [FLAGS]") + [".SH DESCRIPTION"]
    out += [roff("gpuctl runs a training job on a GPU machine and keeps a copy of its output here."),
            roff("Each verb has a page of its own: man gpuctl-launch.")]
    group = None
    for verb in verbs:
        if verb.group != group:
            out.append(f".SS {verb.group}")
            group = verb.group
        out += [".TP", f".B {roff(verb.name)}", roff(verb.summary)]
    out.append(".SH FILES")
    for path, text in FILES:
        out += [".TP", f".I {roff(path)}", roff(text)]
    out.append(".SH SEE ALSO")
    pages = [f".BR gpuctl\\-{roff(verb.name)} (1)" for verb in verbs]
    out += [page + "," for page in pages[:-1]] + pages[-1:]
    return "\n".join(out) + "\n"


# --- completions

FORMATS = ["table", "wide", "json", "jsonl"]
CHOICES = {"--output": FORMATS, "-o": FORMATS,
           "--provider": ["local", "ssh", "runpod", "lambda", "vast"],
           "--retry-on": ["lost", "failed", "preempted"],
           "--on-price-rise": ["tell", "accept", "refuse", "stop"]}
# The words of a positional; for RUN gpuctl itself is asked.
WORDS = {"login": ["runpod", "lambda", "vast"], "debug": ["job", "replay", "trainer-kit"],
         "node": ["fetch"]}
RUNS = ("gpuctl ps -a --offline -o jsonl 2>/dev/null | "
        "sed -n 's/.*\"name\":\"\\([^\"]*\\)\".*/\\1/p'")


def bash_page(verbs):
    flags, runs, words = [], [], []
    for verb in verbs:
        names = " ".join(name for flag in verb.flags() for name in flag.names)
        flags.append(f"    {verb.name}) words='{names}' ;;")
        if "RUN" in verb.positionals() and verb.name not in WORDS:
            runs.append(verb.name)
    for name, choices in WORDS.items():
        words.append(f"    {name}) words='{' '.join(choices)}' ;;")
    values = {}
    for name, choices in CHOICES.items():
        values.setdefault(" ".join(choices), []).append(name)
    values = [f"    {'|'.join(names)}) words='{choices}' ;;" for choices, names in values.items()]
    valued = sorted({name for verb in verbs for flag in verb.flags() if flag.value
                     for name in flag.names} - set(CHOICES))
    names = " ".join(verb.name for verb in verbs)
    newline = "\n"
    return f"""# Completion of gpuctl for bash. deploy/pages.py writes it from gpuctl's help.
_gpuctl() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} verb= word words=
  COMPREPLY=()
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    # Behind -- is a command of the user's own.
    if [ "$word" = -- ]; then return; fi
    case $word in -* | json | jsonl | wide | table) ;; *) verb=${{verb:-$word}} ;; esac
  done
  case $previous in
{newline.join(values)}
    {'|'.join(valued)}) return ;;
  esac
  if [ -n "$words" ]; then
    :
  elif [ -z "$verb" ]; then
    words='{names} help --help --version'
  elif [[ $current == -* ]]; then
    case $verb in
{newline.join('  ' + line for line in flags)}
    esac
  else
    case $verb in
{newline.join('  ' + line for line in words)}
      help) words='{names}' ;;
      {'|'.join(runs)}) words=$({RUNS}) ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _gpuctl gpuctl
"""


def quote_zsh(text):
    return re.sub(r"([\[\]:'\\])", lambda m: "'\\''" if m.group(1) == "'" else "\\" + m.group(1),
                  text)


def zsh_page(verbs):
    rows, cases = [], []
    for verb in verbs:
        rows.append(f"    '{verb.name}:{quote_zsh(verb.summary)}'")
        specs = []
        for flag in verb.flags():
            for name in flag.names:
                kind = ""
                if flag.value:
                    choices = CHOICES.get(flag.names[-1])
                    kind = f":value:({' '.join(choices)})" if choices else ":value:_files"
                specs.append(f"      '*{name}[{quote_zsh(flag.text)}]{kind}'")
        if verb.name in WORDS:
            specs.append(f"      '1:what:({' '.join(WORDS[verb.name])})'")
        elif "RUN" in verb.positionals():
            specs.append("      '1:run:_gpuctl_runs'")
        specs.append("      '*:file:_files'")
        joined = " \\\n".join(specs)
        cases.append(f"    {verb.name}) _arguments \\\n{joined} ;;")
    newline = "\n"
    return f"""#compdef gpuctl
# Completion of gpuctl for zsh. deploy/pages.py writes it from gpuctl's help.
_gpuctl_runs() {{
  local -a runs
  runs=(${{(f)"$({RUNS})"}})
  compadd -a runs
}}
_gpuctl() {{
  local -a verbs
  verbs=(
{newline.join(rows)}
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
{newline.join(cases)}
    help) _describe verb verbs ;;
  esac
}}
_gpuctl "$@"
"""


def quote_fish(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_page(verbs):
    names = " ".join(verb.name for verb in verbs)
    out = ["# Completion of gpuctl for fish. deploy/pages.py writes it from gpuctl's help.",
           f"function __gpuctl_runs\n    {RUNS}\nend",
           f"set -l verbs {names}"]
    none = "'not __fish_seen_subcommand_from $verbs'".replace("'", '"')
    for verb in verbs:
        out.append(f"complete -c gpuctl -n {none} -f -a {verb.name} -d {quote_fish(verb.summary)}")
    for verb in verbs:
        seen = f"'__fish_seen_subcommand_from {verb.name}'"
        for flag in verb.flags():
            words = "".join(f" -s {name[1:]}" if not name.startswith("--") else f" -l {name[2:]}"
                            for name in flag.names)
            choices = CHOICES.get(flag.names[-1])
            value = f" -x -a '{' '.join(choices)}'" if choices else " -r" if flag.value else ""
            out.append(f"complete -c gpuctl -n {seen}{words}{value} -d {quote_fish(flag.text)}")
        if verb.name in WORDS:
            out.append(f"complete -c gpuctl -n {seen} -f -a '{' '.join(WORDS[verb.name])}'")
        elif "RUN" in verb.positionals():
            out.append(f"complete -c gpuctl -n {seen} -a '(__gpuctl_runs)'")
    return "\n".join(out) + "\n"


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    gpuctl, out, date = sys.argv[1:]
    version = ask(gpuctl, "--version").split()[1]
    verbs = [read_help(verb, ask(gpuctl, verb.name, "--help")) for verb in read_verbs(gpuctl)]
    write(os.path.join(out, "man1/gpuctl.1"), main_page(verbs, version, date))
    for verb in verbs:
        write(os.path.join(out, f"man1/gpuctl-{verb.name}.1"), verb_page(verb, version, date))
    write(os.path.join(out, "bash/gpuctl"), bash_page(verbs))
    write(os.path.join(out, "zsh/_gpuctl"), zsh_page(verbs))
    write(os.path.join(out, "fish/gpuctl.fish"), fish_page(verbs))


if __name__ == "__main__":
    main()
