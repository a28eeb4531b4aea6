// One node of a run on several gives the others the content that the client has sent to it, so that
// a slow line carries it once.
//
// The client starts `gpuctl-agent give` on the one and `gpuctl-agent fetch` on the others, each
// over its own link, and tells both sides a key that nobody else knows. What they say is one line
// of JSON each way:
//   give    gets  {"key":HEX}
//           says  {"addresses":[…],"port":N}, and serves until its stdin ends
//   fetch   gets  {"key":HEX,"addresses":[…],"port":N,"trees":[DIGEST,…]}
//           says  {"there":N,"fetched":N}, or {"error":WORDS} and what came stays
// Between the nodes goes, over a SecretPipe for each tree, a line with the digest, and then a push
// as of common/transfer/push.h from the giver: the fetcher stores only a tree that is what its
// digest says.
#ifndef GPUCTL_AGENT_SHARE_SHARE_H_
#define GPUCTL_AGENT_SHARE_SHARE_H_

#include <string>

namespace gpuctl {

// Run the subcommands. Return the process's exit code; an error is also on stdout, as above.
int RunGive(const std::string& root, int in_fd = 0, int out_fd = 1);
int RunFetch(const std::string& root, int in_fd = 0, int out_fd = 1);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHARE_SHARE_H_
