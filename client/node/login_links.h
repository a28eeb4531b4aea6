// Makes links to the login node of an allocation.
#ifndef GPUCTL_CLIENT_NODE_LOGIN_LINKS_H_
#define GPUCTL_CLIENT_NODE_LOGIN_LINKS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/base/node_target.h"
#include "client/link/link.h"
#include "client/runs/context.h"

namespace gpuctl {

// Makes links to the login node of the allocation `rented`. What is read and sent by them is in the
// directory `place` there, a word of its shell (NodeTarget::archive). Errors are those of
// MakeLinks.
absl::StatusOr<std::unique_ptr<LinkFactory>> MakeLoginLinks(CommandContext& context,
                                                            const NodeTarget& rented,
                                                            const std::string& place);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_LOGIN_LINKS_H_
