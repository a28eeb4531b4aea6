#include "common/tree/manifest_file.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

using google::protobuf::io::CodedInputStream;

constexpr uint32_t kManifestEntryTag = (1 << 3) | 2;  // field 1 of Manifest, length-delimited
constexpr size_t kFlushBytes = 256 << 10;
// The largest serialized entry, in bytes. A path, a symlink's target and the hashes of the parts of
// a file of 2^56 bytes stay far below it.
constexpr uint32_t kMaxEntryBytes = 256 << 20;

}  // namespace

ManifestReader::ManifestReader() = default;
ManifestReader::ManifestReader(ManifestReader&&) noexcept = default;
ManifestReader& ManifestReader::operator=(ManifestReader&&) noexcept = default;
ManifestReader::~ManifestReader() = default;

absl::StatusOr<ManifestReader> ManifestReader::Open(const std::string& path) {
  ManifestReader reader;
  reader.path_ = path;
  reader.fd_.reset(file_ops::Open(path, O_RDONLY));
  if (!reader.fd_.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  reader.input_ = std::make_unique<google::protobuf::io::FileInputStream>(reader.fd_.get());
  reader.at_end_ = false;
  RETURN_IF_ERROR(reader.Advance());
  return reader;
}

absl::Status ManifestReader::Advance() {
  // Each entry gets its own stream, because a stream stops after a number of bytes that a file may
  // exceed.
  CodedInputStream coded(input_.get());
  const uint32_t tag = coded.ReadTag();
  if (tag == 0 && coded.ConsumedEntireMessage() && input_->GetErrno() == 0) {
    at_end_ = true;
    entry_.Clear();
    return absl::OkStatus();
  }
  uint32_t length = 0;
  const bool framed =
      tag == kManifestEntryTag && coded.ReadVarint32(&length) && length <= kMaxEntryBytes;
  const auto limit = framed ? coded.PushLimit(static_cast<int>(length)) : 0;
  if (framed && entry_.ParseFromCodedStream(&coded) && coded.BytesUntilLimit() == 0) {
    coded.PopLimit(limit);
    return absl::OkStatus();
  }
  if (input_->GetErrno() != 0) {
    return ErrnoStatus(input_->GetErrno(), absl::StrCat("read ", path_));
  }
  return absl::DataLossError(absl::StrCat("read ", path_, ": it is no manifest"));
}

absl::StatusOr<ManifestWriter> ManifestWriter::Create(const std::string& path) {
  UniqueFd fd(file_ops::Open(absl::StrCat(path, ".tmp"), O_WRONLY | O_CREAT | O_TRUNC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("create ", path, ".tmp"));
  return ManifestWriter(path, std::move(fd));
}

ManifestWriter::~ManifestWriter() {
  if (fd_.valid()) unlink(temporary().c_str());
}

absl::Status ManifestWriter::Flush() {
  RETURN_IF_ERROR(WriteAll(fd_.get(), pending_.bytes(), temporary()));
  pending_ = Manifest();
  return absl::OkStatus();
}

absl::Status ManifestWriter::Append(const gpuctl::v1::FileEntry& entry) {
  pending_.Append(entry);
  return pending_.bytes().size() < kFlushBytes ? absl::OkStatus() : Flush();
}

absl::Status ManifestWriter::Publish() {
  RETURN_IF_ERROR(Flush());
  if (file_ops::Sync(fd_.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", temporary()));
  if (file_ops::Rename(temporary(), path_) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename to ", path_));
  }
  fd_.reset();
  return absl::OkStatus();
}

}  // namespace gpuctl
