// Lambda Cloud: what lasts longer than an instance.
#ifndef GPUCTL_TESTS_CLOUDSIM_LAMBDA_STORAGE_H_
#define GPUCTL_TESTS_CLOUDSIM_LAMBDA_STORAGE_H_

#include <optional>
#include <string>

#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {

// SSH keys, file systems, firewall, images and regions; absent when the path is none of theirs.
std::optional<Reply> LambdaStorage(World& world, const Call& call, Account& account);

// The public key of that name; "".
std::string LambdaSshKey(const Account& account, const std::string& name);

// What is wrong with the file systems a launch asks for.
std::optional<Reply> LambdaBadMounts(World& world, const Json& launch);

Json LambdaRegion(const World& world, const std::string& name);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_LAMBDA_STORAGE_H_
