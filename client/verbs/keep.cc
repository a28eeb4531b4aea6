// gpuctl keep: one pass of what is to be done while nobody watches. So far it ends leaks.
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/keep/keep_log.h"
#include "client/market/holdings.h"
#include "client/verbs/money_verbs.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

absl::StatusOr<int> KeepPass(CommandContext& context, const ReapFlags& flags) {
  Holdings holdings(context);
  holdings.OnlyEnds();
  RETURN_IF_ERROR(holdings.OpenAllMarkets());
  // End what bills even when the list of runs cannot be read.
  return ReapLeaks(context, holdings, context.StoreOrCopy().value_or(nullptr), flags);
}

}  // namespace

absl::StatusOr<int> CmdKeep(CommandContext& context, std::vector<std::string> args) {
  ReapFlags flags;
  VerbParser parser(context, "keep [FLAGS]",
                    "Makes one pass of what is to be done while nobody watches: ends instances\n"
                    "that nobody wants, as reap -y does.",
                    "Writes what it did to keep.log in the state directory. One pass at a time: a\n"
                    "second one says so, and exits with 0.");
  parser.Switch("--dry-run", flags.dry_run, "Only say what it would do");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  flags.yes = true;
  if (flags.dry_run) return KeepPass(context, flags);
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::string lock_path = JoinPath(paths.state_dir, "locks/keep");
  RETURN_IF_ERROR(MakeDirectories(DirName(lock_path)));
  const absl::StatusOr<UniqueFd> lock = TryLock(lock_path);
  if (absl::IsUnavailable(lock.status())) {
    context.Say(absl::StrCat("another gpuctl keep is at work, it holds ", lock_path));
    return kExitOk;
  }
  RETURN_IF_ERROR(lock.status());
  KeepLog log(paths.state_dir);
  const int64_t begun_ms = context.NowMs();
  absl::Status logged;
  flags.reaped = [&](const std::string& what, const absl::Status& status,
                     const std::string& result) {
    logged.Update(status.ok() ? log.Deed(context.NowMs(), "reap", what, result)
                              : log.Failure(context.NowMs(), "reap", what, status.message()));
  };
  const absl::StatusOr<int> code = KeepPass(context, flags);
  if (!code.ok()) {
    logged.Update(log.Failure(context.NowMs(), "keep", "pass", code.status().message()));
  }
  logged.Update(log.Finish(begun_ms, context.NowMs(),
                           code.ok() ? *code : static_cast<int>(ExitCodeOf(code.status()))));
  if (!logged.ok()) context.Say(absl::StrCat("keep.log: ", logged.message()));
  return code;
}

}  // namespace gpuctl
