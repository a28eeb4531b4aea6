// The keeper of a gang's member: a process beside its job that holds the connections to the other
// members, so that the gang needs neither the laptop nor the node's server.
#ifndef GPUCTL_AGENT_GANG_KEEPER_H_
#define GPUCTL_AGENT_GANG_KEEPER_H_

#include <string>

#include "absl/status/status.h"
#include "agent/gang/gang_words.h"
#include "agent/gang/member_job.h"
#include "common/base/clock.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns what a keeper reads from its stdin, and reads it again. The key is nowhere else.
std::string FormatGangTicket(const gpuctl::v1::GangTicket& ticket);
absl::StatusOr<gpuctl::v1::GangTicket> ParseGangTicket(const std::string& text);

// Checks what a client asks for. INVALID_ARGUMENT says what is wrong.
absl::Status CheckGang(const gpuctl::v1::Gang& gang, const gpuctl::v1::GangTicket& ticket);

// Brings the member's attempts to their ends, one after another. Returns when the job is over, or
// its directory is gone.
void KeepMember(MemberJob& job, const gpuctl::v1::GangTicket& ticket, const GangTimes& times,
                Clock& clock);

// gpuctl-agent gang: keeps the job `job_id` of `root`, with a ticket from stdin. Holds the job's
// gang.lock meanwhile. Returns the exit code: 0 also when another keeper has the lock.
int RunKeeper(const std::string& root, const std::string& job_id);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_GANG_KEEPER_H_
