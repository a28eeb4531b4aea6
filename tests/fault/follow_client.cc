// A laptop as a process that tests can kill: follows one job with the real link, mirror and
// follower, and keeps what a run remembers (node id, accepted) in a file.
//   follow_client STATE_DIR NODE_ROOT AGENT SHIM REQUEST_FILE MIRROR_DIR MEMORY_FILE
// Exit code 0: over and complete; 3: lost; 1: anything else, printed.
#include <stdio.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/streams/follower.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "tests/support/programs_at.h"

namespace gpuctl {
namespace {

class Memory : public FollowObserver {
 public:
  explicit Memory(std::string path) : path_(std::move(path)) {
    const std::string text = ReadFileToString(path_).value_or("");
    const size_t space = text.find(' ');
    node_id = text.substr(0, space);
    accepted = absl::StrContains(text, " accepted");
  }
  absl::Status OnNode(const std::string& node) override { return WriteFileAtomic(path_, node); }
  absl::Status OnAccepted(const gpuctl::v1::Job&, const std::string& node) override {
    return WriteFileAtomic(path_, absl::StrCat(node, " accepted"));
  }
  void OnLinkDown(const absl::Status& status, absl::Duration) override {
    fprintf(stderr, "link down: %s\n", status.ToString().c_str());
  }
  void OnNotice(absl::string_view text) override {
    fprintf(stderr, "notice: %s\n", std::string(text).c_str());
  }
  std::string node_id;
  bool accepted = false;

 private:
  const std::string path_;
};

int Run(char** argv) {
  SshLinkOptions ssh;
  ssh.target.provider = "local";
  ssh.target.name = "local";
  ssh.state_dir = argv[1];
  ssh.target.root = argv[2];
  ssh.programs = ProgramsAt(argv[3], argv[4]);
  const std::unique_ptr<LinkFactory> links = MakeSshLinkFactory(ssh);
  Memory memory(argv[7]);
  gpuctl::v1::StartJobRequest request;
  if (!request.ParseFromString(ReadFileToString(argv[5]).value_or(""))) return 2;
  FollowOptions options;
  options.job_id = request.spec().job_id();
  options.client_id = "laptop";
  options.mirror_dir = argv[6];
  options.output_segment_bytes = request.spec().output_segment_bytes();
  options.node_id = memory.node_id;
  if (!memory.accepted) options.start.emplace().start = request;
  Follower follower(options, *links, memory, Clock::Real());
  const absl::Status status = follower.Follow();
  if (status.ok()) return 0;
  fprintf(stderr, "%s\n", status.ToString().c_str());
  return absl::IsNotFound(status) ? 3 : 1;
}

}  // namespace
}  // namespace gpuctl

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  return gpuctl::Run(argv);
}
