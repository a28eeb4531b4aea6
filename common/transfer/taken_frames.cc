#include "common/transfer/taken_frames.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {
namespace {

using gpuctl::v1::TransferFrame;

constexpr size_t kMaxTakenBytes = 512 << 10;  // of names in a frame
constexpr int kMaxKeptIndexes = 100'000;      // in a frame; at most five bytes each
constexpr size_t kTakenNameBytes = 8;         // of a name beside its own

absl::Status BadTaken(absl::string_view cause) {
  return absl::InvalidArgumentError(absl::StrCat("agree on removals: ", cause));
}

}  // namespace

absl::Status AskAboutTaken(FrameChannel& channel, const std::vector<std::string>& taken,
                           const std::function<void(size_t index)>& keep) {
  TransferFrame frame;
  size_t bytes = 0;
  for (const std::string& path : taken) {
    frame.mutable_taken()->add_paths(path);
    bytes += path.size() + kTakenNameBytes;
    if (bytes < kMaxTakenBytes) continue;
    RETURN_IF_ERROR(channel.Write(frame));
    frame.Clear();
    bytes = 0;
  }
  frame.mutable_taken()->set_last(true);
  RETURN_IF_ERROR(channel.Write(frame));
  RETURN_IF_ERROR(channel.Flush());
  if (taken.empty()) return absl::OkStatus();
  size_t next = 0;
  while (true) {
    ASSIGN_OR_RETURN(const TransferFrame answer, channel.ReadOrError());
    if (!answer.has_keep()) return BadTaken("another frame came in the answer's place");
    for (const uint32_t index : answer.keep().indexes()) {
      if (index < next || index >= taken.size())
        return BadTaken("the answer names what was not asked");
      keep(index);
      next = size_t{index} + 1;
    }
    if (answer.keep().last()) return absl::OkStatus();
  }
}

absl::Status AnswerTaken(
    FrameChannel& channel,
    const std::function<bool(const std::string& path, bool is_directory)>& stays) {
  std::vector<uint32_t> kept;
  uint32_t index = 0;
  for (bool last = false; !last;) {
    ASSIGN_OR_RETURN(const TransferFrame frame, channel.ReadOrError());
    if (!frame.has_taken()) return BadTaken("another frame came in the question's place");
    last = frame.taken().last();
    for (const std::string& path : frame.taken().paths()) {
      if (stays(std::string(absl::StripSuffix(path, "/")), absl::EndsWith(path, "/"))) {
        kept.push_back(index);
      }
      ++index;
    }
  }
  if (index == 0) return absl::OkStatus();
  TransferFrame answer;
  for (const uint32_t each : kept) {
    answer.mutable_keep()->add_indexes(each);
    if (answer.keep().indexes_size() < kMaxKeptIndexes) continue;
    RETURN_IF_ERROR(channel.Write(answer));
    answer.Clear();
  }
  answer.mutable_keep()->set_last(true);
  return channel.Write(answer);
}

}  // namespace gpuctl
