#include "provisioning/slurm/slurm_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "provisioning/rest/printable.h"

namespace gpuctl {
namespace {

constexpr int kMostGpus = 1024;
constexpr size_t kShownWords = 300;

absl::Status NotUnderstood(absl::string_view command, absl::string_view line) {
  return absl::UnknownError(absl::StrCat("read the answer of ", command, ": \"",
                                         PrintableText(line, 120), "\" is none that it gives"));
}

std::vector<absl::string_view> LinesOf(absl::string_view text) {
  std::vector<absl::string_view> lines;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripSuffix(line, "\r");
    if (!absl::StripAsciiWhitespace(line).empty()) lines.push_back(line);
  }
  return lines;
}

int64_t SecondsIn(absl::string_view text) {
  int64_t seconds = 0;
  return absl::SimpleAtoi(text, &seconds) && seconds > 0 && seconds < 100'000'000'000 ? seconds : 0;
}

// Reasons of jobs that a person holds, and who can release them. The first that is in the text
// counts.
struct Hold {
  absl::string_view reason;
  absl::string_view remedy;
};
constexpr absl::string_view kAnyReleases =
    "its user, or an administrator where one held it, can release it (scontrol release)";
constexpr absl::string_view kAdminReleases = "only an administrator can release it";
constexpr Hold kHolds[] = {{"JobHeldUser", "its user can release it (scontrol release)"},
                           {"JobHeldAdmin", kAdminReleases},
                           {"JobHeld", kAnyReleases},
                           {"JobHoldMaxRequeue", kAdminReleases},
                           {"requeued in held state", kAnyReleases},
                           {"launch failed requeued held", kAnyReleases}};
constexpr absl::string_view kNotByItself = ": it does not start by itself";

// Reasons of jobs that wait for ever.
constexpr absl::string_view kNever[] = {
    "BadConstraints",    "PartitionTimeLimit", "Invalid",
    "PartitionConfig",   "NotAllowed",         "DependencyNeverSatisfied",
    "InvalidQOS",        "InvalidAccount",     "PartitionNodeLimit",
    "PartitionInactive", "JobArrayTaskInvalid"};

struct Words {
  absl::string_view word;
  absl::StatusCode code;
};
// In lower case. The first that is in the text counts.
constexpr Words kFailures[] = {
    {"invalid job id specified", absl::StatusCode::kNotFound},
    {"requested time limit is invalid", absl::StatusCode::kInvalidArgument},
    {"already completing or completed", absl::StatusCode::kNotFound},
    {"unable to contact slurm controller", absl::StatusCode::kUnavailable},
    {"connection refused", absl::StatusCode::kUnavailable},
    {"socket timed out", absl::StatusCode::kDeadlineExceeded},
    {"connection timed out", absl::StatusCode::kDeadlineExceeded},
    {"zero bytes were transmitted", absl::StatusCode::kDeadlineExceeded},
    {"violates accounting/qos policy", absl::StatusCode::kResourceExhausted},
    {"limit", absl::StatusCode::kResourceExhausted},
    {"access/permission denied", absl::StatusCode::kPermissionDenied},
    {"permission denied", absl::StatusCode::kPermissionDenied},
    {"user not in group", absl::StatusCode::kPermissionDenied},
    {"invalid", absl::StatusCode::kInvalidArgument},
    {"unrecognized option", absl::StatusCode::kInvalidArgument},
    {"requested node configuration is not available", absl::StatusCode::kInvalidArgument},
    {"more processors requested than permitted", absl::StatusCode::kInvalidArgument},
};

}  // namespace

std::vector<GpuGres> ParseGpuGres(absl::string_view text) {
  // A part in brackets has commas of its own: "gpu:a100:4(IDX:0,2-3)".
  std::string plain;
  int depth = 0;
  for (const char c : text) {
    if (c == '(') ++depth;
    if (depth == 0) plain += c;
    if (c == ')' && depth > 0) --depth;
  }
  std::vector<GpuGres> found;
  for (absl::string_view part : absl::StrSplit(plain, ',')) {
    part = absl::StripAsciiWhitespace(part);
    absl::ConsumePrefix(&part, "gres:");
    absl::ConsumePrefix(&part, "gres/");
    const std::vector<absl::string_view> words = absl::StrSplit(part, absl::ByAnyChar(":="));
    if (words.empty() || words[0] != "gpu") continue;
    GpuGres gpu;
    const bool counted = words.size() > 1 && absl::SimpleAtoi(words.back(), &gpu.count);
    if (!counted) gpu.count = 1;
    const size_t types = words.size() - (counted ? 1 : 0);
    if (types > 1) gpu.type = std::string(words[1]);
    if (types > 2 || gpu.count < 1 || gpu.count > kMostGpus) continue;
    found.push_back(std::move(gpu));
  }
  return found;
}

std::optional<absl::Duration> ParseSlurmTime(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (absl::EqualsIgnoreCase(text, "infinite") || absl::EqualsIgnoreCase(text, "unlimited")) {
    return absl::InfiniteDuration();
  }
  int64_t days = 0;
  const size_t dash = text.find('-');
  const bool dated = dash != text.npos;
  if (dated) {
    if (!absl::SimpleAtoi(text.substr(0, dash), &days) || days < 0) return std::nullopt;
    text.remove_prefix(dash + 1);
  }
  std::array<int64_t, 3> numbers{};
  size_t count = 0;
  for (const absl::string_view part : absl::StrSplit(text, ':')) {
    if (count == numbers.size() || part.empty() ||
        !std::all_of(part.begin(), part.end(),
                     [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }) ||
        !absl::SimpleAtoi(part, &numbers[count])) {
      return std::nullopt;
    }
    ++count;
  }
  if (days > 100'000 || *std::max_element(numbers.begin(), numbers.end()) > 100'000'000) {
    return std::nullopt;
  }
  const absl::Duration whole = absl::Hours(24 * days);
  // With days, the first number is that of hours; alone, two are minutes and seconds.
  if (dated || count == 3) {
    return whole + absl::Hours(numbers[0]) + absl::Minutes(numbers[1]) + absl::Seconds(numbers[2]);
  }
  return whole + absl::Minutes(numbers[0]) + absl::Seconds(numbers[1]);
}

absl::StatusOr<std::vector<PartitionRow>> ParseSinfo(absl::string_view text) {
  std::vector<PartitionRow> rows;
  for (const absl::string_view line : LinesOf(text)) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, '|');
    PartitionRow row;
    if (fields.size() != 8 || fields[0].empty() || !absl::SimpleAtoi(fields[3], &row.nodes)) {
      return NotUnderstood("sinfo", line);
    }
    const std::optional<absl::Duration> longest = ParseSlurmTime(fields[2]);
    if (!longest.has_value()) return NotUnderstood("sinfo", line);
    row.partition = std::string(absl::StripSuffix(fields[0], "*"));
    row.usual = absl::EndsWith(fields[0], "*");
    row.up = fields[1] == "up";
    row.longest = *longest;
    row.gpus = ParseGpuGres(fields[4]);
    row.state = std::string(fields[5]);
    // "16+": at least as many.
    (void)absl::SimpleAtoi(absl::StripSuffix(fields[6], "+"), &row.cpus);
    (void)absl::SimpleAtoi(absl::StripSuffix(fields[7], "+"), &row.memory_mib);
    rows.push_back(std::move(row));
  }
  return rows;
}

bool NodeStateServes(absl::string_view state) {
  // "down*" and "idle*" do not answer. "idle~" is switched off until a job wants it.
  if (absl::EndsWith(state, "*")) return false;
  for (const absl::string_view word : {"down", "drain", "drng", "fail", "maint", "unk", "futr"}) {
    if (absl::StartsWith(state, word)) return false;
  }
  return true;
}

absl::StatusOr<std::vector<JobRow>> ParseSqueue(absl::string_view text) {
  constexpr size_t kFields = 10;
  constexpr absl::string_view kEnd = "|;\n";
  std::vector<JobRow> rows;
  while (!absl::StripAsciiWhitespace(text).empty()) {
    const size_t end = text.find(kEnd);
    if (end == text.npos) return NotUnderstood("squeue", text);
    const absl::string_view line = text.substr(0, end);
    text.remove_prefix(end + kEnd.size());
    const std::vector<absl::string_view> fields =
        absl::StrSplit(line, absl::MaxSplits('|', kFields - 1));
    if (fields.size() != kFields || fields[0].empty() ||
        !absl::ascii_isdigit(static_cast<unsigned char>(fields[0][0])) || fields[1].empty()) {
      return NotUnderstood("squeue", line);
    }
    JobRow row;
    row.id = std::string(fields[0]);
    row.state = std::string(fields[1]);
    row.starts_s = SecondsIn(fields[2]);
    row.submitted_s = SecondsIn(fields[3]);
    row.left = ParseSlurmTime(fields[4]);
    row.gpus = ParseGpuGres(fields[5]);
    row.partition = std::string(fields[6]);
    row.nodes = std::string(fields[7]);
    row.reason = std::string(fields[8]);
    row.name = std::string(fields[9]);
    rows.push_back(std::move(row));
  }
  return rows;
}

JobMeaning MeaningOf(absl::string_view state, absl::string_view reason) {
  JobMeaning meaning;
  const std::string words = reason.empty() || reason == "None"
                                ? std::string(state)
                                : absl::StrCat(state, " (", PrintableText(reason, 80), ")");
  meaning.message = words;
  if (state == "PENDING") {
    for (const Hold& hold : kHolds) {
      if (!absl::StrContains(reason, hold.reason)) continue;
      meaning.held = true;
      meaning.message = absl::StrCat(words, kNotByItself, "; ", hold.remedy);
      return meaning;
    }
    for (const absl::string_view never : kNever) {
      if (!absl::StrContains(reason, never)) continue;
      meaning.state = Instance::State::kFailed;
      meaning.message = absl::StrCat(words, kNotByItself);
      return meaning;
    }
    return meaning;
  }
  if (state == "CONFIGURING") return meaning;
  if (state == "SUSPENDED" || state == "STOPPED") {
    meaning.state = Instance::State::kRunning;
    meaning.suspended = true;
    meaning.message = absl::StrCat(words, ": nothing of it runs until it is resumed");
    return meaning;
  }
  if (state == "RUNNING" || state == "RESIZING" || state == "SIGNALING" || state == "STAGE_OUT") {
    meaning.state = Instance::State::kRunning;
    return meaning;
  }
  if (state == "COMPLETING") {
    meaning.state = Instance::State::kStopping;
    return meaning;
  }
  // It waits for its turn again.
  if (absl::StartsWith(state, "REQUEUE") || state == "SPECIAL_EXIT") {
    meaning.held = state == "REQUEUE_HOLD" || state == "SPECIAL_EXIT";
    if (meaning.held) meaning.message = absl::StrCat(words, kNotByItself, "; ", kAnyReleases);
    return meaning;
  }
  for (const absl::string_view over :
       {"COMPLETED", "CANCELLED", "TIMEOUT", "FAILED", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL",
        "PREEMPTED", "NODE_FAIL", "REVOKED"}) {
    if (!absl::StartsWith(state, over)) continue;
    meaning.state = Instance::State::kStopping;
    meaning.gone = true;
    meaning.taken =
        over == "PREEMPTED" || over == "NODE_FAIL" || over == "BOOT_FAIL" || over == "REVOKED";
    return meaning;
  }
  // A word that is not known here says nothing, and ends nothing.
  meaning.state = Instance::State::kSilent;
  return meaning;
}

int64_t StartInTestOnly(absl::string_view text) {
  constexpr absl::string_view kBefore = "to start at ";
  const size_t at = text.find(kBefore);
  if (at == text.npos) return 0;
  text.remove_prefix(at + kBefore.size());
  return SecondsIn(text.substr(0, text.find(' ')));
}

std::string JobOfSbatch(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  // What a login node's sbatch says first is not the answer.
  text = text.substr(text.find_last_of('\n') + 1);
  text = text.substr(0, text.find(';'));
  const bool number =
      !text.empty() && text.size() < 12 && std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isdigit(static_cast<unsigned char>(c));
      });
  return number ? std::string(text) : "";
}

absl::StatusOr<int64_t> MostTasksInConfig(absl::string_view text) {
  for (const absl::string_view line : LinesOf(text)) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    int64_t most = 0;
    if (absl::StripAsciiWhitespace(parts.first) != "MaxArraySize") continue;
    if (!absl::SimpleAtoi(parts.second, &most) || most < 0) return NotUnderstood("scontrol", line);
    return most;
  }
  return absl::UnknownError("scontrol does not tell MaxArraySize");
}

absl::Status StatusOfFailure(absl::string_view doing, int exit_code, absl::string_view err,
                             bool making) {
  const std::string lower = absl::AsciiStrToLower(err);
  absl::string_view words = absl::StripAsciiWhitespace(err);
  if (words.size() > kShownWords) words.remove_prefix(words.size() - kShownWords);
  const std::string message = absl::StrCat(doing, ": exit ", exit_code, words.empty() ? "" : ": ",
                                           PrintableText(words, kShownWords));
  // `timeout` ended it, or its KILL did.
  if (exit_code == 124 || exit_code == 137) {
    const std::string silent = absl::StrCat(doing, ": the controller does not answer");
    return making ? absl::DeadlineExceededError(silent) : absl::UnavailableError(silent);
  }
  if (exit_code == 127) {
    return absl::InvalidArgumentError(absl::StrCat(message, "; is Slurm installed there?"));
  }
  for (const Words& known : kFailures) {
    if (!absl::StrContains(lower, known.word)) continue;
    if (known.code == absl::StatusCode::kDeadlineExceeded && !making) {
      return absl::UnavailableError(message);
    }
    return absl::Status(known.code, message);
  }
  return absl::UnknownError(message);
}

}  // namespace gpuctl
