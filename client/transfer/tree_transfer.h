// Trees and files moved between the laptop and a node, with what the user sees of it.
#ifndef GPUCTL_CLIENT_TRANSFER_TREE_TRANSFER_H_
#define GPUCTL_CLIENT_TRANSFER_TREE_TRANSFER_H_

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

// How a verb wants its transfers done.
struct TransferStyle {
  int streams = 0;       // 0: as many as gain something
  bool quiet = false;    // no bar: something else has the screen
  std::string what;      // on the bar
  std::string announce;  // said when it turns out that something is to be sent
};

// A connection to the node's receiving end, to be opened before it is known what is to be sent.
absl::StatusOr<TransferStream> OpenReceiver(LinkFactory& links);

// Pushes the tree at `root`. When the connection breaks it is made again, and the rest is sent. A
// file that changed meanwhile is FAILED_PRECONDITION with a hint.
absl::StatusOr<PushOutcome> PushOn(CommandContext& context, LinkFactory& links,
                                   TransferStream stream, const std::string& root,
                                   const Manifest& manifest, const PushTarget& target,
                                   const TransferStyle& style);
// The same on a connection of its own.
absl::StatusOr<PushOutcome> Push(CommandContext& context, LinkFactory& links,
                                 const std::string& root, const Manifest& manifest,
                                 const PushTarget& target, const TransferStyle& style);

// Pulls into a staging directory in `parent`; see PullTree.
absl::StatusOr<Pulled> Pull(CommandContext& context, LinkFactory& links, const PullSubject& subject,
                            const std::string& parent, const TransferStyle& style);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRANSFER_TREE_TRANSFER_H_
