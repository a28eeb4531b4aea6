// Moves trees and files between the laptop and a node, and shows the progress.
#ifndef GPUCTL_CLIENT_TRANSFER_TREE_TRANSFER_H_
#define GPUCTL_CLIENT_TRANSFER_TREE_TRANSFER_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/link/link.h"
#include "client/runs/context.h"
#include "client/transfer/transfer_bar.h"
#include "common/transfer/pull.h"
#include "common/transfer/push.h"
#include "common/transfer/transfer.h"
#include "common/tree/manifest.h"

namespace gpuctl {

// A verb's options for its transfers.
struct TransferStyle {
  int streams = 0;       // 0: as many as increase the speed
  bool quiet = false;    // no bar: something else uses the screen
  std::string what;      // text on the bar
  std::string announce;  // message printed when there is something to send
  // Replaces files at home that pull did not bring.
  bool overwrite = false;
  // Gets the progress, too; on the transfer's thread. Empty: nobody.
  std::function<void(const TransferCount& count)> observe;
};

// Opens a connection to the node's receiver, even before the content is known.
absl::StatusOr<TransferStream> OpenReceiver(LinkFactory& links);

// Pushes the tree at `root`. When the connection breaks, connects again and sends the rest.
// FAILED_PRECONDITION with LinkFault::kFileChanged and a hint when a file is not what its hash
// says; the hashes of the tree are forgotten then.
absl::StatusOr<PushOutcome> PushOn(CommandContext& context, LinkFactory& links,
                                   TransferStream stream, const std::string& root,
                                   const Manifest& manifest, const PushTarget& target,
                                   const TransferStyle& style);
// Does the same on a new connection.
absl::StatusOr<PushOutcome> Push(CommandContext& context, LinkFactory& links,
                                 const std::string& root, const Manifest& manifest,
                                 const PushTarget& target, const TransferStyle& style);

// Pulls into a staging directory in `parent`; see PullTree.
absl::StatusOr<Pulled> Pull(CommandContext& context, LinkFactory& links, const PullSubject& subject,
                            const std::string& parent, const TransferStyle& style);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRANSFER_TREE_TRANSFER_H_
