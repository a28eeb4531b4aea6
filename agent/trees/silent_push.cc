#include "agent/trees/silent_push.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/files/staging_dir.h"

namespace gpuctl {
namespace {

// Names in the staging directory: one note for each silent stream, and the request.
constexpr absl::string_view kSilentPrefix = "silent.";
constexpr absl::string_view kWantedName = "wanted";
constexpr absl::Duration kLook = absl::Milliseconds(200);
constexpr absl::Duration kAnswerWithin = absl::Seconds(5);

bool HasInput(int fd, absl::Duration within) {
  pollfd ready{fd, POLLIN, 0};
  // A signal ends the wait early. That does no harm, because the reader then waits in read.
  return poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(within))) != 0;
}

void Touch(const std::string& path) {
  // Without the note nobody learns of the silence, and nothing changes.
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
}

bool HasSilentStream(const std::string& staging_path) {
  const std::vector<std::string> names =
      ListDirectory(staging_path).value_or(std::vector<std::string>());
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return absl::StartsWith(name, kSilentPrefix); });
}

}  // namespace

void YieldingStream::Holds(const std::string& staging_path) {
  staging_path_ = staging_path;
  note_path_ = JoinPath(staging_path, absl::StrCat(kSilentPrefix, RandomHex(8)));
}

absl::Status YieldingStream::Receive(ByteBuffer& into) {
  if (staging_path_.empty() || HasInput(in_fd_, silence_)) return stream_.Receive(into);
  Touch(note_path_);
  const std::string wanted = JoinPath(staging_path_, kWantedName);
  while (!HasInput(in_fd_, kLook)) {
    if (!PathExists(wanted)) continue;
    return absl::UnavailableError(
        "transfer: nothing came from the laptop any more, and another push goes on");
  }
  unlink(note_path_.c_str());
  return stream_.Receive(into);
}

bool EndSilentPushes(const std::string& parent) {
  std::vector<std::string> asked;
  for (const std::string& name : ListDirectory(parent).value_or(std::vector<std::string>())) {
    const std::string path = JoinPath(parent, name);
    if (!absl::StartsWith(name, kStagingPrefix) || IsAbandonedStaging(path) ||
        !HasSilentStream(path)) {
      continue;
    }
    Touch(JoinPath(path, kWantedName));
    asked.push_back(path);
  }
  Clock& clock = Clock::Real();
  const absl::Duration until = clock.SinceBoot() + kAnswerWithin;
  bool ended = false;
  for (const std::string& path : asked) {
    while (!IsAbandonedStaging(path) && clock.SinceBoot() < until) {
      clock.SleepFor(absl::Milliseconds(20));
    }
    unlink(JoinPath(path, kWantedName).c_str());
    ended = ended || IsAbandonedStaging(path);
  }
  return ended;
}

}  // namespace gpuctl
