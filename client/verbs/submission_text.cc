// What people and programs are told of a batch before it is submitted.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/quantity.h"
#include "client/batch/entry_spec.h"
#include "client/batch/parameters.h"
#include "client/market/price_limit.h"
#include "client/plan/plan_text.h"
#include "client/spec/job_spec.h"
#include "client/spec/launch_record.h"
#include "client/terminal/safe_text.h"
#include "client/terminal/word_wrap.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/submission.h"

namespace gpuctl {
namespace {

constexpr size_t kShownEntries = 8;
constexpr size_t kShownFiles = 4;
// The width of a line's first word, as in "machines  ".
constexpr int kIndent = 10;

}  // namespace

std::string Submission::DescribeSharing() const {
  const RunSpec& spec = first().record.spec;
  const bool same = std::all_of(sources_.begin(), sources_.end(), [&spec](const Source& source) {
    return source.record.spec.gpus == spec.gpus;
  });
  if (!same) return "runs with gpus share machines, the others have one for themselves";
  if (!spec.gpus.has_value()) return "";
  const std::string gpus =
      *spec.gpus == 0 ? "without a GPU"
                      : absl::StrCat("with ", *spec.gpus, *spec.gpus == 1 ? " GPU" : " GPUs");
  if (!batch_.rents) {
    return absl::StrCat("runs share a machine, each ", gpus, " of its own; others wait there");
  }
  const int on_one = RunsOnOne();
  if (on_one == 1) return "";
  return absl::StrCat(on_one, " runs at once on each machine of ", RentedGpus(spec), " GPUs, each ",
                      gpus, " of its own");
}

// Warns of fewer offers below gpuctl's own price limit than machines that are asked for. An offer
// may stand for many machines of its kind.
void Submission::AddScarcity(std::vector<std::string>& lines) const {
  if (schedule_.has_value()) return;
  const int runs = std::min(Parallel(), static_cast<int>(entries_.size()));
  const size_t machines = static_cast<size_t>((runs + RunsOnOne() - 1) / RunsOnOne());
  for (const Source& source : sources_) {
    const RentalPlan& rental = source.plan.rental;
    const size_t offers = rental.in_order.size() + (rental.idle.has_value() ? 1 : 0);
    if (!source.plan.rents || !rental.own_limit_usd_per_hour.has_value() ||
        !rental.next_dearer.has_value() || offers >= machines) {
      continue;
    }
    lines.push_back(absl::StrCat(
        "warning   ", offers, offers == 1 ? " machine fits" : " machines fit",
        " within that price, and ", machines, " are asked for: runs may wait for a machine; ",
        MaxPriceFlag(rental.next_dearer->price_usd_per_hour), " allows the next one"));
    return;
  }
}

// Warns of a cost limit that holds machines back that might run at once: each claims all that it
// may cost until it has ended.
void Submission::AddTightness(std::vector<std::string>& lines) const {
  if (schedule_.has_value() || !batch_.max_cost_usd.has_value() || one_usd_ <= 0) return;
  const int runs = std::min(Parallel(), static_cast<int>(entries_.size()));
  const int machines = (runs + RunsOnOne() - 1) / RunsOnOne();
  const int paid = std::max(1, static_cast<int>(*batch_.max_cost_usd / one_usd_ + 1e-9));
  if (paid >= machines) return;
  lines.push_back(absl::StrCat("warning   at the highest price that pays for ", paid,
                               paid == 1 ? " machine" : " machines", " at once, and ", machines,
                               " are asked for: a run may cost ", FormatUsd(one_usd_),
                               " and claims that until it ends; a shorter --time, or --max-cost ",
                               FormatUsd(one_usd_ * machines), ", lets all run"));
}

// Says what part of the money is for runs, and what part only for results that wait.
void Submission::AddMoney(bool of_a_run, std::vector<std::string>& lines) const {
  lines.push_back(absl::StrCat("price     ", FormatUsd(batch_.agreed_usd_per_hour),
                               " per hour at most for a machine; idle ones of yours come first"));
  AddScarcity(lines);
  const bool limited = batch_.max_cost_usd.has_value();
  lines.push_back(absl::StrCat(
      "cost      ", FormatUsd(MostCost()), " at most in all, ", FormatUsd(one_usd_),
      " at most a run", limited ? "" : "; --max-cost limits it, a shorter --time lowers it"));
  AddTightness(lines);
  if (of_a_run) {
    lines.push_back(absl::StrCat("          of a run: ",
                                 DescribeCostParts(one_limits_, one_usd_per_hour_, one_grace_)));
  }
  if (bound_salvage_usd_ <= 0) return;
  lines.push_back(absl::StrCat(
      limited && *batch_.max_cost_usd < bound_usd_ ? "          of all, without --max-cost: "
                                                   : "          of all: ",
      FormatUsd(bound_usd_ - bound_salvage_usd_), " to start and run, ",
      FormatUsd(bound_salvage_usd_), " while results wait for you; --salvage shortens that"));
}

// Says what becomes of the batch whose name this one takes.
void Submission::AddReplaced(std::vector<std::string>& lines) const {
  if (!replaces_) return;
  lines.push_back(
      absl::StrCat("replaces  the batch of that name: ", DescribeCounts(*before_),
                   before_->over() ? "" : "; what waits of it is called off, what runs goes on"));
}

// Warns of parameters that no command has: a notebook's line with ! has put values of its own in
// their places, or the braces were forgotten, and all runs do the same.
void Submission::AddUnusedNames(std::vector<std::string>& lines) const {
  if (entries_.empty()) return;
  std::vector<std::string> unused;
  for (const Source& source : sources_) {
    std::vector<std::string> of_this =
        NamesWithoutUse(source.record.spec, entries_.front().parameters);
    if (&source == &sources_.front()) {
      unused = std::move(of_this);
      continue;
    }
    unused.erase(std::remove_if(unused.begin(), unused.end(),
                                [&of_this](const std::string& name) {
                                  return std::find(of_this.begin(), of_this.end(), name) ==
                                         of_this.end();
                                }),
                 unused.end());
  }
  if (unused.empty()) return;
  std::vector<std::string> braced, variables;
  for (const std::string& name : unused) {
    braced.push_back(absl::StrCat("{", MakeSafe(name), "}"));
    variables.push_back(MakeSafe(VariableOf(name)));
  }
  const bool one = unused.size() == 1;
  lines.push_back(absl::StrCat("warning   ", absl::StrJoin(braced, ", "), one ? " is" : " are",
                               " not in the command: only the ", one ? "variable " : "variables ",
                               absl::StrJoin(variables, ", "), one ? " has" : " have",
                               " the value; in a notebook's line with ! write ", "{", braced[0],
                               "}"));
}

// Names what looks like a parameter in the commands, and is none: those words stay as they are.
void Submission::AddUnknownNames(std::vector<std::string>& lines) const {
  std::vector<std::string> names;
  for (const Source& source : sources_) {
    const Parameters parameters = entries_.empty() ? Parameters() : entries_.front().parameters;
    for (const std::string& name : NamesWithoutValue(source.record.spec, parameters)) {
      const std::string shown = absl::StrCat("{", MakeSafe(name), "}");
      if (std::find(names.begin(), names.end(), shown) == names.end()) names.push_back(shown);
    }
  }
  if (names.empty()) return;
  lines.push_back(
      absl::StrCat("warning   ", absl::StrJoin(names, ", "),
                   names.size() == 1 ? " is no parameter and stays" : " are no parameters and stay",
                   " in the command as it is; --sweep NAME=VALUE,VALUE makes one"));
}

std::vector<std::string> Submission::Text(int columns) const {
  const size_t count = entries_.size();
  const std::string what =
      schedule_.has_value()
          ? absl::StrCat(DescribeSchedule(*schedule_), schedule_->overlap ? "" : ", one at once")
          : absl::StrCat(count, count == 1 ? " run, " : " runs, ", "at most ", batch_.max_parallel,
                         " at once");
  std::vector<std::string> lines = {absl::StrCat("batch     ", batch_.name, ": ", what)};
  for (size_t i = 0; i < count && i < kShownEntries; ++i) {
    const Parameters& parameters = entries_[i].parameters;
    std::vector<std::string> parts = {entries_[i].name};
    if (sources_.size() > 1) parts.push_back(MakeSafe(entries_[i].file));
    if (!parameters.empty()) parts.push_back(DescribeParameters(parameters));
    if (!after_[i].empty()) parts.push_back(absl::StrCat("after ", absl::StrJoin(after_[i], ", ")));
    lines.push_back(absl::StrCat("          ", absl::StrJoin(parts, "  ")));
  }
  if (count > kShownEntries) {
    lines.push_back(absl::StrCat("          and ", count - kShownEntries, " more"));
  }
  AddReplaced(lines);
  if (batch_.max_failures > 0) {
    lines.push_back(absl::StrCat("          no more start after ", batch_.max_failures,
                                 batch_.max_failures == 1 ? " failed run" : " failed runs"));
  }
  std::vector<std::string> machines;
  for (const BatchHost& host : hosts_) machines.push_back(host.target_name);
  if (!machines.empty()) {
    lines.push_back(absl::StrCat("machines  ", absl::StrJoin(machines, ", ")));
  }
  if (const std::string sharing = DescribeSharing(); !sharing.empty()) {
    lines.push_back(absl::StrCat("sharing   ", sharing));
  }
  AddUnknownNames(lines);
  AddUnusedNames(lines);
  AddArray(lines);
  if (batch_.rents) AddMoney(/*of_a_run=*/false, lines);
  std::vector<std::string> wrapped;
  for (const std::string& line : lines) {
    for (std::string& part : WrapAtWords(line, columns, kIndent)) {
      wrapped.push_back(std::move(part));
    }
  }
  AddPlans(columns, wrapped);
  return wrapped;
}

void Submission::AddPlans(int columns, std::vector<std::string>& lines) const {
  const int inner = columns > 2 ? columns - 2 : columns;
  for (size_t i = 0; i < sources_.size() && i < kShownFiles; ++i) {
    const Source& source = sources_[i];
    lines.push_back(sources_.size() == 1
                        ? "each run:"
                        : absl::StrCat("each run of ", MakeSafe(source.file), ":"));
    for (const std::string& line : PlanText(source.plan, inner, PlanOf::kEachOfBatch)) {
      lines.push_back(absl::StrCat("  ", line));
    }
  }
  if (sources_.size() > kShownFiles) {
    lines.push_back(absl::StrCat("and the runs of ", sources_.size() - kShownFiles, " more files"));
  }
}

std::vector<std::string> Submission::Terms(int columns) const {
  std::vector<std::string> lines;
  AddReplaced(lines);
  AddUnknownNames(lines);
  AddUnusedNames(lines);
  AddArray(lines);
  if (batch_.rents) AddMoney(/*of_a_run=*/true, lines);
  for (const Source& source : sources_) {
    std::vector<std::string> more;
    if (source.plan.rents) more = MachineText(source.plan);
    if (std::string results = ResultsText(source.plan); !results.empty()) {
      more.push_back(std::move(results));
    }
    if (std::string ignored = IgnoredText(source.plan); !ignored.empty()) {
      more.push_back(std::move(ignored));
    }
    for (std::string& line : more) {
      const bool again = std::find(lines.begin(), lines.end(), line) != lines.end();
      if (!again) lines.push_back(std::move(line));
    }
  }
  std::vector<std::string> wrapped;
  for (const std::string& line : lines) {
    for (std::string& part : WrapAtWords(line, columns, kIndent)) {
      wrapped.push_back(std::move(part));
    }
  }
  return wrapped;
}

nlohmann::ordered_json Submission::ToJson() const {
  nlohmann::ordered_json plan = {{"batch", batch_.name},
                                 {"runs", entries_.size()},
                                 {"digest", batch_.digest},
                                 {"replaces", replaces_},
                                 {"max_parallel", batch_.max_parallel},
                                 {"max_failures", batch_.max_failures},
                                 {"runs_on_one_machine", batch_.rents ? RunsOnOne() : 1},
                                 {"rents", batch_.rents},
                                 {"array", batch_.array}};
  plan["every"] = schedule_.has_value() ? nlohmann::ordered_json(schedule_->cron) : nullptr;
  plan["next"] =
      schedule_.has_value() ? nlohmann::ordered_json(FormatRfc3339(schedule_->next_ms)) : nullptr;
  plan["cost_usd"] = batch_.rents ? nlohmann::ordered_json(MostCost()) : nullptr;
  plan["salvage_cost_usd"] = batch_.rents ? nlohmann::ordered_json(bound_salvage_usd_) : nullptr;
  plan["each_cost_usd"] = batch_.rents ? nlohmann::ordered_json(one_usd_) : nullptr;
  plan["max_price_usd_per_hour"] =
      batch_.rents ? nlohmann::ordered_json(batch_.agreed_usd_per_hour) : nullptr;
  plan["nodes"] = nlohmann::ordered_json::array();
  for (const BatchHost& host : hosts_) plan["nodes"].push_back(host.target_name);
  plan["entries"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const absl::StatusOr<LaunchRecord> record = ParseLaunchRecord(entry.launch_json);
    plan["entries"].push_back(
        {{"entry", entry.name},
         {"parameters", ParametersToJson(entry.parameters)},
         {"file",
          entry.file.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(entry.file)},
         {"after", after_[i]},
         {"command", record.ok() ? CommandLine(record->spec) : first().plan.row.command}});
  }
  plan["each"] = PlanToJson(first().plan, PlanOf::kEachOfBatch);
  return plan;
}

}  // namespace gpuctl
