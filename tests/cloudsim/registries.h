// Container registries with private images, and Runpod's store of logins at them.
#ifndef GPUCTL_TESTS_CLOUDSIM_REGISTRIES_H_
#define GPUCTL_TESTS_CLOUDSIM_REGISTRIES_H_

#include <optional>
#include <string>

#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {

struct ImageLogin {
  std::string server;  // empty: that of the image
  std::string username;
  std::string password;
};

// Lets {"server", "username", "password"} pull the server's private images from now on. Returns "",
// or the error.
std::string AddRegistryUser(World& world, const Json& request);

// Keeps a new instance from booting when its image is private (a part of its path begins with
// "private", or the fault image_private is due) and `login` may not pull it. Its trouble then has
// the words of the container daemon.
void PullImage(World& world, Instance* instance, const std::string& image,
               const std::optional<ImageLogin>& login);

// Parses Vast's image_login, the arguments of `docker login`. Absent for any other text.
std::optional<ImageLogin> ParseVastLogin(const std::string& text);

// Answers Runpod's /v2/registries; absent for other paths.
std::optional<Reply> RunpodRegistries(World& world, const Call& call, const Caller& caller);
// Returns the account's entries, each with id and name.
Json RunpodRegistriesOf(const World& world, const Account& account);
// Returns the login of a pod's "registry"; absent when the account has no such entry.
std::optional<ImageLogin> RunpodLoginOf(const World& world, const Account& account,
                                        const std::string& id);

// Returns the entries of all accounts for the books, without their logins.
Json RegistryBooks(const World& world);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_REGISTRIES_H_
