#include "client/follow/members.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/follow/catch_up.h"
#include "client/follow/stop_run.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/safe_text.h"
#include "common/base/status_macros.h"
#include "common/job/lifecycle.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kMemberPatience = absl::Seconds(10);
constexpr size_t kLastLines = 10;
constexpr int64_t kLastBytes = 16 << 10;

// Returns the rank in "gang:node 2 (name) ended …"; -1 for another reason.
int RankInReason(absl::string_view reason) {
  if (!absl::ConsumePrefix(&reason, kGangPrefix) || !absl::ConsumePrefix(&reason, "node ")) {
    return -1;
  }
  int rank = -1;
  return absl::SimpleAtoi(reason.substr(0, reason.find_first_not_of("0123456789")), &rank) ? rank
                                                                                           : -1;
}

// Returns the last lines of the output that is here.
std::vector<std::string> LastLinesOf(const std::string& mirror_dir, int64_t segment_bytes) {
  MirrorReader mirror(mirror_dir, segment_bytes);
  const absl::StatusOr<Extent> extent = mirror.OutputExtent();
  if (!extent.ok()) return {};
  int64_t offset = std::max<int64_t>(0, extent->size - kLastBytes);
  std::string tail;
  while (offset < extent->size) {
    const absl::StatusOr<std::string> part = mirror.ReadOutput(offset);
    if (!part.ok() || part->empty()) break;
    offset += static_cast<int64_t>(part->size());
    tail += *part;
  }
  std::vector<std::string> lines = absl::StrSplit(absl::StripSuffix(tail, "\n"), '\n');
  if (lines.size() > kLastLines) {
    lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(kLastLines));
  }
  if (tail.empty()) lines.clear();
  return lines;
}

}  // namespace

absl::StatusOr<RunRow> MemberOf(RunStore& store, RunRow run, int node) {
  if (node == 0) return run;
  ASSIGN_OR_RETURN(std::vector<RunRow> members, store.Members(run.run_id));
  for (RunRow& member : members) {
    if (member.rank == node) return std::move(member);
  }
  return UsageError(
      members.empty() ? absl::StrCat("--node: ", run.name, " runs on one machine")
                      : absl::StrCat("--node: ", run.name, " has the nodes 0 to ", members.size()),
      absl::StrCat("gpuctl show ", run.name, " lists its machines"));
}

std::string PlaceOfMember(absl::string_view place, const RunRow& member) {
  while (place.size() > 1 && absl::ConsumeSuffix(&place, "/")) {
  }
  return absl::StrCat(place, ".node", member.rank);
}

absl::StatusOr<std::optional<Lease>> LeaseOfPart(Ledger& ledger, const RunRow& row) {
  ASSIGN_OR_RETURN(std::optional<Lease> lease, ledger.OfRun(row.run_id));
  if (lease.has_value() || row.leader.empty()) return lease;
  return ledger.OfRun(row.leader);
}

std::string MachinesOf(RunStore& store, const RunRow& run) {
  std::string names = run.target.name;
  const absl::StatusOr<std::vector<RunRow>> members = store.Members(run.run_id);
  if (!members.ok()) return names;
  for (const RunRow& member : *members) absl::StrAppend(&names, ", ", member.target.name);
  return names;
}

void BringMembers(CommandContext& context, RunStore& store, const RunRow& run) {
  if (!run.end.has_value()) return;
  absl::StatusOr<std::vector<RunRow>> members = store.Members(run.run_id);
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!members.ok() || !paths.ok()) return;
  const int first = RankInReason(run.end->reason);
  for (RunRow& member : *members) {
    absl::Status error;
    const absl::StatusOr<Caught> caught = CatchUp(context, store, member, kMemberPatience, &error);
    if (!caught.ok() || *caught == Caught::kNot) {
      context.Warn(absl::StrCat("what is here of ", member.name, " may not be all of it: ",
                                (caught.ok() ? error : caught.status()).message()));
    }
    if (member.rank != first || context.json()) continue;
    const std::vector<std::string> lines =
        LastLinesOf(paths->MirrorDir(member.run_id), member.output_segment_bytes);
    if (lines.empty()) continue;
    context.Warn(absl::StrCat("the last lines of ", member.name, " on ", member.target.name, ":"));
    for (const std::string& line : lines) {
      context.Note(absl::StrCat("  ", SanitizeLine(line)), Tone::kWarning);
    }
  }
}

absl::Status StopWithMembers(CommandContext& context, RunStore& store, RunRow& run, bool wait) {
  absl::Status first = StopRun(context, store, run, wait);
  if (absl::IsCancelled(first)) return first;
  ASSIGN_OR_RETURN(std::vector<RunRow> members, store.Members(run.run_id));
  for (RunRow& member : members) {
    const absl::Status stopped = StopRun(context, store, member, wait);
    if (absl::IsCancelled(stopped)) return stopped;
    if (stopped.ok()) continue;
    const absl::Status error =
        Annotate(stopped, absl::StrCat(member.name, " on ", member.target.name,
                                       " could not be stopped from here, and ends by itself when "
                                       "its machine misses the others"));
    if (first.ok()) {
      first = error;
    } else {
      context.Warn(error.message());
    }
  }
  return first;
}

}  // namespace gpuctl
