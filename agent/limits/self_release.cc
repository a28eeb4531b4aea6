#include "agent/limits/self_release.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "nlohmann/json.hpp"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/base/platform.h"
#include "agent/limits/node_limits_store.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

// The limit of one request, in seconds. After a hang the process that started us tries again.
constexpr unsigned kLongestSeconds = 150;

std::string Find(const Environment& environment, absl::string_view name) {
  const auto found = environment.find(std::string(name));
  return found == environment.end() ? "" : found->second;
}

bool IsPlain(absl::string_view text, absl::string_view also) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [also](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(also, c);
  });
}

// Returns the key of the instance `id`: a key from a source that has this id, else from one that
// has no id.
absl::StatusOr<std::string> FindKey(const ReleaseRoute& route, const std::string& id,
                                    const std::vector<Environment>& sources) {
  std::string nameless, stranger;
  for (const Environment& source : sources) {
    const std::string key = Find(source, route.key_variable);
    const std::string whose = Find(source, route.id_variable);
    if (key.empty()) continue;
    if (whose == id) return key;
    if (!whose.empty()) {
      stranger = whose;
    } else if (nameless.empty()) {
      nameless = key;
    }
  }
  if (!stranger.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(route.key_variable, " here is that of ", stranger, ", not of ", id));
  }
  if (!nameless.empty()) return nameless;
  return absl::FailedPreconditionError(
      absl::StrCat("no ", route.key_variable, " in the container's environment"));
}

void NoteRelease(const RootPaths& paths, const std::string& outcome, Clock& clock) {
  nlohmann::ordered_json json;
  json["requests"] = ReadReleaseNote(paths).requests + 1;
  json["asked_ms"] = absl::ToUnixMillis(clock.Now());
  json["outcome"] = outcome;
  (void)WriteFileAtomic(paths.release,
                        json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

absl::Status AskOnce(const HttpsRequest& request, const std::string& roots, std::string& outcome) {
  HttpsOptions options;
  options.roots_files = {roots};
  for (const char* place : kSystemRoots) options.roots_files.push_back(place);
  ASSIGN_OR_RETURN(const HttpsReply reply, SendHttps(request, options, Clock::Real()));
  outcome = absl::StrCat("answer ", reply.status);
  // An instance that is gone already is a success.
  if ((reply.status >= 200 && reply.status < 300) || reply.status == 404) return absl::OkStatus();
  return absl::UnavailableError(outcome);
}

// Runs the command of a shutdown and waits for its end.
absl::Status ShutDown(const OwnRelease& release, std::string& outcome) {
  SpawnOptions spawn;
  spawn.argv = {"/bin/sh", "-c", release.command};
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(spawn));
  int status = 0;
  pid_t ended = 0;
  do ended = waitpid(pid, &status, 0);
  while (ended < 0 && errno == EINTR);
  outcome = ended == pid && WIFEXITED(status) ? absl::StrCat("exit ", WEXITSTATUS(status))
                                              : std::string("killed");
  return outcome == "exit 0" ? absl::OkStatus() : absl::UnavailableError(outcome);
}

// Lets the start command end.
absl::Status EndStartCommand(const RootPaths& paths, std::string& outcome) {
  RETURN_IF_ERROR(MakeDirectories(paths.root));
  RETURN_IF_ERROR(WriteFileAtomic(JoinPath(paths.root, kReleasedFile), ""));
  outcome = "the start command may end";
  return absl::OkStatus();
}

int Release(const std::string& root, const std::string& roots, bool dry_run) {
  const RootPaths paths(root);
  const absl::StatusOr<StoredLimits> stored = ReadNodeLimits(paths);
  if (!stored.ok()) {
    fprintf(stderr, "gpuctl-agent: release: no limits are set here: nobody's lease\n");
    return 1;
  }
  const absl::StatusOr<OwnRelease> release =
      ReleaseOf(stored->limits, KeySources(), geteuid() == 0);
  if (!release.ok()) {
    fprintf(stderr, "gpuctl-agent: release: %s\n", std::string(release.status().message()).c_str());
    return 1;
  }
  const std::string what = release->InWords();
  if (dry_run) {
    printf("would %s%s\n", release->way == EndsItself::kByKey ? "ask: " : "", what.c_str());
    return 0;
  }
  std::string outcome;
  absl::Status status;
  if (release->way == EndsItself::kByKey) {
    status = AskOnce(release->request, roots, outcome);
  } else if (release->way == EndsItself::kByExit) {
    status = EndStartCommand(paths, outcome);
  } else {
    status = ShutDown(*release, outcome);
  }
  NoteRelease(paths, status.ok() ? outcome : std::string(status.message()), Clock::Real());
  fprintf(stderr, "gpuctl-agent: release: %s: %s\n", what.c_str(),
          status.ok() ? outcome.c_str() : std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace

std::vector<Environment> KeySources() {
  std::vector<Environment> sources;
  sources.push_back(ParseEnvironmentBlock(InitEnvironment()));
  sources.push_back(OwnEnvironment());
  const absl::StatusOr<std::string> shell = ReadFileToString("/etc/rp_environment");
  if (shell.ok()) sources.push_back(ParseShellEnvironment(*shell));
  return sources;
}

Environment ParseShellEnvironment(absl::string_view text) {
  Environment environment;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    absl::ConsumePrefix(&line, "export ");
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos || equals == 0) continue;
    absl::string_view value = line.substr(equals + 1);
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
        value.back() == value.front()) {
      value = value.substr(1, value.size() - 2);
    }
    environment[std::string(line.substr(0, equals))] = std::string(value);
  }
  return environment;
}

absl::StatusOr<HttpsRequest> ReleaseRequest(const gpuctl::v1::NodeLimits& limits,
                                            const std::vector<Environment>& sources) {
  if (!limits.self_release()) {
    return absl::FailedPreconditionError("its limits leave the release to the laptop");
  }
  const ReleaseRoute& route = ReleaseRouteOf(limits.provider());
  if (route.way != EndsItself::kByKey) {
    return absl::FailedPreconditionError(
        absl::StrCat(limits.provider(), " gives a machine no key to end itself with"));
  }
  if (!IsPlain(limits.instance_id(), "-_")) {
    return absl::FailedPreconditionError("the instance's id is none");
  }
  ASSIGN_OR_RETURN(const std::string key, FindKey(route, limits.instance_id(), sources));
  if (!IsPlain(key, "-_.:~+/=")) {
    return absl::FailedPreconditionError(absl::StrCat(route.key_variable, " is not a key"));
  }
  HttpsRequest request;
  const absl::string_view base = absl::StripSuffix(limits.release_base_url(), "/");
  request.method = std::string(route.method);
  request.url = absl::StrCat(base, ReleasePath(route, limits.instance_id()));
  if (!route.body.empty()) {
    request.body = std::string(route.body);
    request.headers.emplace_back("Content-Type", "application/json");
  }
  RETURN_IF_ERROR(ParseHttpsUrl(request.url).status());
  request.headers.emplace_back("Authorization", absl::StrCat("Bearer ", key));
  return request;
}

std::string OwnRelease::InWords() const {
  switch (way) {
    case EndsItself::kByKey:
      return absl::StrCat(request.method, " ", request.url, request.body.empty() ? "" : " ",
                          request.body);
    case EndsItself::kByExit:
      return "end the start command";
    case EndsItself::kByShutdown:
      return absl::StrCat("run ", command);
    case EndsItself::kNo:
      break;
  }
  return "nothing";
}

absl::StatusOr<OwnRelease> ReleaseOf(const gpuctl::v1::NodeLimits& limits,
                                     const std::vector<Environment>& sources, bool root) {
  const ReleaseRoute& route = ReleaseRouteOf(limits.provider());
  OwnRelease release;
  release.way = route.way;
  if (limits.self_release() && route.way == EndsItself::kByShutdown) {
    const absl::string_view command = ShutdownCommand(route);
    release.command = root ? std::string(command) : absl::StrCat("sudo -n sh -c '", command, "'");
  } else if (!limits.self_release() || route.way != EndsItself::kByExit) {
    ASSIGN_OR_RETURN(release.request, ReleaseRequest(limits, sources));
  }
  return release;
}

absl::Status CanRelease(const gpuctl::v1::NodeLimits& limits, const RootPaths& paths) {
  ASSIGN_OR_RETURN(const OwnRelease release, ReleaseOf(limits, KeySources(), geteuid() == 0));
  // Another user, or one with another home, may be the one who runs the start command.
  if (release.way == EndsItself::kByExit && !PathExists(paths.boot)) {
    return absl::FailedPreconditionError(
        absl::StrCat("its start command does not look into ", paths.root));
  }
  return absl::OkStatus();
}

ReleaseNote ReadReleaseNote(const RootPaths& paths) {
  ReleaseNote note;
  const absl::StatusOr<std::string> text = ReadFileToString(paths.release, 1 << 20);
  if (!text.ok()) return note;
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object()) return note;
  if (json.contains("requests") && json["requests"].is_number_integer()) {
    note.requests = json["requests"].get<int64_t>();
  }
  if (json.contains("asked_ms") && json["asked_ms"].is_number_integer()) {
    note.asked_ms = json["asked_ms"].get<int64_t>();
  }
  if (json.contains("outcome") && json["outcome"].is_string()) {
    note.outcome = json["outcome"].get<std::string>();
  }
  return note;
}

int RunRelease(const std::string& root, const std::string& roots, bool dry_run) {
  signal(SIGPIPE, SIG_IGN);
  alarm(kLongestSeconds);
  return Release(root, roots, dry_run);
}

}  // namespace gpuctl
