#include "client/transfer/sftp_tree.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/terminal/console.h"
#include "client/transfer/sftp_part.h"
#include "client/transfer/transfer_bar.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/sha256.h"
#include "common/transfer/transfer.h"
#include "common/tree/manifest.h"
#include "common/tree/tree.h"
#include "common/tree/tree_builder.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

FileEntry ToEntry(const SftpEntry& entry) {
  FileEntry to;
  to.set_path(entry.path);
  // A symlink has no mode.
  if (!entry.is_symlink) to.set_mode(entry.mode);
  to.set_kind(entry.is_directory ? FileEntry::KIND_DIRECTORY
              : entry.is_symlink ? FileEntry::KIND_SYMLINK
                                 : FileEntry::KIND_FILE);
  to.set_symlink_target(entry.target);
  return to;
}

}  // namespace

SftpTree::SftpTree(CommandContext& context, SftpFiles& files, std::string job_dir,
                   std::string job_id)
    : context_(context), files_(files), job_dir_(std::move(job_dir)), job_id_(std::move(job_id)) {}

std::string SftpTree::Remote(const SftpSubject& subject, const SftpEntry& entry) const {
  return JoinPath(JoinPath(job_dir_, subject.base), entry.path);
}

absl::StatusOr<SftpSubject> SftpTree::Look(const std::string& path) {
  ASSIGN_OR_RETURN(SftpEntry top, files_.Stat(JoinPath(job_dir_, path)));
  SftpSubject subject;
  subject.is_file = top.is_file;
  if (top.is_file) {
    subject.base = DirName(path);
    top.path = BaseName(path);
    subject.entries.push_back(std::move(top));
    return subject;
  }
  if (!top.is_directory) {
    return absl::FailedPreconditionError(
        absl::StrCat("pull ", path, ": it is neither a file nor a directory"));
  }
  subject.base = path;
  ASSIGN_OR_RETURN(subject.entries, files_.List(JoinPath(job_dir_, path)));
  for (SftpEntry& entry : subject.entries) {
    if (!entry.is_symlink) continue;
    ASSIGN_OR_RETURN(entry.target, files_.ReadLink(Remote(subject, entry)));
  }
  return subject;
}

absl::StatusOr<SftpSubject> SftpTree::LookAtFiles(const std::string& base,
                                                  const std::vector<std::string>& paths) {
  SftpSubject subject;
  subject.base = base;
  for (const std::string& path : paths) {
    SftpEntry wanted;
    wanted.path = path;
    ASSIGN_OR_RETURN(SftpEntry entry, files_.Stat(Remote(subject, wanted)));
    if (!entry.is_file) {
      return absl::AbortedError(absl::StrCat("pull ", path, ": it is no file any more"));
    }
    entry.path = path;
    subject.entries.push_back(std::move(entry));
  }
  return subject;
}

absl::Status SftpTree::FetchFile(const std::string& remote, const SftpEntry& entry,
                                 const std::string& part,
                                 const std::function<void(int64_t, bool)>& progress) {
  ASSIGN_OR_RETURN(SftpPart file, SftpPart::Open(part, entry.size));
  progress(file.offset(), false);
  if (file.offset() == entry.size) return absl::OkStatus();
  RETURN_IF_ERROR(files_.Read(remote, file.offset(), entry.size, [&](absl::string_view bytes) {
    progress(static_cast<int64_t>(bytes.size()), true);
    return file.Append(bytes);
  }));
  return file.Finish();
}

absl::Status SftpTree::FetchFiles(const SftpSubject& subject, const std::string& parts,
                                  std::vector<std::string>& names) {
  TransferBar bar(context_, "by SFTP", false);
  TransferCount count;
  int64_t moved = 0;
  for (const SftpEntry& entry : subject.entries) count.total_bytes += entry.size;
  for (const SftpEntry& entry : subject.entries) {
    std::string& name = names.emplace_back();
    if (!entry.is_file || entry.size == 0) continue;
    // The name identifies the content, as far as the listing can tell.
    name = Sha256HexOf(
        absl::StrCat(JoinPath(subject.base, entry.path), "\n", entry.size, "\n", entry.modified_s));
    RETURN_IF_ERROR(FetchFile(Remote(subject, entry), entry, JoinPath(parts, name),
                              [&](int64_t bytes, bool now) {
                                count.bytes += bytes;
                                moved += now ? bytes : 0;
                                bar.Update(count);
                              }));
  }
  bar.Finish();
  context_.Trace(absl::StrCat("sftp: ", moved, " bytes"));
  for (const SftpEntry& entry : subject.entries) {
    if (!entry.is_file) continue;
    ASSIGN_OR_RETURN(const SftpEntry now, files_.Stat(Remote(subject, entry)));
    if (now.size != entry.size || now.modified_s != entry.modified_s) {
      return absl::AbortedError(
          absl::StrCat("pull ", JoinPath(subject.base, entry.path), ": it is being written again"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Pulled> SftpTree::Assemble(const SftpSubject& subject, const std::string& parts,
                                          const std::vector<std::string>& names,
                                          const std::string& parent) {
  const UniqueFd parts_fd(file_ops::Open(parts, O_RDONLY | O_DIRECTORY));
  if (!parts_fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", parts));
  std::vector<FileEntry> entries;
  Manifest here;  // the same content under its names in `parts`
  Pulled pulled;
  for (size_t i = 0; i < subject.entries.size(); ++i) {
    const SftpEntry& from = subject.entries[i];
    // Sockets, devices and the like stay on the node.
    if (!from.is_file && !from.is_directory && !from.is_symlink) continue;
    FileEntry entry = ToEntry(from);
    if (from.is_file) SetHashes("", entry);
    if (!names[i].empty()) {
      ASSIGN_OR_RETURN(const Manifest scanned, ScanFileAt(parts_fd.get(), names[i]));
      here.Append(scanned[0]);
      entry.set_size(scanned[0].size());
      entry.set_sha256(scanned[0].sha256());
      entry.set_part_sha256(scanned[0].part_sha256());
    }
    pulled.received.bytes += from.is_file ? from.size : 0;
    pulled.received.files += from.is_file;
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const FileEntry& a, const FileEntry& b) { return PathLess(a.path(), b.path()); });
  Manifest manifest;
  for (const FileEntry& entry : entries) manifest.Append(entry);
  if (const absl::Status valid = ValidateManifest(manifest); !valid.ok()) {
    return absl::DataLossError(absl::StrCat("the node named files: ", valid.message()));
  }
  ASSIGN_OR_RETURN(pulled.tree, TreeBuilder::Begin(parent, std::move(manifest)));
  RETURN_IF_ERROR(pulled.tree->TakeFrom(parts_fd.get(), here, Reuse::kMove, /*verified=*/true));
  RETURN_IF_ERROR(pulled.tree->Finish());
  pulled.is_file = subject.is_file;
  return pulled;
}

absl::StatusOr<Pulled> SftpTree::Fetch(const SftpSubject& subject, const std::string& parent) {
  for (const SftpEntry& entry : subject.entries) {
    if (!IsSafeRelativePath(entry.path)) {
      return absl::DataLossError(
          absl::StrCat("the node named a file ", absl::CHexEscape(entry.path)));
    }
  }
  // The parts lie beside the target, where the next try finds them.
  const std::string parts = JoinPath(parent, absl::StrCat(".gpuctl-sftp-", job_id_));
  RETURN_IF_ERROR(MakeDirectories(parts));
  ASSIGN_OR_RETURN(const UniqueFd lock, TryLock(JoinPath(parts, "lock")));
  std::vector<std::string> names;
  RETURN_IF_ERROR(FetchFiles(subject, parts, names));
  ASSIGN_OR_RETURN(Pulled pulled, Assemble(subject, parts, names, parent));
  RETURN_IF_ERROR(RemoveTree(parts));
  return pulled;
}

}  // namespace gpuctl
