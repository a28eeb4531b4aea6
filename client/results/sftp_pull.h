// Pulls without an agent: finds and reads the same results by SFTP.
#ifndef GPUCTL_CLIENT_RESULTS_SFTP_PULL_H_
#define GPUCTL_CLIENT_RESULTS_SFTP_PULL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link/link.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/sftp/sftp_files.h"
#include "client/transfer/sftp_tree.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// True when `status`, of a call to a node, says that the agent can neither run nor be delivered
// there, although ssh itself works.
bool AgentCannotRun(const absl::Status& status);

class SftpPull {
 public:
  // Opens SFTP. All arguments must outlive the object.
  static absl::StatusOr<std::unique_ptr<SftpPull>> Open(CommandContext& context, LinkFactory& links,
                                                        const RunRow& row);

  // Returns the same list as the agent's ListArtifacts, with two differences: the layout of a
  // script's checkpoint is checked only after its download, and the times of its files decide
  // whether it is still being written.
  absl::StatusOr<gpuctl::v1::ListArtifactsReply> List(const std::string& pattern);

  // Downloads the checkpoint to `to`/<its name>, which must not exist. Verifies the trainer's
  // against its own manifest. Others have no hashes: sizes and times before and after must agree
  // (else ABORTED), and their layout must be complete.
  absl::Status BringCheckpoint(const gpuctl::v1::CheckpointInfo& checkpoint, const std::string& to);
  // Downloads files of the work directory to the same paths below `to`, and records them; sizes and
  // times as above.
  absl::Status BringFiles(const std::vector<gpuctl::v1::Artifact>& files, const std::string& to);
  // Downloads the file or directory `path` of the work directory into a staging directory in
  // `parent`, as Pull does. Sizes and times as above.
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
