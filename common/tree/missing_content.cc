#include "common/tree/missing_content.h"

#include <algorithm>

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

// Calls `emit` with the first index and the length of each run of `true`.
template <typename IsSet, typename Emit>
void ForEachRunOf(size_t size, const IsSet& is_set, const Emit& emit) {
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

void MissingContent::ForEachRun(
    const std::function<void(uint32_t first, uint32_t number)>& files,
    const std::function<void(uint32_t index, uint32_t first, uint32_t number)>& parts) const {
  ForEachRunOf(
      state_.size(), [this](size_t i) { return state_[i] == kWhole; }, files);
  for (const auto& of_file : parts_) {
    const std::vector<bool>& bits = of_file.second;
    ForEachRunOf(
        bits.size(), [&bits](size_t i) { return bool{bits[i]}; },
        [&](uint32_t first, uint32_t number) {
          parts(static_cast<uint32_t>(of_file.first), first, number);
        });
  }
}

}  // namespace gpuctl
