// One function for each verb, in <verb>.cc. Each takes the arguments behind the verb and returns
// the process's exit code.
#ifndef GPUCTL_CLIENT_VERBS_VERBS_H_
#define GPUCTL_CLIENT_VERBS_VERBS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/runs/context.h"

namespace gpuctl {

absl::StatusOr<int> CmdAttach(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdCancel(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdCompletion(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdConfig(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdCp(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdDebug(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdDashboard(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdDiff(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdDoctor(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdDown(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdEval(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdExec(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdForward(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdExtend(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdExport(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdGenerate(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdInit(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdInspect(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdInstances(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdJsonSchema(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdLaunch(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdLogin(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdLogs(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdMerge(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdMetrics(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdNode(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdOffers(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdPreflight(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdPrepare(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdPrice(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdPrune(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdPs(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdTop(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdPull(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdKeep(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdQueue(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdReap(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdResume(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdRm(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdRunSchema(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdShow(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdSsh(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdStop(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdSubmit(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdSync(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdTag(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdTrain(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdVerify(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdCost(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdVolumes(CommandContext& context, std::vector<std::string> args);
absl::StatusOr<int> CmdWait(CommandContext& context, std::vector<std::string> args);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_VERBS_H_
