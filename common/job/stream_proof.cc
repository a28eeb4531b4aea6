#include <algorithm>

#include "common/base/status_macros.h"
#include "common/files/sha256.h"
#include "common/job/stream_file.h"

namespace gpuctl {
namespace {

constexpr int64_t kWindowBytes = 4096;
constexpr size_t kMaxProofs = 32;

// Returns the sha256 of [begin, end). OUT_OF_RANGE when not all of it is stored.
absl::StatusOr<std::string> HashOf(StreamReader& reader, int64_t begin, int64_t end) {
  char buffer[kWindowBytes];
  Sha256 hash;
  while (begin < end) {
    ASSIGN_OR_RETURN(const int64_t got, reader.Read(begin, buffer, end - begin));
    if (got == 0) return absl::OutOfRangeError("the stream ends before the window does");
    hash.Update({buffer, static_cast<size_t>(got)});
    begin += got;
  }
  return hash.Finish();
}

// Returns the smallest offset >= `begin` from which everything up to `end` is stored, or `end` when
// the byte before it is not stored.
absl::StatusOr<int64_t> StoredRunStart(StreamReader& reader, int64_t begin, int64_t end) {
  char buffer[kWindowBytes];
  int64_t run = begin;
  for (int64_t at = begin; at < end;) {
    absl::StatusOr<int64_t> got = reader.Read(at, buffer, end - at);
    if (absl::IsOutOfRange(got.status()) || (got.ok() && *got == 0)) {
      ASSIGN_OR_RETURN(const int64_t next, reader.NextStored(at));
      if (next <= at) return end;
      run = at = std::min(next, end);
      continue;
    }
    RETURN_IF_ERROR(got.status());
    at += *got;
  }
  return run;
}

}  // namespace

absl::StatusOr<std::vector<StreamProof>> MakeProofs(StreamReader& reader) {
  ASSIGN_OR_RETURN(const Extent extent, reader.GetExtent());
  std::vector<StreamProof> proofs;
  int64_t distance = 0;
  while (proofs.size() < kMaxProofs && extent.size - distance > extent.first_offset) {
    const int64_t end = extent.size - distance;
    const int64_t window = std::max(extent.first_offset, end - kWindowBytes);
    ASSIGN_OR_RETURN(const int64_t begin, StoredRunStart(reader, window, end));
    if (begin < end) {
      ASSIGN_OR_RETURN(std::string hash, HashOf(reader, begin, end));
      proofs.push_back({end, std::move(hash)});
    }
    distance = distance == 0 ? kWindowBytes : distance * 2;
  }
  return proofs;
}

absl::StatusOr<ResumePoint> FindResumePoint(StreamReader& stream, int64_t cursor,
                                            const std::vector<StreamProof>& proofs) {
  if (cursor <= 0) return ResumePoint{};
  ASSIGN_OR_RETURN(const Extent extent, stream.GetExtent());
  std::vector<const StreamProof*> newest_first;
  for (const StreamProof& proof : proofs) {
    if (proof.offset > 0 && proof.offset <= std::min(cursor, extent.size)) {
      newest_first.push_back(&proof);
    }
  }
  std::sort(newest_first.begin(), newest_first.end(),
            [](const StreamProof* a, const StreamProof* b) { return a->offset > b->offset; });
  for (const StreamProof* proof : newest_first) {
    const int64_t begin = std::max<int64_t>(0, proof->offset - kWindowBytes);
    if (begin < extent.first_offset) return ResumePoint{proof->offset, proof->offset != cursor};
    absl::StatusOr<std::string> hash = HashOf(stream, begin, proof->offset);
    if (absl::IsOutOfRange(hash.status())) continue;  // a hole: nothing to compare
    RETURN_IF_ERROR(hash.status());
    if (*hash == proof->sha256) return ResumePoint{proof->offset, proof->offset != cursor};
  }
  return ResumePoint{extent.first_offset, true};
}

}  // namespace gpuctl
