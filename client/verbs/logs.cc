// gpuctl logs: print a run's output, byte for byte.
#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/follow/catch_up.h"
#include "client/follow/members.h"
#include "client/node/make_links.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/runs/output_loss.h"
#include "client/show/show_run.h"
#include "client/spec/run_spec.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/line_pattern.h"
#include "client/verbs/log_lines.h"
#include "client/verbs/log_offsets.h"
#include "client/verbs/rank_lines.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kLogsPatience = absl::Seconds(10);

// Returns the time stamps of a run: lifecycle and metrics lines say how long the output was at
// their time.
absl::StatusOr<std::vector<OutputStamp>> ReadStamps(MirrorReader& mirror) {
  std::vector<OutputStamp> stamps;
  for (const LifecycleEvent& event : mirror.lifecycle().events) {
    stamps.push_back({event.time_ms, event.output_size});
  }
  RETURN_IF_ERROR(mirror.ForEachMetricsLine([&stamps](absl::string_view line) {
    const nlohmann::json json = ParseBoundedJson(line);
    if (!json.is_object()) return;
    const nlohmann::json stamp = json.value("gpuctl", nlohmann::json());
    if (!stamp.is_object()) return;
    const nlohmann::json time = stamp.value("time_ms", nlohmann::json());
    const nlohmann::json offset = stamp.value("output_offset", nlohmann::json());
    if (time.is_number_integer() && offset.is_number_integer()) stamps.push_back({time, offset});
  }));
  return stamps;
}

absl::StatusOr<int64_t> BeginOffset(CommandContext& context, MirrorReader& mirror, int tail_lines,
                                    const std::string& since) {
  ASSIGN_OR_RETURN(const Extent extent, mirror.OutputExtent());
  int64_t begin = extent.first_offset;
  if (!since.empty()) {
    const absl::StatusOr<absl::Duration> age = ParseDuration(since);
    if (!age.ok())
      return UsageError(absl::StrCat("--since: ", age.status().message()),
                        "for example --since 10m");
    RETURN_IF_ERROR(mirror.Refresh());
    ASSIGN_OR_RETURN(const std::vector<OutputStamp> stamps, ReadStamps(mirror));
    begin = std::max(begin, OffsetAt(stamps, context.NowMs() - absl::ToInt64Milliseconds(*age)));
  }
  if (tail_lines < 0) return begin;
  const auto read = [&mirror](int64_t offset, int64_t end) -> absl::StatusOr<std::string> {
    std::string bytes;
    while (offset < end) {
      int64_t at = offset;
      ASSIGN_OR_RETURN(const std::string piece, mirror.ReadOutput(at));
      if (piece.empty()) break;
      bytes += piece;
      offset = at + static_cast<int64_t>(piece.size());
    }
    if (offset > end) bytes.erase(bytes.size() - static_cast<size_t>(offset - end));
    return bytes;
  };
  ASSIGN_OR_RETURN(const int64_t tail, OffsetOfLastLines(begin, extent.size, tail_lines, read));
  return tail;
}

absl::Status PrintFrom(const Console& console, MirrorReader& mirror, int64_t offset) {
  while (true) {
    ASSIGN_OR_RETURN(const std::string bytes, mirror.ReadOutput(offset));
    if (bytes.empty()) return absl::OkStatus();
    offset += static_cast<int64_t>(bytes.size());
    const absl::StatusOr<size_t> written = console.PrintJobBytes(bytes);
    if (absl::IsUnavailable(written.status())) return absl::OkStatus();  // `| head` has enough
    RETURN_IF_ERROR(written.status());
  }
}

// Prints the lines from `offset` that `options` choose. Returns whether there were any.
absl::StatusOr<bool> PrintChosen(const Console& console, MirrorReader& mirror, int64_t offset,
                                 LogLines::Options options) {
  LogLines lines(std::move(options), [&console](absl::string_view text) -> absl::StatusOr<bool> {
    const absl::StatusOr<size_t> written = console.PrintJobBytes(text);
    if (absl::IsUnavailable(written.status())) return false;  // `| head` has enough
    RETURN_IF_ERROR(written.status());
    return true;
  });
  while (true) {
    ASSIGN_OR_RETURN(const std::string bytes, mirror.ReadOutput(offset));
    if (bytes.empty()) break;
    ASSIGN_OR_RETURN(const bool more, lines.Add(offset, bytes));
    if (!more) return true;
    offset += static_cast<int64_t>(bytes.size());
  }
  RETURN_IF_ERROR(lines.Finish());
  return lines.chose();
}

// Prints what the process `rank` printed from `begin` on, chosen by `options`. Returns whether that
// was anything.
absl::StatusOr<bool> PrintRank(const Console& console, MirrorReader& mirror, int rank,
                               int64_t begin, LogLines::Options options) {
  LogLines lines(std::move(options), [&console](absl::string_view text) -> absl::StatusOr<bool> {
    const absl::StatusOr<size_t> written = console.PrintJobBytes(text);
    if (absl::IsUnavailable(written.status())) return false;  // `| head` has enough
    RETURN_IF_ERROR(written.status());
    return true;
  });
  RankLines of_rank(rank, OutputPartsOf(mirror.lifecycle()), begin, lines);
  // Only from its beginning the output can be taken apart.
  ASSIGN_OR_RETURN(const Extent extent, mirror.OutputExtent());
  for (int64_t offset = extent.first_offset;;) {
    ASSIGN_OR_RETURN(const std::string bytes, mirror.ReadOutput(offset));
    if (bytes.empty()) break;
    ASSIGN_OR_RETURN(const bool more, of_rank.Add(offset, bytes));
    if (!more) return true;
    offset += static_cast<int64_t>(bytes.size());
  }
  RETURN_IF_ERROR(of_rank.Finish());
  return lines.chose();
}

// Chooses lines of an output that goes on.
class ChosenLines : public OutputFilter {
 public:
  // `rank` -1: no rank is chosen. Of what begins before the byte `begin` nothing is shown, and of
  // what is before `there`, only the last lines that `options` ask for.
  ChosenLines(LogLines::Options options, int rank, int64_t begin, int64_t there)
      : there_(there), lines_(std::move(options), [this](absl::string_view text) {
          chosen_.append(text.data(), text.size());
          return absl::StatusOr<bool>(true);
        }) {
    if (rank >= 0) of_rank_.emplace(rank, std::vector<OutputPart>(), begin, lines_);
  }

  int64_t Readable(const Lifecycle& lifecycle) override {
    if (!of_rank_.has_value()) return std::numeric_limits<int64_t>::max();
    of_rank_->Learn(OutputPartsOf(lifecycle));
    return of_rank_->readable();
  }

  absl::StatusOr<std::string> Choose(int64_t offset, absl::string_view bytes) override {
    const int64_t before =
        std::clamp<int64_t>(there_ - offset, 0, static_cast<int64_t>(bytes.size()));
    const auto first = bytes.substr(0, static_cast<size_t>(before));
    RETURN_IF_ERROR(Add(offset, first));
    bytes.remove_prefix(first.size());
    offset += before;
    if (offset >= there_) RETURN_IF_ERROR(lines_.GiveLast().status());
    RETURN_IF_ERROR(Add(offset, bytes));
    return std::exchange(chosen_, "");
  }

  absl::StatusOr<std::string> End() override {
    RETURN_IF_ERROR(of_rank_.has_value() ? of_rank_->Finish() : lines_.Finish());
    return std::exchange(chosen_, "");
  }
  bool chose() const { return lines_.chose(); }

 private:
  absl::Status Add(int64_t offset, absl::string_view bytes) {
    if (bytes.empty()) return absl::OkStatus();
    return (of_rank_.has_value() ? of_rank_->Add(offset, bytes) : lines_.Add(offset, bytes))
        .status();
  }

  const int64_t there_;
  std::string chosen_;
  LogLines lines_;
  std::optional<RankLines> of_rank_;
};

// What logs prints, as typed.
struct LogFlags {
  std::string since, grep;
  bool follow = false, timestamps = false;
  int tail_lines = -1;
  int rank = -1;

  bool by_line() const { return !grep.empty() || timestamps || rank >= 0; }
};

// Returns false when --grep matches no line.
absl::StatusOr<bool> PrintLog(CommandContext& context, MirrorReader& mirror,
                              const LogFlags& flags) {
  // Of lines that a pattern chooses, the last ones are only known at the end.
  const int tail_lines = flags.grep.empty() && flags.rank < 0 ? flags.tail_lines : -1;
  ASSIGN_OR_RETURN(const int64_t begin, BeginOffset(context, mirror, tail_lines, flags.since));
  if (!flags.by_line()) {
    RETURN_IF_ERROR(PrintFrom(context, mirror, begin));
    return true;
  }
  LogLines::Options options;
  if (!flags.grep.empty()) {
    ASSIGN_OR_RETURN(options.pattern, LinePattern::Compile(flags.grep));
  }
  if (tail_lines != flags.tail_lines) options.last = flags.tail_lines;
  if (flags.timestamps) {
    RETURN_IF_ERROR(mirror.Refresh());
    ASSIGN_OR_RETURN(options.stamps, ReadStamps(mirror));
  }
  ASSIGN_OR_RETURN(const bool chose,
                   flags.rank >= 0
                       ? PrintRank(context, mirror, flags.rank, begin, std::move(options))
                       : PrintChosen(context, mirror, begin, std::move(options)));
  return chose || flags.grep.empty();
}

// Returns an error for --rank and a run that has no ranks.
absl::Status CheckHasRanks(const RunRow& row, MirrorReader& mirror) {
  RETURN_IF_ERROR(mirror.Refresh());
  const std::vector<OutputPart> parts = OutputPartsOf(mirror.lifecycle());
  const bool begun =
      std::any_of(parts.begin(), parts.end(), [](const OutputPart& part) { return !part.setup; });
  if (!begun ||
      std::any_of(parts.begin(), parts.end(), [](const OutputPart& part) { return part.ranks; })) {
    return absl::OkStatus();
  }
  return UsageError(absl::StrCat(row.name, " has no ranks: its run file has no processes"),
                    absl::StrCat("gpuctl logs ", row.name));
}

// Says that --grep matches no line. Returns the exit code, as that of grep.
int NothingMatches(const Console& console, const RunRow& row) {
  console.Say(absl::StrCat("no line of ", row.name, " matches"));
  return kExitFailed;
}

// Prints what comes until the run ends, behind what is there.
absl::StatusOr<int> FollowLog(CommandContext& context, RunStore& store, const RunRow& row,
                              MirrorReader& mirror, const LogFlags& flags) {
  const int tail_lines = flags.by_line() ? -1 : flags.tail_lines;
  ASSIGN_OR_RETURN(const int64_t begin, BeginOffset(context, mirror, tail_lines, flags.since));
  ShowRunOptions options;
  options.plain = true;
  options.begin = begin;
  std::optional<ChosenLines> chosen;
  if (flags.by_line()) {
    LogLines::Options lines;
    if (!flags.grep.empty()) {
      ASSIGN_OR_RETURN(lines.pattern, LinePattern::Compile(flags.grep));
    }
    lines.last = flags.tail_lines;
    ASSIGN_OR_RETURN(const Extent extent, mirror.OutputExtent());
    chosen.emplace(std::move(lines), flags.rank, begin, extent.size);
    options.filter = &*chosen;
    // Only from its beginning the output can be taken apart.
    if (flags.rank >= 0) options.begin = extent.first_offset;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  // A failed run is no failure of logs.
  ASSIGN_OR_RETURN(const int code, ShowRun(context, store, row, links.get(), std::move(options)));
  (void)code;
  if (flags.grep.empty() || chosen->chose()) return kExitOk;
  // Who leaves it has not seen the end.
  const absl::StatusOr<RunRow> now = store.Get(row.run_id);
  return now.ok() && now->end.has_value() ? NothingMatches(context, row) : kExitOk;
}

// Returns usage errors.
absl::Status CheckLogFlags(const LogFlags& flags) {
  if (flags.follow && flags.timestamps) {
    return UsageError("--timestamps is for what is there, and -f prints what comes",
                      "leave out one of them");
  }
  if (flags.grep.empty()) return absl::OkStatus();
  const absl::Status pattern = LinePattern::Compile(flags.grep).status();
  if (pattern.ok()) return pattern;
  return UsageError(absl::StrCat("--grep: ", pattern.message()),
                    "a \\ before a special character takes its meaning away: \\(");
}

}  // namespace

absl::StatusOr<int> CmdLogs(CommandContext& context, std::vector<std::string> args) {
  std::string reference;
  LogFlags flags;
  bool offline = false;
  int node = 0;
  VerbParser parser(context, "logs [RUN] [FLAGS]",
                    "Prints a run's output: its stdout and stderr as they came, byte for byte.",
                    "What is not on this laptop yet is fetched first.\n\n"
                    "  gpuctl logs amber-fox-3 --grep '(?i)error|nan' -n 20 --timestamps");
  const FlagSet::Flag run = parser.Option("RUN", reference, kRunOrNewestLive);
  parser.Switch("-f,--follow", flags.follow, "Go on until the run ends");
  parser.Option("-n,--tail", flags.tail_lines, "Only the last N lines")
      .ShownRange(0, std::numeric_limits<int>::max());
  parser.Option("--since", flags.since,
                "Only output that is newer, e.g. 10m; as exact as the run's metrics");
  const FlagSet::Flag grep =
      parser.Option("--grep", flags.grep, "Only lines that this regular expression matches");
  parser.Switch("--timestamps", flags.timestamps,
                "Before each line, the last known time before it (as exact as --since)");
  parser.Option("--rank", flags.rank, "Only what the process with this rank printed, without marks")
      .ShownRange(0, kHighestRank);
  parser.Option("--node", node, "Of a run on several machines: that of this one, from 0")
      .Range(0, kMostNodes - 1);
  parser.Switch("--offline", offline, "Only what is on this laptop already");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (grep.given() && flags.grep.empty()) {
    return UsageError("--grep: the expression is empty", "gpuctl logs --help");
  }
  RETURN_IF_ERROR(CheckLogFlags(flags));
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  if (run.given()) {
    RETURN_IF_ERROR(
        CheckNoBatch(context, {reference}, "gpuctl logs $-1 prints that of its first run"));
    RETURN_IF_ERROR(CheckStarted(context, {reference}));
  }
  ASSIGN_OR_RETURN(RunRow row, FindRun(context, *store, run, reference));
  ASSIGN_OR_RETURN(row, MemberOf(*store, std::move(row), node));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  Caught caught = Caught::kUp;
  absl::Status error;
  if (!offline) {
    const absl::StatusOr<Caught> tried = CatchUp(context, *store, row, kLogsPatience, &error);
    if (absl::IsCancelled(tried.status())) return tried.status();
    // What is here is printed in any case; a full disk of this laptop is no reason against it.
    if (!tried.ok()) error = tried.status();
    caught = tried.value_or(Caught::kNot);
  }
  MirrorReader mirror(paths.MirrorDir(row.run_id), row.output_segment_bytes);
  if (flags.rank >= 0) RETURN_IF_ERROR(CheckHasRanks(row, mirror));
  if (flags.follow && !offline && !row.end.has_value()) {
    return FollowLog(context, *store, row, mirror, flags);
  }
  ASSIGN_OR_RETURN(const bool matches, PrintLog(context, mirror, flags));
  RETURN_IF_ERROR(mirror.Refresh());
  if (const OutputLoss loss = LossOf(mirror.lifecycle()); loss.any()) {
    context.Warn(DescribeLoss(loss));
  }
  if (caught != Caught::kNot) return matches ? int{kExitOk} : NothingMatches(context, row);
  return WithHint(Annotate(error, "printed what is on this laptop; the rest did not come"),
                  absl::StrCat("try again later, or gpuctl logs --offline ", row.name));
}

}  // namespace gpuctl
