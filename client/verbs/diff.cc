// gpuctl diff: how two runs differ.
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/run_program.h"
#include "client/ignore/git_config.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/terminal/console.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/panel_terminal.h"
#include "client/terminal/shown_name.h"
#include "client/terminal/table.h"
#include "client/terminal/terminal_size.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/changed_files.h"
#include "client/verbs/ps_money.h"
#include "client/verbs/run_record.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

struct Difference {
  std::string name, before, after;
};

const RecordField* FieldNamed(const std::vector<RecordField>& fields, const std::string& name) {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&name](const RecordField& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

// Compares field by field, in the order of the first run; then what only the second has.
std::vector<Difference> Compare(const std::vector<RecordField>& first,
                                const std::vector<RecordField>& second) {
  std::vector<Difference> differences;
  for (const RecordField& field : first) {
    const RecordField* const other = FieldNamed(second, field.name);
    if (field.value == (other == nullptr ? "" : other->value)) continue;
    differences.push_back({field.name, field.shown, other == nullptr ? "" : other->shown});
  }
  for (const RecordField& field : second) {
    if (field.value.empty() || FieldNamed(first, field.name) != nullptr) continue;
    differences.push_back({field.name, "", field.shown});
  }
  return differences;
}

struct Side {
  RunRecord record;
  std::string diff;
  std::vector<RecordField> fields;
};

absl::StatusOr<Side> ReadSide(CommandContext& context, Holdings& holdings, RunStore& store,
                              const RunRow& row) {
  Side side;
  ASSIGN_OR_RETURN(side.record, ReadRunRecord(context, holdings, store, row));
  ASSIGN_OR_RETURN(side.diff, store.SourceDiff(row.run_id));
  side.fields = FieldsOf(side.record, side.diff, context.NowMs());
  return side;
}

void AddPackages(Side& side) {
  const std::vector<RecordField> packages = PackageFieldsOf(side.record.row);
  side.fields.insert(side.fields.end(), packages.begin(), packages.end());
}

bool OnSameRented(const RunRecord& first, const RunRecord& second) {
  return !first.machines.empty() && !second.machines.empty() &&
         first.machines.front().lease.lease_id == second.machines.front().lease.lease_id;
}

// Of one machine, runs know more or less: a short one may have ended before the node told.
void LeaveOutMachine(std::vector<RecordField>& fields) {
  const auto is_machines = [](const RecordField& field) {
    return field.name == "gpus" || field.name == "driver";
  };
  fields.erase(std::remove_if(fields.begin(), fields.end(), is_machines), fields.end());
}

// Prints the two side by side, or, on a terminal that is too narrow for that, below each other.
void PrintTwoSides(const CommandContext& context, const std::vector<TableRow>& table) {
  const int columns = GetTerminalSize(STDOUT_FILENO).columns;
  const std::vector<std::string> lines = absl::StrSplit(FormatTable(table), '\n');
  const bool fits = std::all_of(lines.begin(), lines.end(), [columns](const std::string& line) {
    return DisplayWidth(line) <= columns;
  });
  if (fits || !context.terminal.stdout_tty || context.format == OutputFormat::kWide) {
    return context.PrintTable(table);
  }
  std::vector<TableRow> page = {{"FIELD", "RUN", "VALUE"}};
  for (size_t i = 1; i < table.size(); ++i) {
    page.push_back({table[i][0], table[0][1], table[i][1]});
    page.push_back({"", table[0][2], table[i][2]});
  }
  PrintPageFor(context, std::move(page));
}

void PrintDifferences(CommandContext& context, const Side& first, const Side& second,
                      const std::vector<Difference>& differences) {
  const std::string& before = first.record.row.name;
  const std::string& after = second.record.row.name;
  ChangedFiles changed;
  if (first.record.content != second.record.content) {
    changed =
        FilesThatDiffer({first.record.source, first.diff}, {second.record.source, second.diff});
  }
  if (context.json()) {
    Json list = Json::array();
    const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
    for (const Difference& one : differences) {
      list.push_back(
          {{"field", one.name}, {"before", text(one.before)}, {"after", text(one.after)}});
    }
    context.PrintJson({{"before", before},
                       {"after", after},
                       {"differences", list},
                       {"files", changed.files},
                       {"files_unknown", text(changed.why_not_all)}});
    return;
  }
  if (differences.empty()) {
    context.Say(absl::StrCat(before, " and ", after, " do not differ"));
    return;
  }
  std::vector<TableRow> table = {{"FIELD", before, after}};
  for (const Difference& one : differences) {
    table.push_back(
        {one.name, one.before.empty() ? "-" : one.before, one.after.empty() ? "-" : one.after});
  }
  PrintTwoSides(context, table);
  if (!changed.files.empty()) {
    context.PrintLine(absl::StrCat("files that differ: ", FirstFew(changed.files)));
  }
  if (!changed.why_not_all.empty()) {
    context.Say(absl::StrCat(changed.files.empty() ? "which files differ is not known: "
                                                   : "other files may differ, too: ",
                             changed.why_not_all));
  }
}

// Writes the two kept diffs into `dir` and lets git compare them.
absl::StatusOr<ProgramEnd> CompareIn(const std::string& git, const std::string& dir,
                                     const Side& first, const Side& second) {
  const std::string& before = first.record.row.name;
  const std::string& after = second.record.row.name;
  RETURN_IF_ERROR(WriteFileAtomic(JoinPath(dir, before), first.diff));
  RETURN_IF_ERROR(WriteFileAtomic(JoinPath(dir, after), second.diff));
  constexpr size_t kMostBytes = 4 << 20;
  return RunWithin(
      absl::Seconds(30),
      {git, "--no-pager", "-C", dir, "diff", "--no-index", "--no-color", "--no-ext-diff",
       "--no-textconv", "--text", "--src-prefix=", "--dst-prefix=", "--", before, after},
      {"LC_ALL=C"}, -1, kMostBytes);
}

// Returns how the two kept diffs differ, as `git diff` of two files shows it.
absl::StatusOr<std::string> DiffOfDiffs(const Side& first, const Side& second) {
  const std::string git = GitEnvironment::FromProcess().git;
  if (git.empty()) {
    return WithHint(absl::FailedPreconditionError("compare the diffs: git is not installed"),
                    "gpuctl show RUN --diff prints each");
  }
  ASSIGN_OR_RETURN(const std::string dir, MakeTempDirectory("gpuctl-diff-"));
  const absl::StatusOr<ProgramEnd> end = CompareIn(git, dir, first, second);
  (void)RemoveTree(dir);
  RETURN_IF_ERROR(end.status());
  // 1 means that they differ.
  if (end->exit_code > 1)
    return absl::FailedPreconditionError("compare the diffs: git diff failed");
  return end->output;
}

absl::Status PrintPatch(CommandContext& context, const Side& first, const Side& second) {
  if (first.diff == second.diff) {
    context.Say("the changes that were kept with them do not differ");
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string text, DiffOfDiffs(first, second));
  if (first.record.source.commit != second.record.source.commit) {
    context.Say("the two changes are against different commits");
  }
  if (context.terminal.stdout_tty) {
    for (const absl::string_view line : absl::StrSplit(text, '\n')) context.PrintLine(line);
    return absl::OkStatus();
  }
  const absl::Status written = context.PrintJobBytes(text).status();
  return absl::IsUnavailable(written) ? absl::OkStatus() : written;
}

}  // namespace

absl::StatusOr<int> CmdDiff(CommandContext& context, std::vector<std::string> args) {
  std::string first_name, second_name;
  bool patch = false;
  VerbParser parser(
      context, "diff RUN OTHER [FLAGS]",
      "Shows how two runs differ: what was asked for, the commit and the content of the\n"
      "work directory, the machine, and how they went. Packages are compared where those of\n"
      "both are recorded: by the machine itself, or by gpuctl show RUN --packages.",
      "  gpuctl diff amber-fox-3 amber-fox-4\n"
      "  gpuctl diff amber-fox-3 amber-fox-4 --patch");
  parser.Option("RUN", first_name, "Name, id, or the beginning of one").Required();
  const FlagSet::Flag other = parser.Option("OTHER", second_name, "The run to compare it with");
  parser.Switch("--patch", patch,
                "Show instead how the kept changes of their work directories differ");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  RETURN_IF_ERROR(CheckNoBatch(context, {first_name, second_name},
                               "gpuctl diff $-1 $-2 compares two of its runs, gpuctl queue $ "
                               "--results all"));
  if (!other.given()) {
    return UsageError("diff: OTHER is required", "gpuctl diff --help lists what it takes");
  }
  if (patch && context.json()) {
    return UsageError("--patch prints text", "gpuctl show RUN --diff --json has each diff");
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const RunRow first_row, store->Get(first_name));
  ASSIGN_OR_RETURN(const RunRow second_row, store->Get(second_name));
  Holdings holdings(context);
  ASSIGN_OR_RETURN(Side first, ReadSide(context, holdings, *store, first_row));
  ASSIGN_OR_RETURN(Side second, ReadSide(context, holdings, *store, second_row));
  if (!first.record.row.packages.empty() && !second.record.row.packages.empty()) {
    AddPackages(first);
    AddPackages(second);
  }
  if (OnSameRented(first.record, second.record)) {
    for (Side* const side : {&first, &second}) LeaveOutMachine(side->fields);
  }
  for (const Side* const side : {&first, &second}) {
    const RunRow& row = side->record.row;
    if (row.end.has_value() || patch) continue;
    context.Say(absl::StrCat(
        row.name, " is not over: this is as of ",
        row.heard_ms == 0 ? "its launch" : absl::StrCat(Ago(context, row.heard_ms), " ago"),
        "; gpuctl ps asks its machine"));
  }
  if (patch) {
    RETURN_IF_ERROR(PrintPatch(context, first, second));
    return kExitOk;
  }
  PrintDifferences(context, first, second, Compare(first.fields, second.fields));
  return kExitOk;
}

}  // namespace gpuctl
