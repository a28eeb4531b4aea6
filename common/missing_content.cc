#include "common/missing_content.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using gpuctl::v1::Missing;
using gpuctl::v1::TransferFrame;

// Numbers in one frame; each takes at most five bytes.
constexpr int kMaxNumbers = 100'000;

// Runs of `true` as first, number, first, number, …
template <typename IsSet, typename Emit>
void ForEachRun(size_t size, const IsSet& is_set, const Emit& emit) {
  for (size_t i = 0; i < size;) {
    size_t end = i;
    while (end < size && is_set(end)) ++end;
    if (end > i) emit(static_cast<uint32_t>(i), static_cast<uint32_t>(end - i));
    i = std::max(end, i + 1);
  }
}

}  // namespace

MissingContent MissingContent::AllOf(const Manifest& manifest) {
  MissingContent missing(manifest.size());
  for (int64_t i = 0; i < manifest.size(); ++i) {
    const FileEntry entry = manifest[i];
    if (entry.kind() == FileEntry::KIND_FILE && entry.size() > 0) missing.AddFile(i);
  }
  return missing;
}

void MissingContent::Set(int64_t index, State state) {
  state_[static_cast<size_t>(index)] = state;
  parts_.erase(index);
}

void MissingContent::AddPart(int64_t index, int64_t part, int64_t parts) {
  State& state = state_[static_cast<size_t>(index)];
  if (state == kWhole) return;
  state = kParts;
  std::vector<bool>& bits = parts_[index];
  bits.resize(static_cast<size_t>(parts));
  bits[static_cast<size_t>(part)] = true;
}

void MissingContent::RemovePart(int64_t index, int64_t part, int64_t parts) {
  State& state = state_[static_cast<size_t>(index)];
  if (state == kThere) return;
  std::vector<bool>& bits = parts_[index];
  if (state == kWhole) bits.assign(static_cast<size_t>(parts), true);
  state = kParts;
  bits[static_cast<size_t>(part)] = false;
  if (std::find(bits.begin(), bits.end(), true) == bits.end()) RemoveFile(index);
}

bool MissingContent::Has(int64_t index, int64_t part) const {
  const State state = state_[static_cast<size_t>(index)];
  if (state != kParts) return state == kWhole;
  return parts_.at(index)[static_cast<size_t>(part)];
}

bool MissingContent::empty() const {
  return std::all_of(state_.begin(), state_.end(), [](State state) { return state == kThere; });
}

void MissingContent::ForEachPiece(const Manifest& manifest,
                                  const std::function<void(const Piece&)>& visit) const {
  for (int64_t i = 0; i < manifest.size(); ++i) {
    if (!Has(i)) continue;
    const int64_t size = manifest[i].size();
    for (int64_t part = 0; part < PartCount(size); ++part) {
      const int64_t offset = part * kPartBytes;
      if (Has(i, part)) visit({i, offset, std::min(kPartBytes, size - offset)});
    }
  }
}

int64_t MissingContent::Bytes(const Manifest& manifest) const {
  int64_t bytes = 0;
  ForEachPiece(manifest, [&](const Piece& piece) { bytes += piece.length; });
  return bytes;
}

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
  ForEachRun(
      missing.state_.size(), [&](size_t i) { return missing.state_[i] == MissingContent::kWhole; },
      [&](uint32_t first, uint32_t number) {
        frame.mutable_missing()->add_whole(first);
        frame.mutable_missing()->add_whole(number);
        count(2);
      });
  for (const auto& of_file : missing.parts_) {
    const std::vector<bool>& bits = of_file.second;
    const auto new_parts = [&frame, &of_file] {
      Missing::Parts* parts = frame.mutable_missing()->add_partial();
      parts->set_index(static_cast<uint32_t>(of_file.first));
      return parts;
    };
    Missing::Parts* parts = new_parts();
    ForEachRun(
        bits.size(), [&bits](size_t i) { return bool{bits[i]}; },
        [&](uint32_t first, uint32_t number) {
          parts->add_parts(first);
          parts->add_parts(number);
          count(2);
          if (numbers == 0) parts = new_parts();
        });
    count(2);
  }
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
  // Runs come in order, so that no peer can name the same entries without end.
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
      // One frame may have ended within a file that the next one goes on with.
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
