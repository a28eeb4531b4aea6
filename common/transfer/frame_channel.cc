#include "common/transfer/frame_channel.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <zstd.h>

#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using gpuctl::v1::FileData;
using gpuctl::v1::ManifestPart;
using gpuctl::v1::TransferFrame;

constexpr size_t kLengthBytes = 4;
constexpr size_t kFlushAtBytes = 1 << 20;
constexpr size_t kReadBytes = 1 << 18;
constexpr size_t kManifestPartBytes = 256 << 10;
constexpr int kCompressionLevel = 3;
// The limit of the decompressor's memory, as log2 of bytes; level 3 needs 2 MiB.
constexpr int kMaxWindowLog = 23;

uint32_t DecodeLength(const char* bytes) {
  const auto* b = reinterpret_cast<const unsigned char*>(bytes);
  return uint32_t{b[0]} | uint32_t{b[1]} << 8 | uint32_t{b[2]} << 16 | uint32_t{b[3]} << 24;
}

void EncodeLength(uint32_t length, char* bytes) {
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xff);
}

absl::Status NoFrame() {
  return absl::InvalidArgumentError("transfer: the peer sent something that is no frame");
}

constexpr uint32_t Tag(int field, WireFormatLite::WireType type) {
  return static_cast<uint32_t>(field) << WireFormatLite::kTagTypeBits | type;
}
constexpr uint32_t kFileDataTag =
    Tag(TransferFrame::kFileDataFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr uint32_t kIndexTag = Tag(FileData::kIndexFieldNumber, WireFormatLite::WIRETYPE_VARINT);
constexpr uint32_t kOffsetTag = Tag(FileData::kOffsetFieldNumber, WireFormatLite::WIRETYPE_VARINT);
constexpr uint32_t kZerosTag = Tag(FileData::kZerosFieldNumber, WireFormatLite::WIRETYPE_VARINT);
constexpr uint32_t kDataTag =
    Tag(FileData::kDataFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

// Reads a serialized TransferFrame that is a FileData and nothing else, and leaves its data in
// place. False for another frame, and for one that has to be parsed in full.
bool ParseInPlace(absl::string_view bytes, FileData& data, absl::string_view& content) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  uint32_t length = 0;
  if (in.ReadTag() != kFileDataTag || !in.ReadVarint32(&length) ||
      in.CurrentPosition() + int64_t{length} != static_cast<int64_t>(bytes.size())) {
    return false;
  }
  content = {};
  while (in.CurrentPosition() < static_cast<int>(bytes.size())) {
    const uint32_t tag = in.ReadTag();
    uint64_t value = 0;
    if (tag == 0 || !in.ReadVarint64(&value)) return false;
    if (tag == kIndexTag) {
      data.set_index(static_cast<uint32_t>(value));
    } else if (tag == kOffsetTag) {
      data.set_offset(static_cast<int64_t>(value));
    } else if (tag == kZerosTag) {
      data.set_zeros(static_cast<int64_t>(value));
    } else if (tag == kDataTag) {
      const auto at = static_cast<size_t>(in.CurrentPosition());
      if (value > bytes.size() - at || !in.Skip(static_cast<int>(value))) return false;
      content = bytes.substr(at, static_cast<size_t>(value));
    } else {
      return false;
    }
  }
  return true;
}

absl::Status ErrorOf(const TransferFrame& frame) {
  if (!frame.has_done() || frame.done().code() == 0) return absl::OkStatus();
  gpuctl::v1::ErrorDetail detail;
  detail.set_kind(frame.done().kind());
  return FromPeer(
      absl::Status(static_cast<absl::StatusCode>(frame.done().code()), frame.done().message()),
      detail);
}

absl::Status ManifestError(absl::string_view cause) {
  return absl::InvalidArgumentError(absl::StrCat("receive manifest: ", cause));
}

// Decompresses a manifest, up to a limit.
class ManifestInflater {
 public:
  ManifestInflater() : context_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  }

  absl::Status Add(absl::string_view data) {
    compressed_bytes_ += static_cast<int64_t>(data.size());
    if (compressed_bytes_ > kMaxManifestBytes) return ManifestError("too large");
    ZSTD_inBuffer in{data.data(), data.size(), 0};
    bool output_was_full = false;
    while (in.pos < in.size || output_was_full) {
      ZSTD_outBuffer out{buffer_.get(), kReadBytes, 0};
      const size_t result = ZSTD_decompressStream(context_.get(), &out, &in);
      if (ZSTD_isError(result)) return ManifestError(ZSTD_getErrorName(result));
      if (static_cast<int64_t>(bytes_.size() + out.pos) > kMaxManifestBytes) {
        return ManifestError("too large");
      }
      // It does not grow to twice the size, because the old and the new room exist together for a
      // moment.
      if (bytes_.capacity() < bytes_.size() + out.pos) {
        bytes_.reserve(bytes_.size() + bytes_.size() / 4 + out.pos);
      }
      bytes_.append(buffer_.get(), out.pos);
      frame_ended_ = result == 0;
      output_was_full = out.pos == kReadBytes;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Finish() {
    if (!frame_ended_) return ManifestError("compressed data ends early");
    return std::move(bytes_);
  }

 private:
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context_;
  std::unique_ptr<char[]> buffer_ = std::make_unique<char[]>(kReadBytes);
  std::string bytes_;
  int64_t compressed_bytes_ = 0;
  bool frame_ended_ = false;
};

}  // namespace

absl::Status FrameChannel::Write(const TransferFrame& frame) {
  const size_t length = frame.ByteSizeLong();
  if (static_cast<int64_t>(length) > kMaxFrameBytes) {
    return absl::InternalError(absl::StrCat("transfer: frame of ", length, " bytes"));
  }
  if (compress_ && out_.size() + kLengthBytes + length > kMaxPackedBytes) RETURN_IF_ERROR(Flush());
  char* const begin = out_.Prepare(kLengthBytes + length);
  EncodeLength(static_cast<uint32_t>(length), begin);
  frame.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(begin + kLengthBytes));
  out_.Commit(kLengthBytes + length);
  return FlushIfLarge();
}

absl::Status FrameChannel::FlushIfLarge() {
  return out_.size() >= kFlushAtBytes ? Flush() : absl::OkStatus();
}

// The frame is the same that Write would write, with the content last.
absl::StatusOr<char*> FrameChannel::PrepareContent(uint32_t index, int64_t offset, size_t size) {
  FileData header;
  header.set_index(index);
  header.set_offset(offset);
  const auto content_size = static_cast<uint32_t>(size);
  const size_t header_size = header.ByteSizeLong();
  const size_t data_size = header_size + CodedOutputStream::VarintSize32(kDataTag) +
                           CodedOutputStream::VarintSize32(content_size) + size;
  const size_t length = CodedOutputStream::VarintSize32(kFileDataTag) +
                        CodedOutputStream::VarintSize32(static_cast<uint32_t>(data_size)) +
                        data_size;
  if (static_cast<int64_t>(length) > kMaxFrameBytes) {
    return absl::InternalError(absl::StrCat("transfer: frame of ", length, " bytes"));
  }
  if (compress_ && out_.size() + kLengthBytes + length > kMaxPackedBytes) RETURN_IF_ERROR(Flush());
  prepared_ = kLengthBytes + length;
  char* const begin = out_.Prepare(prepared_);
  EncodeLength(static_cast<uint32_t>(length), begin);
  auto* to = reinterpret_cast<uint8_t*>(begin + kLengthBytes);
  to = CodedOutputStream::WriteVarint32ToArray(kFileDataTag, to);
  to = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(data_size), to);
  to = header.SerializeWithCachedSizesToArray(to);
  to = CodedOutputStream::WriteVarint32ToArray(kDataTag, to);
  to = CodedOutputStream::WriteVarint32ToArray(content_size, to);
  return reinterpret_cast<char*>(to);
}

absl::Status FrameChannel::CommitContent() {
  out_.Commit(prepared_);
  return FlushIfLarge();
}

absl::Status FrameChannel::WriteFileContent(uint32_t index, int64_t offset, int fd, size_t size) {
  RETURN_IF_ERROR(PrepareContent(index, offset, size).status());
  out_.Commit(prepared_ - size);
  RETURN_IF_ERROR(Flush());
  return stream_.SendFile(fd, offset, static_cast<int64_t>(size));
}

absl::Status FrameChannel::SetCompression(bool on) {
  if (on == compress_) return absl::OkStatus();
  RETURN_IF_ERROR(Flush());
  compress_ = on;
  return absl::OkStatus();
}

// Replaces the frames in out_ by one that holds them compressed. False when that does not pay.
bool FrameChannel::Pack() {
  TransferFrame frame;
  if (!packer_.Pack(out_.view(), *frame.mutable_packed())) return false;
  const size_t length = frame.ByteSizeLong();
  out_.Clear();
  char* const begin = out_.Prepare(kLengthBytes + length);
  EncodeLength(static_cast<uint32_t>(length), begin);
  frame.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(begin + kLengthBytes));
  out_.Commit(kLengthBytes + length);
  return true;
}

absl::Status FrameChannel::Flush() {
  if (out_.size() == 0) return absl::OkStatus();
  if (!compress_ || !Pack()) return stream_.Send(out_);
  const absl::Duration begin = Clock::Real().SinceBoot();
  RETURN_IF_ERROR(stream_.Send(out_));
  packer_.Sent(Clock::Real().SinceBoot() - begin);
  return absl::OkStatus();
}

absl::Status FrameChannel::WriteDone(const absl::Status& status) {
  TransferFrame frame;
  frame.mutable_done()->set_code(static_cast<int>(status.code()));
  // Paths may hold any bytes, but a proto3 string must be UTF-8.
  frame.mutable_done()->set_message(absl::CHexEscape(status.message().substr(0, kReadBytes / 8)));
  if (IsDiskFull(status)) frame.mutable_done()->set_kind(gpuctl::v1::ErrorDetail::KIND_DISK_FULL);
  RETURN_IF_ERROR(Write(frame));
  return Flush();
}

absl::Status FrameChannel::Fill(size_t wanted) {
  while (in_.size() < wanted) RETURN_IF_ERROR(stream_.Receive(in_));
  return absl::OkStatus();
}

absl::Status FrameChannel::Parse(absl::string_view bytes, TransferFrame& frame,
                                 absl::string_view* content) {
  if (content != nullptr && ParseInPlace(bytes, *frame.mutable_file_data(), *content)) {
    return absl::OkStatus();
  }
  const bool parsed = frame.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (!parsed || frame.frame_case() == TransferFrame::FRAME_NOT_SET) return NoFrame();
  if (content != nullptr && frame.has_file_data()) {
    content_ = std::move(*frame.mutable_file_data()->mutable_data());
    frame.mutable_file_data()->clear_data();
    *content = content_;
  }
  return absl::OkStatus();
}

absl::StatusOr<TransferFrame> FrameChannel::Read(absl::string_view* content) {
  const bool unpacked = unpacked_begin_ < unpacked_.size();
  if (!unpacked) RETURN_IF_ERROR(Fill(kLengthBytes));
  absl::string_view bytes =
      unpacked ? absl::string_view(unpacked_).substr(unpacked_begin_) : in_.view();
  if (bytes.size() < kLengthBytes) return NoFrame();
  const uint32_t length = DecodeLength(bytes.data());
  if (int64_t{length} > kMaxFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("transfer: the peer announced a frame of ", length, " bytes"));
  }
  if (!unpacked) {
    RETURN_IF_ERROR(Fill(kLengthBytes + length));
    bytes = in_.view();
  }
  if (bytes.size() < kLengthBytes + length) return NoFrame();
  TransferFrame frame;
  const absl::Status parsed = Parse(bytes.substr(kLengthBytes, length), frame, content);
  // The frame's bytes stay in place until the next call.
  if (unpacked) {
    unpacked_begin_ += kLengthBytes + length;
  } else {
    in_.RemovePrefix(kLengthBytes + length);
  }
  RETURN_IF_ERROR(parsed);
  if (!frame.has_packed()) return frame;
  if (unpacked) return NoFrame();
  unpacked_begin_ = 0;
  RETURN_IF_ERROR(unpacker_.Unpack(frame.packed(), unpacked_));
  return Read(content);
}

absl::StatusOr<TransferFrame> FrameChannel::Read() { return Read(nullptr); }

absl::StatusOr<TransferFrame> FrameChannel::ReadOrError() {
  ASSIGN_OR_RETURN(TransferFrame frame, Read());
  RETURN_IF_ERROR(ErrorOf(frame));
  return frame;
}

absl::StatusOr<TransferFrame> FrameChannel::ReadContentOrError(absl::string_view& content) {
  ASSIGN_OR_RETURN(TransferFrame frame, Read(&content));
  RETURN_IF_ERROR(ErrorOf(frame));
  return frame;
}

absl::Status WriteManifest(FrameChannel& channel, const Manifest& manifest, bool single_file,
                           bool finds_parts, const gpuctl::v1::PullNotes* notes) {
  const std::string& bytes = manifest.bytes();
  if (static_cast<int64_t>(bytes.size()) > kMaxManifestBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("send manifest: ", bytes.size(), " bytes are too many"));
  }
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kCompressionLevel);
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  for (bool last = false; !last;) {
    TransferFrame frame;
    ManifestPart& part = *frame.mutable_manifest_part();
    std::string& data = *part.mutable_data();
    data.resize(kManifestPartBytes);
    ZSTD_outBuffer out{data.data(), data.size(), 0};
    const size_t left = ZSTD_compressStream2(context.get(), &out, &in, ZSTD_e_end);
    if (ZSTD_isError(left)) {
      return absl::InternalError(absl::StrCat("compress manifest: ", ZSTD_getErrorName(left)));
    }
    data.resize(out.pos);
    last = left == 0;
    part.set_last(last);
    part.set_single_file(single_file);
    part.set_finds_parts(finds_parts);
    if (last && notes != nullptr) *part.mutable_notes() = *notes;
    RETURN_IF_ERROR(channel.Write(frame));
  }
  return channel.Flush();
}

absl::StatusOr<Manifest> ReadManifest(FrameChannel& channel, bool* single_file, bool* finds_parts,
                                      gpuctl::v1::PullNotes* notes) {
  ManifestInflater inflater;
  while (true) {
    ASSIGN_OR_RETURN(const TransferFrame frame, channel.ReadOrError());
    if (!frame.has_manifest_part()) return ManifestError("another frame came in its place");
    RETURN_IF_ERROR(inflater.Add(frame.manifest_part().data()));
    if (single_file != nullptr) *single_file = frame.manifest_part().single_file();
    if (finds_parts != nullptr) *finds_parts = frame.manifest_part().finds_parts();
    if (notes != nullptr) *notes = frame.manifest_part().notes();
    if (frame.manifest_part().last()) break;
  }
  ASSIGN_OR_RETURN(std::string bytes, inflater.Finish());
  return ParseManifest(std::move(bytes));
}

}  // namespace gpuctl
