#include "agent/handover.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "agent/base/platform.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {
namespace {

constexpr int kPipeBytes = 1 << 20;

void Wipe(std::string& text) { std::fill(text.begin(), text.end(), '\0'); }

}  // namespace

absl::StatusOr<UniqueFd> MakeHandover(const RootPaths& paths) {
  // A FIFO, because both ends are one descriptor; its name is gone at once.
  const std::string path = JoinPath(paths.root, absl::StrCat("handover.tmp-", RandomHex(6)));
  if (mkfifo(path.c_str(), 0600) != 0) return ErrnoStatus(errno, absl::StrCat("make ", path));
  UniqueFd fd(file_ops::Open(path, O_RDWR | O_NONBLOCK));
  const int error = errno;
  unlink(path.c_str());
  if (!fd.valid()) return ErrnoStatus(error, absl::StrCat("open ", path));
  GrowPipe(fd.get(), kPipeBytes);
  return fd;
}

UniqueFd TakeHandover() {
  struct stat info {};
  const bool given = fstat(STDIN_FILENO, &info) == 0 && S_ISFIFO(info.st_mode) &&
                     info.st_nlink == 0 && (fcntl(STDIN_FILENO, F_GETFL) & O_ACCMODE) == O_RDWR;
  if (!given) return UniqueFd();
  UniqueFd handover(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid() || dup2(null.get(), STDIN_FILENO) < 0) close(STDIN_FILENO);
  return handover;
}

absl::Status HandOver(const UniqueFd& handover, const std::map<std::string, Secrets>& secrets) {
  for (const auto& [job_id, values] : secrets) {
    gpuctl::v1::StartJobRequest entry;
    entry.mutable_spec()->set_job_id(job_id);
    entry.mutable_secrets()->insert(values.begin(), values.end());
    const std::string content = entry.SerializeAsString();
    const uint32_t size = static_cast<uint32_t>(content.size());
    std::string frame(reinterpret_cast<const char*>(&size), sizeof(size));
    frame += content;
    const ssize_t written = write(handover.get(), frame.data(), frame.size());
    const bool whole = written == static_cast<ssize_t>(frame.size());
    Wipe(frame);
    if (!whole) {
      return absl::ResourceExhaustedError("hand the secrets of waiting jobs to the next server");
    }
  }
  return absl::OkStatus();
}

std::map<std::string, Secrets> ReceiveHandover(const UniqueFd& handover) {
  std::map<std::string, Secrets> secrets;
  if (!handover.valid()) return secrets;
  std::string all;
  std::string buffer(64 << 10, '\0');
  for (;;) {
    const ssize_t got = read(handover.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    all.append(buffer.data(), static_cast<size_t>(got));
  }
  for (size_t at = 0; at + sizeof(uint32_t) <= all.size();) {
    uint32_t size = 0;
    std::memcpy(&size, all.data() + at, sizeof(size));
    at += sizeof(size);
    gpuctl::v1::StartJobRequest entry;
    if (size > all.size() - at || !entry.ParseFromArray(all.data() + at, static_cast<int>(size))) {
      break;
    }
    at += size;
    secrets[entry.spec().job_id()] = Secrets(entry.secrets().begin(), entry.secrets().end());
  }
  Wipe(all);
  Wipe(buffer);
  return secrets;
}

}  // namespace gpuctl
