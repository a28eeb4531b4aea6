// Container registries with private images.
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

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_REGISTRIES_H_
