#include "agent/ranks/rank_place.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/rank_mark.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
constexpr absl::Duration kListWithin = absl::Seconds(30);
constexpr size_t kMostListBytes = 1 << 20;

absl::StatusOr<int> NumberIn(const Environment& environment, const char* name, int otherwise,
                             int low, int high) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return otherwise;
  int value = 0;
  if (absl::SimpleAtoi(found->second, &value) && value >= low && value <= high) return value;
  return absl::InvalidArgumentError(absl::StrCat(
      name, " is \"", found->second, "\", and it must be a number from ", low, " to ", high));
}

absl::StatusOr<int> FreePortOf(int family) {
  const UniqueFd probe(socket(family, SOCK_STREAM, 0));
  if (!probe.valid()) return ErrnoStatus(errno, "make a socket");
  // All addresses, because some programs listen on all of them.
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (bind(probe.get(), reinterpret_cast<const sockaddr*>(&any), size) != 0 ||
      getsockname(probe.get(), reinterpret_cast<sockaddr*>(&any), &size) != 0) {
    return ErrnoStatus(errno, "find a free port");
  }
  return ntohs(family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&any)->sin6_port
                                  : reinterpret_cast<const sockaddr_in*>(&any)->sin_port);
}

// Returns what the program prints within the time.
std::string OutputOf(const std::vector<std::string>& argv) {
  absl::StatusOr<FdPair> pipe = MakePipe("list the GPUs");
  if (!pipe.ok()) return "";
  SpawnOptions options;
  options.argv = argv;
  options.stdout_fd = pipe->second.get();
  const absl::StatusOr<pid_t> pid = Spawn(options);
  if (!pid.ok()) return "";
  pipe->second.reset();
  Clock& clock = Clock::Real();
  const absl::Duration end = clock.SinceBoot() + kListWithin;
  std::string text;
  char buffer[4096];
  while (text.size() < kMostListBytes) {
    const int64_t left = absl::ToInt64Milliseconds(end - clock.SinceBoot());
    pollfd fd{pipe->first.get(), POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&fd, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const ssize_t got = read(pipe->first.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  // One that hangs in the driver may not die; it is left behind.
  kill(*pid, SIGKILL);
  waitpid(*pid, nullptr, WNOHANG);
  return text;
}

}  // namespace

absl::StatusOr<RankPlace> ReadRankPlace(const Environment& environment, int local) {
  RankPlace place;
  place.local = local;
  ASSIGN_OR_RETURN(place.nodes, NumberIn(environment, "GPUCTL_NODES", 1, 1, kHighestRank));
  ASSIGN_OR_RETURN(place.node, NumberIn(environment, "GPUCTL_NODE_RANK", 0, 0, place.nodes - 1));
  ASSIGN_OR_RETURN(place.port, NumberIn(environment, "MASTER_PORT", 0, 1, 65535));
  if (int64_t{place.nodes} * local > kHighestRank + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(place.nodes, " machines with ", local, " processes each are too many"));
  }
  const auto address = environment.find("MASTER_ADDR");
  const bool has_address = address != environment.end() && !address->second.empty();
  if (place.nodes > 1 && (!has_address || place.port == 0)) {
    return absl::InvalidArgumentError(
        "several machines need MASTER_ADDR and MASTER_PORT, where their processes meet");
  }
  place.address = has_address ? address->second : kLoopback;
  return place;
}

absl::StatusOr<int> FreePort() {
  // An IPv6 socket has the port of both families, where there are IPv6 addresses.
  absl::StatusOr<int> port = FreePortOf(AF_INET6);
  return port.ok() ? port : FreePortOf(AF_INET);
}

int CoresOfLimit(absl::string_view cpu_max) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(cpu_max, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t quota = 0, period = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &quota) ||
      !absl::SimpleAtoi(words[1], &period) || quota <= 0 || period <= 0) {
    return 0;
  }
  return static_cast<int>(
      std::min<int64_t>(1 << 20, quota / period + (quota % period > 0 ? 1 : 0)));
}

int UsableCores() {
  int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  // What a container sees as the root is its own group.
  char text[64];
  const UniqueFd file(open("/sys/fs/cgroup/cpu.max", O_RDONLY | O_CLOEXEC));
  const ssize_t got = file.valid() ? read(file.get(), text, sizeof(text)) : -1;
  const int allowed = got > 0 ? CoresOfLimit(absl::string_view(text, static_cast<size_t>(got))) : 0;
  if (allowed > 0) cores = std::min<int64_t>(cores, allowed);
#endif
  return static_cast<int>(std::max<int64_t>(1, cores));
}

std::vector<std::pair<std::string, std::string>> RankVariables(const RankPlace& place, int local,
                                                               int port,
                                                               const Environment& environment) {
  const int rank = place.first_rank() + local;
  std::vector<std::pair<std::string, std::string>> variables = {
      {"RANK", absl::StrCat(rank)},
      {"LOCAL_RANK", absl::StrCat(local)},
      {"WORLD_SIZE", absl::StrCat(place.nodes * place.local)},
      {"LOCAL_WORLD_SIZE", absl::StrCat(place.local)},
      {"MASTER_ADDR", place.address},
      {"MASTER_PORT", absl::StrCat(port)},
      {"GPUCTL_NODE_RANK", absl::StrCat(place.node)},
      {"GPUCTL_NODES", absl::StrCat(place.nodes)}};
  // Gloo would take the machine's name for its address, and that need not lead here.
  if (place.address == kLoopback && !environment.contains("GLOO_SOCKET_IFNAME")) {
    variables.emplace_back("GLOO_SOCKET_IFNAME", "lo");
  }
  // Each would take all cores, and they would wait for each other.
  if (place.local > 1 && place.cores > 0 && !environment.contains("OMP_NUM_THREADS")) {
    variables.emplace_back("OMP_NUM_THREADS", absl::StrCat(std::max(1, place.cores / place.local)));
  }
  // Only rank 0's numbers count. The others write theirs away, so that one script is enough.
  if (rank != 0) variables.emplace_back("GPUCTL_METRICS", "/dev/null");
  return variables;
}

int CountGpus(const Environment& environment, const std::string& nvidia_smi) {
  int count = 0;
  if (const auto visible = environment.find("CUDA_VISIBLE_DEVICES"); visible != environment.end()) {
    for (const absl::string_view entry : absl::StrSplit(visible->second, ',')) {
      const absl::string_view name = absl::StripAsciiWhitespace(entry);
      // CUDA sees nothing behind an entry that is none.
      if (name.empty() || name[0] == '-') break;
      ++count;
    }
    return count;
  }
  if (nvidia_smi.empty()) return 0;
  const std::string listed = OutputOf({nvidia_smi, "-L"});
  for (const absl::string_view line : absl::StrSplit(listed, '\n')) {
    count += absl::StartsWith(line, "GPU ") ? 1 : 0;
  }
  return count;
}

}  // namespace gpuctl
