#include "client/launch/member_results.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/follow/catch_up.h"
#include "client/follow/members.h"
#include "client/node/make_links.h"
#include "client/results/pull_results.h"
#include "client/transfer/transfer_interrupt.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kEndPatience = absl::Seconds(10);

absl::Status BringTo(CommandContext& context, RunStore& store, RunRow& member,
                     const std::string& to, MemberResults which) {
  if (!member.end.has_value()) {
    // What it made counts only once it is known to be over.
    absl::Status error;
    ASSIGN_OR_RETURN(const Caught caught, CatchUp(context, store, member, kEndPatience, &error));
    if (caught == Caught::kNot) return error;
  }
  if (member.end.has_value() && member.end->state == gpuctl::v1::JOB_STATE_UNSPECIFIED) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, member.target));
  PullRequest request;
  request.to = to;
  request.own_directory = true;
  request.undeclared = which == MemberResults::kAll;
  if (which == MemberResults::kCheckpoint) request.checkpoint = "latest";
  PullResults pulled;
  ASSIGN_OR_RETURN(const auto interrupt,
                   TransferInterrupt::Install(
                       context, absl::StrCat("bring the results of ", member.name, " home"),
                       absl::StrCat("all stays on ", member.target.name,
                                    ", and what has come so far stays in ", to),
                       absl::StrCat("gpuctl pull ", member.name, " goes on with it")));
  const absl::Status status = BringResults(context, *links, member, request, pulled);
  // Often only rank 0 writes results.
  const bool none = which == MemberResults::kCheckpoint && absl::IsNotFound(status);
  if (none || CauseOf(status) == kNothingToBring || pulled.nothing) return absl::OkStatus();
  return status;
}

}  // namespace

absl::Status BringMemberResult(CommandContext& context, RunStore& store, RunRow& member,
                               const std::string& place, MemberResults which) {
  return BringTo(context, store, member, PlaceOfMember(place, member), which);
}

absl::Status BringMemberResults(CommandContext& context, RunStore& store, const RunRow& run,
                                const std::string& place, MemberResults which) {
  ASSIGN_OR_RETURN(std::vector<RunRow> members, store.Members(run.run_id));
  absl::Status first;
  for (RunRow& member : members) {
    const absl::Status brought = BringMemberResult(context, store, member, place, which);
    if (absl::IsCancelled(brought)) return brought;
    if (brought.ok()) continue;
    const absl::Status error =
        Annotate(brought, absl::StrCat("bring the results of ", member.name, " home"));
    if (first.ok()) {
      first = error;
    } else {
      context.Warn(error.message());
    }
  }
  return first;
}

}  // namespace gpuctl
