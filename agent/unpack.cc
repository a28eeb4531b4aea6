#include "agent/unpack.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/packing/whole_frames.h"

namespace gpuctl {
namespace {

constexpr int64_t kMostProgramBytes = int64_t{256} << 20;

absl::StatusOr<std::string> ReadToEnd(int fd) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "unpack: read stdin");
    text.append(buffer, static_cast<size_t>(got));
    if (static_cast<int64_t>(text.size()) > kMostProgramBytes) {
      return absl::ResourceExhaustedError("unpack: too much on stdin");
    }
  }
}

absl::Status Unpack(const std::string& base, const std::string& target, int input) {
  ASSIGN_OR_RETURN(const std::string packed, ReadToEnd(input));
  ASSIGN_OR_RETURN(const std::string own, ReadFileToString(base, kMostProgramBytes));
  ASSIGN_OR_RETURN(const std::string program,
                   UnpackAgainst(packed, own, static_cast<size_t>(kMostProgramBytes)));
  // Not atomic: what could not be written whole stays, so that a full disk can be seen to be full.
  // The client removes the directory.
  const UniqueFd out(file_ops::Open(target, O_WRONLY | O_CREAT | O_TRUNC, 0700));
  if (!out.valid()) return ErrnoStatus(errno, absl::StrCat("unpack: make ", target));
  return WriteAll(out.get(), program, target);
}

}  // namespace

int RunUnpack(const std::string& base, const std::string& target, int input) {
  const absl::Status status = Unpack(base, target, input);
  if (status.ok()) return 0;
  fprintf(stderr, "gpuctl-agent: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace gpuctl
