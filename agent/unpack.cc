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

// Not atomic: what could not be written whole stays, so that a full disk can be seen to be full.
// The client removes the directory.
absl::Status Write(const std::string& path, absl::string_view content, mode_t mode) {
  const UniqueFd out(file_ops::Open(path, O_WRONLY | O_CREAT | O_TRUNC, mode));
  if (!out.valid()) return ErrnoStatus(errno, absl::StrCat("unpack: make ", path));
  return WriteAll(out.get(), content, path);
}

absl::Status Unpack(const std::string& base, const std::string& target, const PlainFile& before,
                    int input) {
  ASSIGN_OR_RETURN(const std::string text, ReadToEnd(input));
  absl::string_view packed = text;
  if (packed.size() < before.size) {
    return absl::DataLossError(absl::StrCat("unpack: ", before.path, " is not whole"));
  }
  if (!before.path.empty()) {
    RETURN_IF_ERROR(Write(before.path, packed.substr(0, before.size), 0600));
  }
  packed.remove_prefix(before.size);
  ASSIGN_OR_RETURN(const std::string own, ReadFileToString(base, kMostProgramBytes));
  ASSIGN_OR_RETURN(const std::string program,
                   UnpackAgainst(packed, own, static_cast<size_t>(kMostProgramBytes)));
  return Write(target, program, 0700);
}

}  // namespace

int RunUnpack(const std::string& base, const std::string& target, const PlainFile& before,
              int input) {
  const absl::Status status = Unpack(base, target, before, input);
  if (status.ok()) return 0;
  fprintf(stderr, "gpuctl-agent: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace gpuctl
