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
  std::string provider;  // "runpod", "lambda", "vast"
  // The address of the API that releases the instance, without a path: "https://host".
  std::string api_base_url;
  // The release of an unclaimed machine: when its wall clock passes `deadline`, or `allowance`
  // after the script's start, whichever it notices first. Its clock or ours may be wrong.
  absl::Time deadline;
  absl::Duration allowance = absl::Minutes(30);
  // The agent's root on the machine. Empty: $GPUCTL_NODE_ROOT or ~/.gpuctl; on a virtual machine
  // that of the user who logs in.
  std::string root;
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
// By shutdown, and not at all (Lambda): the machine is a virtual one, and root runs the script
// once. A systemd unit keeps the guard running. Where a shutdown ends the bill, a second unit shuts
// the machine down after the deadline, unless it is claimed.
//
// INVALID_ARGUMENT for another provider, and for an address or a root with characters that a shell
// would interpret.
absl::StatusOr<std::string> MakeStartScript(const StartScriptOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RENTAL_START_SCRIPT_H_
