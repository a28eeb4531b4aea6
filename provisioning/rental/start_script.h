// What a rented machine runs when it boots, before any laptop has reached it: the guard against a
// bill that nobody knows of.
#ifndef GPUCTL_PROVISIONING_RENTAL_START_SCRIPT_H_
#define GPUCTL_PROVISIONING_RENTAL_START_SCRIPT_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace gpuctl {

// Vast takes 4096 characters of arguments and start script together.
inline constexpr size_t kStartScriptMaxBytes = 3500;

struct StartScriptOptions {
  std::string provider;  // "runpod", "lambda", "vast"
  // Where the instance is released, without a path: "https://host".
  std::string api_base_url;
  // An unclaimed machine is released when its wall clock has passed `deadline`, or `allowance`
  // after the script's start, whichever it notices first, because its clock or ours may be wrong.
  absl::Time deadline;
  absl::Duration allowance = absl::Minutes(30);
  // The agent's root on the machine. Empty: $GPUCTL_NODE_ROOT or ~/.gpuctl; for Lambda
  // /home/ubuntu/.gpuctl.
  std::string root;
};

// Returns a script for sh or bash that returns at once and goes on in the background. It is ASCII
// without single quotes, so that it can stand in JSON, in cloud-init's user data and between the
// single quotes of bash -c. It holds no key: it takes the instance's own from the container's
// environment.
//
// Runpod and Vast: it waits for the deadline, until <root>/claimed exists. After the deadline it
// asks the provider to end the machine, by every one of curl, python3, wget and openssl that is
// there, again and again. What it found is in <root>/boot.json, which Hello reports. It keeps the
// guard running once the agent is there. After a restart of the container it does the same. Lambda
// gives no key to its machines: there a systemd unit keeps the guard running, and that is all.
//
// INVALID_ARGUMENT for another provider, and for an address or a root with characters that a shell
// would interpret.
absl::StatusOr<std::string> MakeStartScript(const StartScriptOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RENTAL_START_SCRIPT_H_
