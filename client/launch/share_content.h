// Lets the machines of a run take its content from one of them, which has it already: a slow line
// from here carries it once.
#ifndef GPUCTL_CLIENT_LAUNCH_SHARE_CONTENT_H_
#define GPUCTL_CLIENT_LAUNCH_SHARE_CONTENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/link/link.h"

namespace gpuctl {

// A machine that is to get trees.
struct Taker {
  LinkFactory* links = nullptr;
  std::string name;
  std::vector<std::string> trees;  // digests
  // Set by ShareContent: why it did not get all of them. What came stays there.
  absl::Status result;
};

// Brings the trees from the machine behind `giver` to all `takers`, several at a time. They reach
// it at one of its addresses, over connections that are encrypted with a key made for this call.
// Returns an error where nothing could be shared; then the takers' results are that, too.
absl::Status ShareContent(LinkFactory& giver, std::vector<Taker>& takers);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_SHARE_CONTENT_H_
