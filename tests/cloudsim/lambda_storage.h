// The parts of Lambda Cloud that outlive an instance.
#ifndef GPUCTL_TESTS_CLOUDSIM_LAMBDA_STORAGE_H_
#define GPUCTL_TESTS_CLOUDSIM_LAMBDA_STORAGE_H_

#include <optional>
#include <string>

#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {

// Returns the reply in which the market wraps what it says.
Reply LambdaData(const Json& data);

// Answers for SSH keys, file systems, firewall, images and regions; absent for other paths.
std::optional<Reply> LambdaStorage(World& world, const Call& call, Account& account);

// Returns the public key of that name, or "".
std::string LambdaSshKey(const Account& account, const std::string& name);

// Returns the error of the file systems in a launch; absent when there is none.
std::optional<Reply> LambdaBadMounts(World& world, const Json& launch);

Json LambdaRegion(const World& world, const std::string& name);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_LAMBDA_STORAGE_H_
