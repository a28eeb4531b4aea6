#include "common/transfer/missing_frames.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Missing;
using gpuctl::v1::TransferFrame;

// The largest number of integers in one frame; each takes at most five bytes.
constexpr int kMaxNumbers = 100'000;

}  // namespace

absl::Status WriteMissing(FrameChannel& channel, const MissingContent& missing,
                          const std::string& token) {
  TransferFrame frame;
  frame.mutable_missing()->set_token(token);
  absl::Status status;
  int numbers = 0;
  const auto count = [&](int more) {
    numbers += more;
    if (numbers < kMaxNumbers || !status.ok()) return;
    status = channel.Write(frame);
    frame.mutable_missing()->Clear();
    numbers = 0;
  };
  Missing::Parts* of_file = nullptr;  // the next run of parts goes into it
  const auto begin_file = [&](uint32_t index) {
    of_file = frame.mutable_missing()->add_partial();
    of_file->set_index(index);
  };
  missing.ForEachRun(
      [&](uint32_t first, uint32_t number) {
        frame.mutable_missing()->add_whole(first);
        frame.mutable_missing()->add_whole(number);
        count(2);
      },
      [&](uint32_t index, uint32_t first, uint32_t number) {
        if (of_file == nullptr || of_file->index() != index) {
          if (of_file != nullptr) count(2);
          begin_file(index);
        }
        of_file->add_parts(first);
        of_file->add_parts(number);
        count(2);
        if (numbers == 0) begin_file(index);
      });
  if (of_file != nullptr) count(2);
  RETURN_IF_ERROR(status);
  frame.mutable_missing()->set_last(true);
  RETURN_IF_ERROR(channel.Write(frame));
  return channel.Flush();
}

absl::StatusOr<MissingContent> ReadMissing(FrameChannel& channel, const Manifest& manifest,
                                           std::string* token) {
  const auto bad = [](absl::string_view cause) {
    return absl::InvalidArgumentError(absl::StrCat("read what is missing: ", cause));
  };
  MissingContent missing(manifest.size());
  // Runs must come in order, so that a peer cannot name the same entries for ever.
  int64_t next_whole = 0;
  int64_t next_partial = 0;
  int64_t next_part = 0;  // of the file before next_partial
  while (true) {
    ASSIGN_OR_RETURN(const TransferFrame frame, channel.ReadOrError());
    if (!frame.has_missing()) return bad("another frame came in its place");
    const Missing& part = frame.missing();
    if (token != nullptr && !part.token().empty()) *token = part.token();
    if (part.whole_size() % 2 != 0) return bad("half a run");
    for (int i = 0; i < part.whole_size(); i += 2) {
      const int64_t end = int64_t{part.whole(i)} + part.whole(i + 1);
      if (end > manifest.size()) return bad("an index beyond the manifest");
      if (part.whole(i) < next_whole) return bad("runs out of order");
      next_whole = end;
      for (int64_t index = part.whole(i); index < end; ++index) {
        if (manifest[index].size() > 0) missing.AddFile(index);
      }
    }
    for (const Missing::Parts& parts : part.partial()) {
      if (int64_t{parts.index()} >= manifest.size()) return bad("an index beyond the manifest");
      if (parts.parts_size() % 2 != 0) return bad("half a run");
      if (int64_t{parts.index()} + 1 < next_partial) return bad("files out of order");
      // A frame may end within a file, and the next frame goes on with that file.
      if (int64_t{parts.index()} + 1 > next_partial) next_part = 0;
      next_partial = int64_t{parts.index()} + 1;
      const int64_t count = PartCount(manifest[parts.index()].size());
      for (int i = 0; i < parts.parts_size(); i += 2) {
        const int64_t end = int64_t{parts.parts(i)} + parts.parts(i + 1);
        if (end > count) return bad("a part beyond the file");
        if (parts.parts(i) < next_part) return bad("runs out of order");
        next_part = end;
        for (int64_t p = parts.parts(i); p < end; ++p) missing.AddPart(parts.index(), p, count);
      }
    }
    if (part.last()) return missing;
  }
}

}  // namespace gpuctl
