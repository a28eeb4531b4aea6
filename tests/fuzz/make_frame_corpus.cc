// Writes the seeds of frame_fuzz that are not written by hand: the bytes of real channels.
//
//   make_frame_corpus tests/fuzz/corpus/frame
#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/transfer/frame_channel.h"
#include "common/transfer/missing_frames.h"
#include "common/tree/missing_content.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using gpuctl::v1::TransferFrame;

void Require(const absl::Status& status) {
  if (status.ok()) return;
  fprintf(stderr, "make_frame_corpus: %s\n", status.ToString().c_str());
  exit(1);
}

FileEntry File(const std::string& path, int64_t size) {
  FileEntry entry;
  entry.set_path(path);
  entry.set_kind(FileEntry::KIND_FILE);
  entry.set_mode(0644);
  entry.set_size(size);
  std::string hashes;
  for (int64_t at = 0; at < size; at += kPartBytes) {
    hashes += Sha256Of(std::string(static_cast<size_t>(std::min(kPartBytes, size - at)), 'x'));
  }
  SetHashes(hashes, entry);
  return entry;
}

// Returns a manifest of "dir/large" in three parts, "small" and "zeros".
Manifest Sample() {
  Manifest manifest;
  manifest.Append(File("dir/large", 2 * kPartBytes + 100));
  manifest.Append(File("small", 40));
  FileEntry zeros = File("zeros", 0);
  zeros.set_size(5000);
  SetHashes(Sha256Of(std::string(5000, '\0')), zeros);
  manifest.Append(zeros);
  return manifest;
}

TransferFrame Data(uint32_t index, int64_t offset, const std::string& data, int64_t zeros = 0) {
  TransferFrame frame;
  frame.mutable_file_data()->set_index(index);
  frame.mutable_file_data()->set_offset(offset);
  frame.mutable_file_data()->set_data(data);
  frame.mutable_file_data()->set_zeros(zeros);
  return frame;
}

void WriteSeed(const std::string& path, const std::function<absl::Status(FrameChannel&)>& say) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  FrameChannel channel(-1, fd.get());
  Require(say(channel));
  Require(channel.Flush());
}

int Make(const std::string& folder) {
  const Manifest manifest = Sample();
  WriteSeed(JoinPath(folder, "parts"), [&](FrameChannel& channel) {
    Require(WriteManifest(channel, manifest));
    Require(channel.Write(Data(0, 2 * kPartBytes, std::string(60, 'x'))));
    Require(channel.Write(Data(0, 2 * kPartBytes + 60, std::string(40, 'x'))));
    Require(channel.Write(Data(1, 0, std::string(40, 'x'))));
    Require(channel.Write(Data(2, 0, "", 5000)));
    return channel.WriteDone(absl::OkStatus());
  });
  WriteSeed(JoinPath(folder, "packed"), [&](FrameChannel& channel) {
    Require(WriteManifest(channel, manifest));
    Require(channel.SetCompression(true));
    Require(channel.Write(Data(1, 0, std::string(40, 'x'))));
    for (int i = 0; i < 20; ++i) Require(channel.Write(Data(2, i * 250, std::string(250, '\0'))));
    return channel.WriteDone(absl::OkStatus());
  });
  WriteSeed(JoinPath(folder, "missing"), [&](FrameChannel& channel) {
    Require(WriteManifest(channel, manifest));
    MissingContent missing(manifest.size());
    missing.AddFile(1);
    missing.AddPart(0, 0, 3);
    missing.AddPart(0, 2, 3);
    return WriteMissing(channel, missing, "blobs/trees/.gpuctl-partial-0123456789abcdef");
  });
  WriteSeed(JoinPath(folder, "pull"), [&](FrameChannel& channel) {
    TransferFrame begin;
    begin.mutable_pull_begin()->set_job_id("j-1");
    begin.mutable_pull_begin()->set_path("work/out");
    begin.mutable_pull_begin()->set_joins(true);
    begin.mutable_pull_begin()->add_files("small");
    Require(channel.Write(begin));
    TransferFrame want;
    auto* piece = want.mutable_want()->add_pieces();
    piece->set_path("small");
    piece->set_length(40);
    Require(channel.Write(want));
    TransferFrame join;
    join.mutable_push_join()->set_token("jobs/j-1/.gpuctl-partial-0123456789abcdef");
    Require(channel.Write(join));
    TransferFrame report;
    report.mutable_merge_report()->add_kept("kept");
    report.mutable_merge_report()->set_kept_count(1);
    return channel.Write(report);
  });
  return 0;
}

}  // namespace
}  // namespace gpuctl

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  return gpuctl::Make(argv[1]);
}
