#include "client/node/node_check.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/quantity.h"
#include "client/base/shell_quote.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "provisioning/market/gpu_models.h"

namespace gpuctl {
namespace {

constexpr int64_t kTrialBytes = 2 << 20;
// Below this rate even the agent does not arrive in reasonable time.
constexpr double kLeastBytesPerSecond = 64e3;
constexpr int64_t kMaxProgramBytes = 1 << 20;
constexpr size_t kMaxAnswerBytes = 64 << 10;
constexpr absl::Duration kVolumeWithin = absl::Seconds(10);
// A driver that hangs does so for ever, and the machine bills. The slowest connection that is
// accepted needs a quarter of this time.
constexpr absl::Duration kCheckAnswersWithin = absl::Minutes(2);
constexpr int kLookMs = 100;

struct Answer {
  int code = 0;
  int64_t bytes = 0;
  std::string text;  // the first kMaxAnswerBytes of the output
};

// Gives `input` to a command on the node and reads what it prints. ABORTED when it takes too long,
// CANCELLED when on.cancelled returns true.
absl::StatusOr<Answer> Ask(const CheckedNode& on, const std::string& command,
                           absl::string_view input) {
  const absl::Duration end = on.clock.SinceBoot() + kCheckAnswersWithin;
  ASSIGN_OR_RETURN(const std::unique_ptr<RemoteCommand> remote, on.links.Run(command));
  Answer answer;
  bool sending = true;
  char buffer[64 << 10];
  for (;;) {
    if (sending && input.empty()) {
      shutdown(remote->fd(), SHUT_WR);
      sending = false;
    }
    pollfd polled{remote->fd(), static_cast<short>(POLLIN | (sending ? POLLOUT : 0)), 0};
    if (on.cancelled && on.cancelled()) return absl::CancelledError("interrupted");
    if (on.clock.SinceBoot() >= end) {
      return absl::AbortedError(
          absl::StrCat("a command on it did not end within ", HumanDuration(kCheckAnswersWithin)));
    }
    const int ready = poll(&polled, 1, kLookMs);
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "wait for the node");
    if (ready <= 0) continue;
    if (sending && (polled.revents & POLLOUT) != 0) {
      const ssize_t sent =
          send(remote->fd(), input.data(), input.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) input.remove_prefix(static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN && errno != EINTR) input = {};
    }
    if ((polled.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    const ssize_t got = read(remote->fd(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    answer.bytes += got;
    const size_t room = kMaxAnswerBytes - std::min(kMaxAnswerBytes, answer.text.size());
    answer.text.append(buffer, std::min(room, static_cast<size_t>(got)));
  }
  ASSIGN_OR_RETURN(answer.code, remote->Wait());
  return answer;
}

// Returns the GPUs that the driver reports: "2 x H100-SXM and 1 x A10" or "no GPU".
std::string Found(const gpuctl::v1::HelloReply& node) {
  std::map<std::string, int> counts;
  for (const gpuctl::v1::Gpu& gpu : node.gpus()) {
    ++counts[CanonicalGpuName(gpu.name(), gpu.memory_bytes())];
  }
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts) parts.push_back(absl::StrCat(count, " x ", name));
  return parts.empty() ? "no GPU" : absl::StrJoin(parts, " and ");
}

// Runs the program on the node. Sends it over the command's stdin and removes it afterwards.
absl::StatusOr<std::string> CheckCuda(const CheckedNode& on, const std::string& program) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFileToString(program, kMaxProgramBytes));
  constexpr char kRun[] =
      "f=$(mktemp \"${GPUCTL_NODE_ROOT:-$HOME}/.gpuctl-cuda-XXXXXX\") && cat > \"$f\" && "
      "chmod 700 \"$f\" && { \"$f\"; c=$?; rm -f \"$f\"; exit $c; }";
  const absl::StatusOr<Answer> asked = Ask(on, kRun, bytes);
  if (!asked.ok()) return Annotate(asked.status(), "try CUDA there");
  const Answer& answer = *asked;
  const std::string said(absl::StripAsciiWhitespace(answer.text));
  switch (answer.code) {
    case 0:
      return absl::StrCat("CUDA works (", said, ")");
    case 3:
    case 4:
    case 5:
      return absl::AbortedError(absl::StrCat("CUDA does not work there: ", said));
    default:
      return absl::StrCat("CUDA was not tried: the check could not run there (code ", answer.code,
                          said.empty() ? "" : ", ", said, ")");
  }
}

// Checks the mount, not only the directory: without a volume the image may have a directory of that
// name, and what is written there would be lost with the machine. Exit codes: 3 no mount, 4 not
// writable.
constexpr char kCheckVolume[] =
    "m=${GPUCTL_MOUNT_ROOT:-}; r=$(readlink -f \"$p\" 2>/dev/null); there=\n"
    "while read -r a b c d e f; do\n"
    "  if [ \"$e\" = \"$p\" ] || [ \"$e\" = \"$r\" ]; then there=1; fi\n"
    "done < \"$m/proc/self/mountinfo\"\n"
    "[ -n \"$there\" ] && [ -d \"$m$p\" ] || exit 3\n"
    "f=$(mktemp \"$m$p/.gpuctl-volume-XXXXXX\") && echo 1 > \"$f\" || exit 4\n"
    "rm -f \"$f\"; df -Pk \"$m$p/.\" | tail -n 1\n";

// Checks the volume. Waits for it, because some machines mount it after ssh works.
absl::StatusOr<std::string> CheckVolume(const CheckedNode& on, const std::string& path) {
  const absl::Duration end = on.clock.SinceBoot() + kVolumeWithin;
  for (;;) {
    ASSIGN_OR_RETURN(
        const Answer answer,
        Ask(on, absl::StrCat("{ p=", ShellQuote(path), "; ", kCheckVolume, "} 2>&1"), ""));
    const std::string said(absl::StripAsciiWhitespace(answer.text));
    if (answer.code == 0) {
      const std::vector<std::string> words = absl::StrSplit(said, ' ', absl::SkipEmpty());
      int64_t free_kib = 0;
      const bool known = words.size() >= 4 && absl::SimpleAtoi(words[3], &free_kib);
      return absl::StrCat(
          "the volume at ", path,
          known ? absl::StrCat(" has ", FormatBytes(free_kib << 10), " free") : " is writable");
    }
    if (answer.code == 4) {
      return absl::FailedPreconditionError(
          absl::StrCat("the volume at ", path, " cannot be written to: ", said));
    }
    if (on.clock.SinceBoot() >= end) {
      return absl::AbortedError(absl::StrCat("no volume is mounted at ", path,
                                             said.empty() ? "" : absl::StrCat(": ", said)));
    }
    on.clock.SleepFor(absl::Seconds(1));
  }
}

absl::Status MeasureRates(const CheckedNode& on, NodeFitness& fitness) {
  Clock& clock = on.clock;
  const std::string trial(kTrialBytes, '\x5a');
  absl::Duration begin = clock.SinceBoot();
  ASSIGN_OR_RETURN(const Answer up, Ask(on, "wc -c", trial));
  const double up_s = std::max(absl::ToDoubleSeconds(clock.SinceBoot() - begin), 1e-3);
  begin = clock.SinceBoot();
  ASSIGN_OR_RETURN(const Answer down,
                   Ask(on, absl::StrCat("head -c ", kTrialBytes, " /dev/zero"), ""));
  const double down_s = std::max(absl::ToDoubleSeconds(clock.SinceBoot() - begin), 1e-3);
  if (absl::StripAsciiWhitespace(up.text) != absl::StrCat(kTrialBytes) ||
      down.bytes != kTrialBytes) {
    return absl::AbortedError(
        absl::StrFormat("of %d bytes sent there %s arrived, and %d came back", kTrialBytes,
                        std::string(absl::StripAsciiWhitespace(up.text)), down.bytes));
  }
  fitness.up_bytes_per_s = static_cast<double>(kTrialBytes) / up_s;
  fitness.down_bytes_per_s = static_cast<double>(kTrialBytes) / down_s;
  if (std::min(fitness.up_bytes_per_s, fitness.down_bytes_per_s) < kLeastBytesPerSecond) {
    return absl::AbortedError(absl::StrCat(
        "its connection is too slow: ", FormatBytes(static_cast<int64_t>(fitness.up_bytes_per_s)),
        "/s up, ", FormatBytes(static_cast<int64_t>(fitness.down_bytes_per_s)), "/s down"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckHardware(const PromisedNode& promised, const gpuctl::v1::HelloReply& node) {
  const auto fits = [&promised](const gpuctl::v1::Gpu& gpu) {
    return promised.gpu_name.empty() ||
           KeepsGpuPromise({promised.gpu_name, promised.gpu_memory_bytes},
                           {gpu.name(), gpu.memory_bytes()});
  };
  const auto count = std::count_if(node.gpus().begin(), node.gpus().end(), fits);
  if (count < promised.gpu_count) {
    return absl::AbortedError(absl::StrCat("its offer promised ", promised.gpu_count, " x ",
                                           promised.gpu_name, ", there is ", Found(node)));
  }
  if (promised.disk_bytes > node.disk_free_bytes()) {
    return absl::AbortedError(absl::StrCat("it has ", FormatBytes(node.disk_free_bytes()),
                                           " of disk free, the run asks for ",
                                           FormatBytes(promised.disk_bytes)));
  }
  return absl::OkStatus();
}

absl::StatusOr<NodeFitness> CheckNode(const PromisedNode& promised,
                                      const gpuctl::v1::HelloReply& node, const CheckedNode& on,
                                      const std::string& cuda_check) {
  RETURN_IF_ERROR(CheckHardware(promised, node));
  NodeFitness fitness;
  fitness.cuda =
      "CUDA was not tried: gpuctl-cuda-check for its platform is not there: gpuctl node shows what "
      "is";
  if (promised.gpu_count > 0 && !cuda_check.empty()) {
    ASSIGN_OR_RETURN(fitness.cuda, CheckCuda(on, cuda_check));
  }
  if (!promised.volume_path.empty()) {
    ASSIGN_OR_RETURN(fitness.volume, CheckVolume(on, promised.volume_path));
  }
  if (promised.own_line) RETURN_IF_ERROR(MeasureRates(on, fitness));
  return fitness;
}

}  // namespace gpuctl
