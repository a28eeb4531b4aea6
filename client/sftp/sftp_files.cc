#include "client/sftp/sftp_files.h"

#include <fcntl.h>
#include <libssh/libssh.h>
#include <libssh/sftp.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxEntries = 100'000;
// Bytes of a request, which every server answers in full, and the number of requests at once,
// enough for a long path.
constexpr uint32_t kRequestBytes = 32 << 10;
constexpr size_t kRequestsUnderWay = 64;
constexpr long kTimeoutS = 30;

SftpEntry FromAttributes(const std::string& path, const sftp_attributes_struct& attributes) {
  SftpEntry entry;
  entry.path = path;
  entry.is_directory = attributes.type == SSH_FILEXFER_TYPE_DIRECTORY;
  entry.is_file = attributes.type == SSH_FILEXFER_TYPE_REGULAR;
  entry.is_symlink = attributes.type == SSH_FILEXFER_TYPE_SYMLINK;
  const bool has_mode = (attributes.flags & SSH_FILEXFER_ATTR_PERMISSIONS) != 0;
  entry.mode = has_mode ? attributes.permissions & 0777 : entry.is_directory ? 0755 : 0644;
  entry.size = static_cast<int64_t>(attributes.size);
  entry.modified_s = static_cast<int64_t>(attributes.mtime);
  return entry;
}

struct Attributes {
  explicit Attributes(sftp_attributes the_value) : value(the_value) {}
  ~Attributes() {
    if (value != nullptr) sftp_attributes_free(value);
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  sftp_attributes value;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SftpFiles>> SftpFiles::Open(std::unique_ptr<SshSession> session) {
  std::unique_ptr<SftpFiles> files(new SftpFiles(std::move(session)));
  ssh_session handle = files->session_->handle();
  ssh_set_blocking(handle, 1);
  ssh_options_set(handle, SSH_OPTIONS_TIMEOUT, &kTimeoutS);
  files->sftp_ = sftp_new(handle);
  if (files->sftp_ == nullptr || sftp_init(files->sftp_) != SSH_OK) {
    return absl::UnavailableError(absl::StrCat("begin SFTP: ", ssh_get_error(handle)));
  }
  return files;
}

SftpFiles::~SftpFiles() {
  if (sftp_ != nullptr) sftp_free(sftp_);
}

absl::Status SftpFiles::Error(absl::string_view doing, const std::string& path) {
  const int code = sftp_get_error(sftp_);
  const std::string what = absl::StrCat(doing, " ", path, " by SFTP");
  if (code == SSH_FX_NO_SUCH_FILE || code == SSH_FX_NO_SUCH_PATH) {
    return absl::NotFoundError(absl::StrCat(what, ": no such file"));
  }
  if (code == SSH_FX_PERMISSION_DENIED) {
    return absl::PermissionDeniedError(absl::StrCat(what, ": permission denied"));
  }
  const std::string cause = ssh_get_error(session_->handle());
  return absl::UnavailableError(
      absl::StrCat(what, ": ", cause.empty() ? absl::StrCat("error ", code) : cause));
}

absl::StatusOr<SftpEntry> SftpFiles::Stat(const std::string& path) {
  const Attributes attributes(sftp_lstat(sftp_, path.c_str()));
  if (attributes.value == nullptr) return Error("look at", path);
  return FromAttributes("", *attributes.value);
}

absl::StatusOr<std::string> SftpFiles::ReadLink(const std::string& path) {
  char* target = sftp_readlink(sftp_, path.c_str());
  if (target == nullptr) return Error("read the symlink", path);
  std::string copy = target;
  ssh_string_free_char(target);
  return copy;
}

absl::Status SftpFiles::ListInto(const std::string& dir, const std::string& below,
                                 std::vector<SftpEntry>& entries) {
  const std::string path = below.empty() ? dir : JoinPath(dir, below);
  sftp_dir open = sftp_opendir(sftp_, path.c_str());
  if (open == nullptr) {
    const absl::Status status = Error("list", path);
    return absl::IsNotFound(status) ? absl::OkStatus() : status;
  }
  std::vector<SftpEntry> here;
  while (here.size() + entries.size() <= kMaxEntries) {
    const Attributes attributes(sftp_readdir(sftp_, open));
    if (attributes.value == nullptr) break;
    const std::string name = attributes.value->name;
    if (name == "." || name == ".." || name.empty() || name.find('/') != name.npos) continue;
    here.push_back(FromAttributes(below.empty() ? name : JoinPath(below, name), *attributes.value));
  }
  const bool whole = sftp_dir_eof(open) != 0;
  sftp_closedir(open);
  if (here.size() + entries.size() > kMaxEntries) {
    return absl::ResourceExhaustedError(
        absl::StrCat("list ", dir, " by SFTP: more than ", kMaxEntries, " entries"));
  }
  if (!whole) return Error("list", path);
  std::sort(here.begin(), here.end(),
            [](const SftpEntry& a, const SftpEntry& b) { return a.path < b.path; });
  for (SftpEntry& entry : here) {
    const bool is_directory = entry.is_directory;
    const std::string child = entry.path;
    entries.push_back(std::move(entry));
    if (is_directory) RETURN_IF_ERROR(ListInto(dir, child, entries));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SftpEntry>> SftpFiles::List(const std::string& dir) {
  std::vector<SftpEntry> entries;
  RETURN_IF_ERROR(ListInto(dir, "", entries));
  return entries;
}

absl::Status SftpFiles::Read(const std::string& path, int64_t offset, int64_t size,
                             const std::function<absl::Status(absl::string_view)>& take) {
  const std::unique_ptr<sftp_file_struct, int (*)(sftp_file)> file(
      sftp_open(sftp_, path.c_str(), O_RDONLY, 0), sftp_close);
  if (file == nullptr) return Error("open", path);
  struct Request {
    uint32_t id;
    uint32_t length;
  };
  std::deque<Request> under_way;
  std::string buffer(kRequestBytes, '\0');
  absl::Status status;
  bool short_answer = false;  // the next answers do not continue at its end
  int64_t asked = offset;
  while (status.ok() && offset < size) {
    if (under_way.empty()) {
      short_answer = false;
      asked = offset;
      if (sftp_seek64(file.get(), static_cast<uint64_t>(offset)) != 0) return Error("read", path);
    }
    while (!short_answer && asked < size && under_way.size() < kRequestsUnderWay) {
      const auto length = static_cast<uint32_t>(std::min<int64_t>(kRequestBytes, size - asked));
      const int id = sftp_async_read_begin(file.get(), length);
      if (id < 0) return Error("read", path);
      under_way.push_back({static_cast<uint32_t>(id), length});
      asked += length;
    }
    const Request request = under_way.front();
    under_way.pop_front();
    const int got = sftp_async_read(file.get(), buffer.data(), request.length, request.id);
    if (got < 0) return Error("read", path);
    if (short_answer) continue;
    if (got == 0) {
      status = absl::DataLossError(absl::StrCat("read ", path, " by SFTP: it became shorter"));
      break;
    }
    status = take({buffer.data(), static_cast<size_t>(got)});
    offset += got;
    short_answer = static_cast<uint32_t>(got) < request.length;
  }
  // The library keeps answers until somebody takes them.
  while (!under_way.empty()) {
    (void)sftp_async_read(file.get(), buffer.data(), under_way.front().length,
                          under_way.front().id);
    under_way.pop_front();
  }
  return status;
}

}  // namespace gpuctl
