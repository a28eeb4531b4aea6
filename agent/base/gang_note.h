// What a member of a gang has agreed with the others: gang.json in the job's directory. The
// member's keeper writes it; the server starts an attempt only when it is there, and the shim reads
// it.
#ifndef GPUCTL_AGENT_BASE_GANG_NOTE_H_
#define GPUCTL_AGENT_BASE_GANG_NOTE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/job_layout.h"

namespace gpuctl {

struct GangNote {
  int attempt = 0;  // that may begin; 0: none yet
  std::string address;
  int port = 0;           // MASTER_ADDR, MASTER_PORT
  std::string interface;  // through which this member reaches the others
  // The step of the checkpoint that all go on from; -1: from none. It does not count for the first
  // attempt, which goes on from what its run brought along.
  int64_t resume_step = -1;
  // Rank 0 only: where the others meet it.
  std::vector<std::string> meeting_addresses;
  int meeting_port = 0;
};

// NOT_FOUND when there is none yet, DATA_LOSS for another content.
absl::StatusOr<GangNote> ReadGangNote(const JobPaths& job);
// Replaces the note, durably. The file is 0600, and has no key.
absl::Status WriteGangNote(const JobPaths& job, const GangNote& note);

// True when all members have agreed that this attempt may begin.
bool HasGangNote(const JobPaths& job, int attempt);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_GANG_NOTE_H_
