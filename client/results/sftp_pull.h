// Pull without an agent: the same results, found and read by SFTP.
#ifndef GPUCTL_CLIENT_RESULTS_SFTP_PULL_H_
#define GPUCTL_CLIENT_RESULTS_SFTP_PULL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link/link.h"
#include "client/link/sftp_files.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/transfer/sftp_tree.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// True when the fault of `status`, of a call to a node, is that the agent can be neither run nor
// delivered there, while ssh itself works.
bool AgentCannotRun(const absl::Status& status);

class SftpPull {
 public:
  // All must outlive the object.
  static absl::StatusOr<std::unique_ptr<SftpPull>> Open(CommandContext& context, LinkFactory& links,
                                                        const RunRow& row);

  // What the agent's ListArtifacts tells, but that a script's checkpoint is judged by its layout
  // only once it is here, and that it counts as quiet by the times of its files.
  absl::StatusOr<gpuctl::v1::ListArtifactsReply> List(const std::string& pattern);

  // Brings the checkpoint to `to`/<its name>, which must not be there. The trainer's is verified
  // against its own manifest. For others there is no hash: sizes and times before and after must
  // agree (ABORTED when not), and their layout be whole.
  absl::Status BringCheckpoint(const gpuctl::v1::CheckpointInfo& checkpoint, const std::string& to);
  // Brings files of the work directory to the same places below `to`, and records them; sizes and
  // times as above.
  absl::Status BringFiles(const std::vector<gpuctl::v1::Artifact>& files, const std::string& to);
  // Brings the file or directory `path` of the work directory into a staging directory in `parent`,
  // as Pull does. Sizes and times as above.
  absl::StatusOr<Pulled> BringPath(const std::string& path, const std::string& parent);

 private:
  SftpPull(CommandContext& context, const RunRow& row, std::unique_ptr<SftpFiles> files);
  absl::Status ListTrainers(gpuctl::v1::ListArtifactsReply& reply);
  void ListForeign(const std::vector<SftpEntry>& work, gpuctl::v1::ListArtifactsReply& reply);

  CommandContext& context_;
  const RunRow& row_;
  const std::unique_ptr<SftpFiles> files_;
  const std::string job_dir_;
  SftpTree tree_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESULTS_SFTP_PULL_H_
