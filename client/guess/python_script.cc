#include "client/guess/python_script.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gpuctl {
namespace {

bool Imports(absl::string_view line, absl::string_view module) {
  for (const absl::string_view word : {"import ", "from "}) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, word) || !absl::ConsumePrefix(&rest, module)) continue;
    if (rest.empty() ||
        !(absl::ascii_isalnum(static_cast<unsigned char>(rest[0])) || rest[0] == '_')) {
      return true;
    }
  }
  return false;
}

bool HasAny(absl::string_view line, std::initializer_list<absl::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [line](absl::string_view word) { return absl::StrContains(line, word); });
}

// Returns the text in quotes that follows `mark` and '=' or '(' directly, with each {…} of an
// f-string as '*'; "" when there is none, or one that cannot be a path in a work directory.
std::string QuotedAfter(absl::string_view line, absl::string_view mark) {
  const size_t at = line.find(mark);
  if (at == absl::string_view::npos) return "";
  absl::string_view rest = absl::StripLeadingAsciiWhitespace(line.substr(at + mark.size()));
  if (!absl::ConsumePrefix(&rest, "=") && !absl::ConsumePrefix(&rest, "(")) {
    if (!absl::ConsumePrefix(&rest, ",")) return "";
  }
  rest = absl::StripLeadingAsciiWhitespace(rest);
  absl::ConsumePrefix(&rest, "f");
  absl::ConsumePrefix(&rest, "r");
  if (rest.empty() || (rest[0] != '"' && rest[0] != '\'')) return "";
  const size_t end = rest.find(rest[0], 1);
  if (end == absl::string_view::npos) return "";
  std::string text;
  int depth = 0;
  for (const char c : rest.substr(1, end - 1)) {
    if (c == '{' && depth++ == 0) text += '*';
    if (depth == 0) text += c;
    if (c == '}' && depth > 0) --depth;
  }
  absl::string_view path = text;
  while (absl::ConsumePrefix(&path, "./")) {
  }
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  const bool plain = std::all_of(path.begin(), path.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("/._-*+=").find(c) != absl::string_view::npos;
  });
  const bool leads_out = absl::StartsWith(path, "/") || absl::StrContains(path, "..");
  return plain && !leads_out && path.size() <= 200 ? std::string(path) : "";
}

// Returns a value for an option of argparse: add_argument("--output_dir", default="out").
std::string DefaultOf(absl::string_view line, absl::string_view option) {
  if (!absl::StrContains(line, "add_argument") || !absl::StrContains(line, option)) return "";
  return QuotedAfter(line, "default");
}

// Functions whose first argument is what they save, and whose last is the path.
constexpr absl::string_view kSavers[] = {"torch.save", "joblib.dump", "save_file"};

struct Saved {
  std::string output_dir, default_root_dir, dirpath;
  std::string path, saver;  // of a call in the script
};

void ReadSaves(absl::string_view line, Saved& saved) {
  const auto keep = [](std::string& slot, std::string text) {
    if (slot.empty()) slot = std::move(text);
  };
  keep(saved.output_dir, QuotedAfter(line, "output_dir"));
  for (const absl::string_view option : {"--output_dir", "--output-dir"}) {
    keep(saved.output_dir, DefaultOf(line, option));
  }
  keep(saved.default_root_dir, QuotedAfter(line, "default_root_dir"));
  if (!absl::StrContains(line, "from_pretrained"))
    keep(saved.dirpath, QuotedAfter(line, "dirpath"));
  if (!saved.path.empty()) return;
  for (const absl::string_view saver : kSavers) {
    const size_t at = line.find(absl::StrCat(saver, "("));
    const size_t comma = line.rfind(',');
    if (at == absl::string_view::npos || comma == absl::string_view::npos || comma < at) continue;
    saved.path = QuotedAfter(line.substr(comma), "");
    saved.saver = std::string(saver);
  }
  // pickle.dump(model, file), often with `with open(…) as file` before it.
  const std::string pickled = HasAny(line, {"\"wb\"", "'wb'"}) ? QuotedAfter(line, "open") : "";
  if (absl::EndsWith(pickled, ".pkl") || absl::EndsWith(pickled, ".pickle")) {
    saved.path = pickled;
    saved.saver = "pickle";
  }
}

// One file that each save overwrites is a checkpoint as well; of a number in its name any other.
void ChooseCheckpoints(const Saved& saved, PythonScript& script) {
  if (script.uses_hf_trainer && !saved.output_dir.empty()) {
    script.checkpoints = {absl::StrCat(saved.output_dir, "/checkpoint-*")};
    script.saved_by = absl::StrCat("output_dir is ", saved.output_dir);
  } else if (script.uses_lightning && !saved.dirpath.empty()) {
    script.checkpoints = {absl::StrCat(saved.dirpath, "/*.ckpt")};
    script.saved_by = absl::StrCat("dirpath is ", saved.dirpath);
  } else if (script.uses_lightning) {
    const std::string root =
        saved.default_root_dir.empty() ? "" : absl::StrCat(saved.default_root_dir, "/");
    script.checkpoints = {absl::StrCat(root, "lightning_logs/version_*/checkpoints/*.ckpt")};
    script.saved_by = "Lightning saves there";
  } else if (!saved.path.empty()) {
    script.checkpoints = {saved.path};
    script.saved_by = absl::StrCat(saved.saver, " writes there");
  } else if (script.uses_hf_trainer) {
    script.checkpoints = {"*/checkpoint-*"};
    script.saved_by = "Hugging Face's Trainer saves checkpoint-STEP in its output directory";
  }
}

}  // namespace

PythonScript ReadPythonScript(absl::string_view text) {
  PythonScript script;
  Saved saved;
  bool distributed = false;
  for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
    const absl::string_view line = absl::StripAsciiWhitespace(whole);
    if (absl::StripAsciiWhitespace(whole) == "# /// script") script.has_inline_dependencies = true;
    if (line.empty() || line[0] == '#') continue;
    script.uses_accelerate = script.uses_accelerate || Imports(line, "accelerate");
    script.uses_lightning =
        script.uses_lightning || Imports(line, "lightning") || Imports(line, "pytorch_lightning");
    script.uses_hf_trainer = script.uses_hf_trainer ||
                             (HasAny(line, {"Trainer(", "TrainingArguments(", "SFTConfig(",
                                            "DPOConfig(", "GRPOConfig("}) &&
                              !HasAny(line, {"pl.Trainer", "L.Trainer", "class "})) ||
                             Imports(line, "trl");
    distributed = distributed || HasAny(line, {"init_process_group", "DistributedDataParallel",
                                               "fully_shard(", "init_device_mesh"});
    script.is_program =
        script.is_program || HasAny(line, {"__main__", "ArgumentParser(", "HfArgumentParser("});
    ReadSaves(line, saved);
  }
  if (script.uses_lightning) script.uses_hf_trainer = false;
  script.uses_torch_distributed =
      distributed && !script.uses_accelerate && !script.uses_lightning && !script.uses_hf_trainer;
  ChooseCheckpoints(saved, script);
  return script;
}

}  // namespace gpuctl
