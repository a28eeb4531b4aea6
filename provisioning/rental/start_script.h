// The script that a rented machine runs at boot, before a laptop has reached it. It prevents a bill
// that nobody knows of.
#ifndef GPUCTL_PROVISIONING_RENTAL_START_SCRIPT_H_
#define GPUCTL_PROVISIONING_RENTAL_START_SCRIPT_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace gpuctl {

// The largest script, in bytes. Vast accepts 4096 characters of arguments and start script
// together.
inline constexpr size_t kStartScriptMaxBytes = 3500;

struct StartScriptOptions {
  std::string provider;  // "runpod", "lambda", "vast", "slurm"
  // The address of the API that releases the instance, without a path: "https://host".
  std::string api_base_url;
  // The release of an unclaimed machine: when its wall clock passes `deadline`, or `allowance`
  // after the script's start, whichever it notices first. Its clock or ours may be wrong.
  absl::Time deadline;
  absl::Duration allowance = absl::Minutes(30);
  // The agent's root on the machine. Empty: $GPUCTL_NODE_ROOT or ~/.gpuctl; on a virtual machine
  // that of the user who logs in. For Slurm: the directory in which the script looks for a place
  // first.
  std::string root;
  // For Slurm: the time that jobs have between their stop and their end when the allocation ends.
  absl::Duration grace = absl::Seconds(30);
};

// Returns a script for sh or bash. It is ASCII without single quotes, so that it can be put into
// JSON, into cloud-init's user data and between the single quotes of bash -c. It contains no key.
// What it does depends on how the provider's machines end themselves (ReleaseRoute):
//
// By key (Runpod, Vast): it returns at once and goes on in the background. It waits for the
// deadline, or until <root>/claimed exists. After the deadline it asks the provider to end the
// machine, with the instance's own key from the container's environment, by each of curl, python3,
// wget and openssl that is installed, and repeats that. It writes its findings to <root>/boot.json,
// which Hello reports. It keeps the guard running when the agent is there. After a restart of the
// container it does the same.
//
// By exit: it is the container's command and does not return. It ends, and the bill with it, after
// the deadline of a machine that nobody has claimed, and when <root>/released exists. It keeps the
// guard running as above.
//
// Slurm ends by exit, too, but its script is the batch script of an allocation, and chooses the
// root itself: DIR/gpuctl-UID/JOB-RESTART (the uid, $SLURM_JOB_ID, or ARRAY_TASK for a task of an
// array, $SLURM_RESTART_COUNT or 0), in the first of `root`, $SLURM_TMPDIR, $TMPDIR and /tmp that
// is an absolute path of letters, digits and ._+=,:~-, is no network file system, and can be
// written to. It writes the root's path, and a newline, into /tmp/gpuctl-UID/JOB-RESTART.root,
// which is there as long as the script runs. Those directories are 0700 and the user's own; the
// script ends with exit code 1 where /tmp/gpuctl-UID is not. The root has the marker kHeldFile from
// the beginning. The script waits for the programs for `allowance`; `deadline` does not count,
// because an allocation may begin days after it was asked for. Then it runs `gpuctl-agent hold` in
// that root, again whenever it dies, passes SIGTERM on to it, and ends when it has ended with exit
// code 0. It removes the root and the .root file. What it says goes to its stderr.
//
// By shutdown, and not at all (Lambda): the machine is a virtual one, and root runs the script
// once. A systemd unit keeps the guard running. Where a shutdown ends the bill, a second unit shuts
// the machine down after the deadline, unless it is claimed.
//
// INVALID_ARGUMENT for another provider, and for an address or a root with characters that a shell
// would interpret.
absl::StatusOr<std::string> MakeStartScript(const StartScriptOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RENTAL_START_SCRIPT_H_
