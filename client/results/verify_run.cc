#include "client/results/verify_run.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/streams/mirror.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/files/regular_file.h"
#include "common/job/checkpoint.h"
#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"
#include "common/tree/file_hasher.h"
#include "common/tree/manifest.h"

namespace gpuctl {
namespace {

// Number of files that are open at once for hashing.
constexpr size_t kBatchFiles = 64;
constexpr int64_t kMaxManifestJsonBytes = 16 << 20;

// Checks that every byte between the first and the last is stored, but for dropped ones.
absl::Status CheckOutput(const std::string& path, int64_t segment_bytes, const Lifecycle& lifecycle,
                         Verified& verified) {
  int64_t cut = 0;
  for (const LifecycleEvent& event : lifecycle.events) {
    if (event.type == LifecycleEvent::Type::kCut) cut = std::max(cut, event.first_offset);
  }
  StreamReader reader(path, StreamShape{segment_bytes});
  ASSIGN_OR_RETURN(const Extent extent, reader.GetExtent());
  verified.output_bytes = extent.size - extent.first_offset;
  verified.removed_bytes = extent.first_offset;
  const auto hole = [&](int64_t at) {
    verified.problems.push_back(
        {Problem::Kind::kMissing, path, absl::StrCat("no byte at ", at, " of the output")});
  };
  if (extent.first_offset > cut) hole(0);
  char byte = 0;
  for (int64_t end = (extent.first_offset / segment_bytes + 1) * segment_bytes; end < extent.size;
       end += segment_bytes) {
    const absl::StatusOr<int64_t> got = reader.Read(end - 1, &byte, 1);
    if (!got.ok() && !absl::IsOutOfRange(got.status())) return got.status();
    if (got.ok() && *got > 0) continue;
    if (end > cut) hole(end - 1);
    // Go on at what is stored: a hole may be longer than anybody can count.
    ASSIGN_OR_RETURN(const int64_t next, reader.NextStored(end - 1));
    end = std::max(end, next / segment_bytes * segment_bytes);
  }
  return absl::OkStatus();
}

absl::Status CheckStreams(const std::string& run_dir, int64_t segment_bytes,
                          const VerifyOptions& options, Verified& verified) {
  const MirrorPaths paths(run_dir);
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(run_dir));
  verified.skipped_lines = lifecycle.skipped_lines;
  const int64_t segment = segment_bytes > 0 ? segment_bytes : kDefaultSegmentBytes;
  RETURN_IF_ERROR(CheckOutput(paths.output, segment, lifecycle, verified));
  ASSIGN_OR_RETURN(verified.over, MirrorIsComplete(run_dir, segment_bytes));
  verified.loss = LossOf(lifecycle);
  verified.complete = verified.over && verified.loss.bytes == 0;
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  // A run whose end is recorded had all of its output here.
  if (!options.ended || verified.over || last == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Extent output, StreamReader(paths.output, {segment}).GetExtent());
  ASSIGN_OR_RETURN(const Extent metrics, StreamReader(paths.metrics, PlainShape()).GetExtent());
  const auto compare = [&](const std::string& path, int64_t here, int64_t wanted) {
    if (here >= wanted) return;
    verified.problems.push_back({Problem::Kind::kMissing, path,
                                 absl::StrCat(here, " bytes are here, the job wrote ", wanted)});
  };
  compare(paths.output, output.size, last->output_size);
  compare(paths.metrics, metrics.size, last->metrics_size);
  return absl::OkStatus();
}

class ItemCheck {
 public:
  ItemCheck(const PulledItem& item, const VerifyOptions& options)
      : item_(item), options_(options) {}

  std::vector<Problem> Run() {
    for (const PulledFile& file : item_.files) {
      const std::string path = PulledPath(item_, file);
      struct stat info {};
      if (lstat(path.c_str(), &info) != 0) {
        Add(Problem::Kind::kMissing, path,
            errno == ENOENT || errno == ENOTDIR ? "" : ErrnoStatus(errno, "look").ToString());
      } else if (!S_ISREG(info.st_mode)) {
        Add(Problem::Kind::kChanged, path, "no file any more");
      } else if (info.st_size != file.size) {
        Add(Problem::Kind::kChanged, path, absl::StrCat(info.st_size, " bytes, not ", file.size));
      } else if (options_.read_data) {
        Read(file, path, PulledTime(info) != file.modified_ns);
      }
    }
    Flush();
    return std::move(problems_);
  }

 private:
  struct Pending {
    const PulledFile* file;
    std::string path;
    bool written_to;
    UniqueFd fd;
  };

  void Add(Problem::Kind kind, const std::string& path, std::string why) {
    problems_.push_back({kind, path, std::move(why)});
  }

  void Read(const PulledFile& file, const std::string& path, bool written_to) {
    // Something else may have taken the file's place since the look at it.
    UniqueFd fd(file_ops::Open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
    struct stat opened {};
    if (fd.valid() && fstat(fd.get(), &opened) == 0 && !S_ISREG(opened.st_mode)) {
      Add(Problem::Kind::kChanged, path, "no file any more");
      return;
    }
    if (!fd.valid()) {
      Add(Problem::Kind::kCorrupt, path, std::string(ErrnoStatus(errno, "open").message()));
      return;
    }
    pending_.push_back({&file, path, written_to, std::move(fd)});
    if (pending_.size() >= kBatchFiles) Flush();
  }

  void Flush() {
    std::vector<FileHasher::File> files;
    for (const Pending& pending : pending_) {
      FileHasher::File& file = files.emplace_back();
      file.fd = pending.fd.get();
      file.size = pending.file->size;
    }
    FileHasher().Hash(files, [this](int64_t bytes) {
      if (options_.progress) options_.progress(bytes);
    });
    for (size_t i = 0; i < files.size(); ++i) Judge(pending_[i], files[i]);
    pending_.clear();
  }

  void Judge(const Pending& pending, const FileHasher::File& file) {
    const Problem::Kind kind =
        pending.written_to ? Problem::Kind::kChanged : Problem::Kind::kCorrupt;
    if (!file.status.ok()) {
      Add(kind, pending.path, std::string(file.status.message()));
      return;
    }
    gpuctl::v1::FileEntry entry;
    entry.set_size(file.size);
    SetHashes(file.part_hashes, entry);
    if (absl::BytesToHexString(entry.sha256()) != pending.file->sha256) {
      Add(kind, pending.path, "its content is not what was brought");
    }
  }

  const PulledItem& item_;
  const VerifyOptions& options_;
  std::vector<Pending> pending_;
  std::vector<Problem> problems_;
};

// Checks a trainer's checkpoint by its own manifest.
void CheckTrainers(const PulledItem& item, Verified& verified) {
  const std::string path = JoinPath(item.path, "manifest.json");
  const absl::StatusOr<std::string> json =
      ReadRegularFile(item.path, "manifest.json", kMaxManifestJsonBytes);
  if (!json.ok()) return;  // reported already
  CheckpointDir checkpoint;
  checkpoint.path = item.path;
  absl::StatusOr<CheckpointManifest> manifest = ParseCheckpointManifest(*json);
  absl::Status status = manifest.status();
  if (manifest.ok()) {
    checkpoint.manifest = *std::move(manifest);
    status = VerifyCheckpoint(checkpoint);
  }
  if (!status.ok()) {
    verified.problems.push_back({Problem::Kind::kCorrupt, path, std::string(status.message())});
  }
}

}  // namespace

const char* ProblemWord(Problem::Kind kind) {
  switch (kind) {
    case Problem::Kind::kMissing:
      return "missing";
    case Problem::Kind::kChanged:
      return "changed";
    case Problem::Kind::kCorrupt:
      break;
  }
  return "corrupt";
}

std::vector<Problem> CheckItem(const PulledItem& item, const VerifyOptions& options) {
  return ItemCheck(item, options).Run();
}

absl::StatusOr<Verified> VerifyRun(const std::string& run_dir, int64_t output_segment_bytes,
                                   const VerifyOptions& options) {
  Verified verified;
  RETURN_IF_ERROR(CheckStreams(run_dir, output_segment_bytes, options, verified));
  ASSIGN_OR_RETURN(const std::vector<PulledItem> items, PulledRecord(run_dir).Read());
  for (const PulledItem& item : items) {
    verified.checkpoints += item.kind != PulledItem::Kind::kFiles;
    verified.files += static_cast<int64_t>(item.files.size());
    for (const PulledFile& file : item.files) verified.bytes += file.size;
    std::vector<Problem> problems = CheckItem(item, options);
    // Report a damaged file only once.
    if (problems.empty() && options.read_data && item.kind == PulledItem::Kind::kTrainer) {
      CheckTrainers(item, verified);
    }
    std::move(problems.begin(), problems.end(), std::back_inserter(verified.problems));
  }
  return verified;
}

}  // namespace gpuctl
