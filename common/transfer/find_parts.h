// The search for moved parts, before content is sent: the receiving end asks for anchors, the
// sending end answers.
#ifndef GPUCTL_COMMON_TRANSFER_FIND_PARTS_H_
#define GPUCTL_COMMON_TRANSFER_FIND_PARTS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/transfer/frame_channel.h"
#include "common/transfer/pieces.h"
#include "common/tree/tree_builder.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

// Lets the builder take missing parts from older versions of their files, with anchors that the
// peer is asked for. Asks for nothing where there is no older version. With `paths` the question
// names the files also by their paths. INVALID_ARGUMENT when the answer does not fit.
absl::Status TakeMovedParts(FrameChannel& channel, TreeBuilder& builder, bool paths);

// Returns the path below the reader's root of a file of the question, or an error that refuses it.
using PathOfFile =
    std::function<absl::StatusOr<std::string>(const gpuctl::v1::FindParts::File& file)>;

// Answers a peer's question, and flushes. INVALID_ARGUMENT when it names too many parts.
absl::Status AnswerFindParts(FrameChannel& channel, PieceReader& reader,
                             const gpuctl::v1::FindParts& question, const PathOfFile& path_of);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_FIND_PARTS_H_
