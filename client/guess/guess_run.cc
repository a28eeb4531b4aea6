#include "client/guess/guess_run.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/shell_quote.h"
#include "client/guess/python_script.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kBeginning = 256 << 10;
constexpr size_t kMostScripts = 50;

// Returns the beginning of a regular file; "" for anything else. Waits for no writer of a FIFO.
std::string BeginningOf(const std::string& path) {
  const UniqueFd fd(file_ops::Open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (fd.get() < 0 || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  std::string text(kBeginning, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + size, text.size() - size);
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

// What there is of a directory.
struct Directory {
  std::string path;
  std::vector<std::string> names;  // of its own files
  bool Has(absl::string_view name) const {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  std::string Read(absl::string_view name) const { return BeginningOf(JoinPath(path, name)); }
};

// Returns how much a file's name says that it trains; 0: nothing.
int RankOf(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  if (!absl::EndsWith(lower, ".py") || absl::StartsWith(lower, "test_")) return 0;
  if (lower == "train.py") return 5;
  if (absl::StartsWith(lower, "train")) return 4;
  for (const char* word : {"train", "finetune", "fine_tune", "sft", "pretrain"}) {
    if (absl::StrContains(lower, word)) return 3;
  }
  if (lower == "main.py") return 2;
  return lower == "run.py" || lower == "__main__.py" ? 1 : 0;
}

struct Script {
  std::string path;  // relative to the directory
  PythonScript text;
  std::string why;
};

// Finds the script that trains: by its name, here before the folders in which scripts usually are;
// else the only one that can be run.
std::optional<Script> FindScript(const Directory& dir) {
  std::vector<std::pair<int, std::string>> found;
  for (const char* folder : {"", "scripts", "src"}) {
    const absl::StatusOr<std::vector<std::string>> names =
        *folder == '\0' ? dir.names : ListDirectory(JoinPath(dir.path, folder));
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      const int rank = RankOf(name);
      if (rank == 0) continue;
      found.emplace_back(-(rank * 2 + (*folder == '\0' ? 1 : 0)),
                         *folder == '\0' ? name : JoinPath(folder, name));
    }
  }
  std::sort(found.begin(), found.end());
  if (found.size() > kMostScripts) found.resize(kMostScripts);
  for (const auto& [rank, path] : found) {
    const std::string text = dir.Read(path);
    if (!text.empty()) return Script{path, ReadPythonScript(text), "by its name"};
  }
  std::vector<Script> programs;
  for (const std::string& name : dir.names) {
    if (!absl::EndsWith(name, ".py") || programs.size() > 1) continue;
    const PythonScript text = ReadPythonScript(dir.Read(name));
    if (text.is_program || text.has_inline_dependencies) {
      programs.push_back({name, text, "the only script here that can be run"});
    }
  }
  if (programs.size() == 1) return programs.front();
  return std::nullopt;
}

// Where no tool makes the environment: Macs and plain Debians have no "python".
constexpr char kPython[] = "python3";

// How the environment of a script is made, and what stands before its command.
struct Environment {
  std::string setup;   // lines, each with its end
  std::string prefix;  // "uv run "
  std::string python = "python";
  std::string why;
};

Environment EnvironmentOf(const Directory& dir, const PythonScript& script) {
  if (script.has_inline_dependencies) {
    return {"", "uv run ", "", "the script names its packages itself (PEP 723)"};
  }
  if (dir.Has("uv.lock")) return {"", "uv run ", "python", "there is uv.lock"};
  if (dir.Has("poetry.lock")) {
    return {absl::StrCat(kPython, " -m venv \"$GPUCTL_ENV_DIR\"\npoetry install\n"), "poetry run ",
            "python", "there is poetry.lock"};
  }
  for (const char* name : {"environment.yml", "environment.yaml"}) {
    if (!dir.Has(name)) continue;
    return {absl::StrCat("conda env create -y -f ", name, " -p \"$GPUCTL_ENV_DIR\"\n"),
            "conda run --no-capture-output -p \"$GPUCTL_ENV_DIR\" ", "python",
            absl::StrCat("there is ", name)};
  }
  std::vector<std::string> files;
  for (const std::string& name : dir.names) {
    const bool requirements =
        absl::StartsWith(name, "requirements") && absl::EndsWith(name, ".txt");
    if (requirements && !absl::StrContains(name, "dev") && !absl::StrContains(name, "test")) {
      files.push_back(name);
    }
  }
  if (!files.empty()) {
    // One that is not named otherwise has all.
    if (dir.Has("requirements.txt")) files = {"requirements.txt"};
    // With the system's packages: images for training bring torch.
    return {
        absl::StrCat(kPython, " -m venv --system-site-packages \"$GPUCTL_ENV_DIR\"\n",
                     "\"$GPUCTL_ENV_DIR/bin/pip\" install -r ", ShellQuote(files.front()), "\n"),
        "", "python", absl::StrCat("there is ", files.front())};
  }
  if (dir.Has("pyproject.toml") && absl::StrContains(dir.Read("pyproject.toml"), "[project]")) {
    return {"", "uv run ", "python", "there is pyproject.toml"};
  }
  return {"", "", kPython, ""};
}

std::string CommandFor(const Script& script, const Environment& env, std::string& why) {
  const std::string path = ShellQuote(script.path);
  why = absl::StrCat(script.path, ": ", script.why);
  const auto because = [&why](absl::string_view reason) { absl::StrAppend(&why, "; ", reason); };
  if (!env.why.empty()) because(env.why);
  // A launcher comes with packages of the environment, which a header in the script does not lend.
  if (env.python.empty()) return absl::StrCat(env.prefix, path);
  if (script.text.uses_accelerate) {
    because("it imports accelerate");
    return absl::StrCat(env.prefix, "accelerate launch ", path);
  }
  if (script.text.uses_torch_distributed) {
    because("it starts a process group");
    return absl::StrCat(env.prefix, "torchrun --standalone --nproc_per_node=gpu ", path);
  }
  return absl::StrCat(env.prefix, env.python, " ", path);
}

// Finds a target "train" in the text of a Makefile.
bool HasTrainTarget(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "train:") && !absl::StartsWith(line, "train:=")) return true;
  }
  return false;
}

void GuessCommand(const Directory& dir, GuessedRun& run) {
  if (const std::optional<Script> script = FindScript(dir); script.has_value()) {
    const Environment env = EnvironmentOf(dir, script->text);
    std::string why;
    run.setup = env.setup;
    run.run = CommandFor(*script, env, why);
    if (!run.setup.empty()) run.guesses.push_back({"setup", run.setup, env.why});
    run.guesses.push_back({"run", run.run, why});
    run.checkpoints = script->text.checkpoints;
    if (!run.checkpoints.empty()) {
      run.guesses.push_back({"checkpoints", absl::StrJoin(run.checkpoints, ", "),
                             absl::StrCat(script->path, ": ", script->text.saved_by)});
    }
    return;
  }
  for (const char* name : {"Makefile", "makefile", "GNUmakefile"}) {
    if (!dir.Has(name) || !HasTrainTarget(dir.Read(name))) continue;
    run.run = "make train";
    run.guesses.push_back({"run", run.run, absl::StrCat(name, " has the target train")});
    return;
  }
  for (const char* name : {"train.sh", "run.sh"}) {
    if (!dir.Has(name) || dir.Read(name).empty()) continue;
    run.run = absl::StrCat("bash ", name);
    run.guesses.push_back({"run", run.run, absl::StrCat("there is ", name)});
    return;
  }
}

// Returns the part of a directory's name that a run's name can have.
std::string NameOf(absl::string_view dir) {
  std::string name;
  for (const char c : BaseName(dir)) {
    const bool letter = absl::ascii_isalnum(static_cast<unsigned char>(c));
    if (letter || (!name.empty() && (c == '-' || c == '_' || c == '.'))) {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  name.resize(std::min<size_t>(name.size(), 40));
  while (!name.empty() && !absl::ascii_isalnum(static_cast<unsigned char>(name.back()))) {
    name.pop_back();
  }
  return name;
}

// Returns a text as YAML: in JSON's form where it is not plain.
std::string Yaml(const std::string& text) {
  return IsPlainWord(text) && !absl::StrContains(text, "*")
             ? text
             : nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string Block(absl::string_view field, absl::string_view script) {
  const std::vector<std::string> lines = absl::StrSplit(script, '\n', absl::SkipEmpty());
  if (lines.size() == 1) return absl::StrCat(field, ": ", Yaml(lines[0]), "\n");
  return absl::StrCat(field, ": |\n  ", absl::StrJoin(lines, "\n  "), "\n");
}

// Returns the path as editors take it: they split the line at spaces.
std::string SchemaAddress(const std::string& path) {
  std::string address;
  bool plain = true;
  for (const char c : path) {
    const bool good = absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                      absl::string_view("/._-").find(c) != absl::string_view::npos;
    plain = plain && good;
    if (good) {
      address += c;
    } else {
      absl::StrAppend(&address, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return plain ? path : absl::StrCat("file://", address);
}

}  // namespace

absl::StatusOr<GuessedRun> GuessRun(const std::string& dir) {
  Directory directory;
  directory.path = dir;
  ASSIGN_OR_RETURN(directory.names, ListDirectory(dir));
  GuessedRun run;
  run.name = NameOf(dir);
  if (!run.name.empty()) run.guesses.push_back({"name", run.name, "the directory's name"});
  GuessCommand(directory, run);
  return run;
}

std::string FormatRunFile(const GuessedRun& run, const std::string& schema_path) {
  std::string text = absl::StrCat("# yaml-language-server: $schema=", SchemaAddress(schema_path),
                                  "\n# gpuctl launch --dry-run run.yaml shows the plan.\n");
  if (!run.name.empty()) absl::StrAppend(&text, "name: ", Yaml(run.name), "\n");
  absl::StrAppend(&text,
                  "# resources:\n"
                  "#   gpu: [RTX4090:1, A100-80GB:1]   # best first; gpuctl offers shows prices\n"
                  "#   max_price: 3.00                 # USD per hour\n");
  if (run.run.empty()) {
    absl::StrAppend(&text, "# What shall run? gpuctl found no script that trains.\n",
                    "run: echo \"write the command here, such as python3 train.py\"\n");
  } else {
    if (!run.setup.empty()) absl::StrAppend(&text, Block("setup", run.setup));
    absl::StrAppend(&text, Block("run", run.run));
  }
  if (run.checkpoints.empty()) {
    absl::StrAppend(
        &text,
        "# checkpoints: outputs/checkpoint-*   # where the script saves; what it saves "
        "in\n#                                      $GPUCTL_CHECKPOINT_DIR needs none\n");
  } else {
    std::vector<std::string> patterns;
    for (const std::string& pattern : run.checkpoints) patterns.push_back(Yaml(pattern));
    absl::StrAppend(&text, "checkpoints: [", absl::StrJoin(patterns, ", "), "]\n");
  }
  absl::StrAppend(&text, "# artifacts: [\"outputs/**/*.json\"]    # files that come home, too\n",
                  "# limits: {time: 6h, cost: 20}\n");
  return text;
}

}  // namespace gpuctl
