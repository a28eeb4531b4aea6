// The parts of Lambda Cloud around its instances: what outlives them.
#ifndef GPUCTL_TESTS_CLOUDSIM_LAMBDA_PARTS_H_
#define GPUCTL_TESTS_CLOUDSIM_LAMBDA_PARTS_H_

#include <optional>
#include <string>
#include <vector>

#include "tests/cloudsim/lambda_stock.h"
#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {

// Returns the reply in which the market wraps what it says.
Reply LambdaData(const Json& data);
// Returns the error of a body that does not fit its description.
Reply LambdaInvalid(const std::vector<std::string>& wrong);

// Returns the account's table of that name: file systems or firewall rulesets, by their ids.
Json& LambdaTable(World& world, const Account& account, const char* name);

// Answers for SSH keys, file systems, images and regions; absent for other paths.
std::optional<Reply> LambdaStorage(World& world, const Call& call, Account& account);

// Answers for the firewall's rules; absent for other paths.
std::optional<Reply> LambdaFirewall(World& world, const Call& call, const Account& account);

// Returns the public key of that name, or "".
std::string LambdaSshKey(const Account& account, const std::string& name);

// Returns the images in all regions.
Json LambdaImages(const World& world);

// Checks what a launch names: file systems, image, firewall rulesets. Returns the error; absent
// when there is none.
std::optional<Reply> LambdaBadParts(World& world, const Account& account, const Json& launch);

// Returns the mounts of a launch without errors, as [{"mount_point", "file_system_id"}]: those that
// it describes, and those that it only names, at their own paths.
Json LambdaMounts(World& world, const Account& account, const Json& launch);

// Measures the file systems, which are billed by their content.
void MeasureFileSystems(World& world);

Reply LambdaError(int status, const std::string& code, const std::string& message);

Json LambdaRegion(const World& world, const std::string& name);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_LAMBDA_PARTS_H_
