#include "client/dashboard/actions.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/progress_lines.h"
#include "client/base/quantity.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr size_t kMostOutputBytes = 1 << 20;
constexpr absl::Duration kLookEvery = absl::Milliseconds(20);

std::string TextOf(const nlohmann::json& json, const char* name) {
  if (!json.is_object()) return "";
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string StopText(const nlohmann::json& json) {
  const auto runs = json.find("runs");
  if (runs == json.end() || !runs->is_array() || runs->empty()) return "it was told to stop";
  const nlohmann::json& run = (*runs)[0];
  const std::string status = TextOf(run, "status");
  const auto code = run.is_object() ? run.find("exit_code") : run.end();
  if (run.is_object() && code != run.end() && code->is_number_integer()) {
    return absl::StrCat("it has ended: ", status, ", exit code ", code->get<int64_t>());
  }
  return status.empty() ? "it was told to stop" : absl::StrCat("it is ", status);
}

std::string PullText(const nlohmann::json& json) {
  const auto list = [&json](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_array() ? *found : nlohmann::json::array();
  };
  const nlohmann::json checkpoints = list("checkpoints");
  const size_t files = list("files").size();
  const auto bytes = json.find("bytes");
  std::string text;
  for (const nlohmann::json& checkpoint : checkpoints) {
    const std::string path = TextOf(checkpoint, "path");
    const bool was_here = checkpoint.is_object() && checkpoint.contains("already_here") &&
                          checkpoint["already_here"] == true;
    absl::StrAppend(&text, text.empty() ? "" : "; ", was_here ? "was here already: " : "brought ",
                    path);
  }
  if (files > 0) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", files, files == 1 ? " file" : " files", " in ",
                    TextOf(json, "to"));
  }
  if (text.empty()) return "there is nothing to bring yet";
  if (bytes != json.end() && bytes->is_number_integer() && bytes->get<int64_t>() > 0) {
    absl::StrAppend(&text, " (", FormatBytes(bytes->get<int64_t>()), " came, verified)");
  }
  return text;
}

std::string ListText(const nlohmann::json& json) {
  const auto found = json.find("checkpoints");
  return (found == json.end() ? nlohmann::json::array() : *found)
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void ReadOutcome(absl::string_view output, int exit_code, Action& action) {
  const nlohmann::json json = ParseBoundedJson(output);
  const auto error = json.is_object() ? json.find("error") : json.end();
  if (json.is_object() && error != json.end()) {
    action.state = Action::State::kFailed;
    action.text = TextOf(*error, "message");
    action.hint = TextOf(*error, "hint");
  } else if (exit_code != kExitOk || !json.is_object()) {
    action.state = Action::State::kFailed;
  } else {
    action.state = Action::State::kDone;
    action.text = action.verb == "stop"   ? StopText(json)
                  : action.verb == "list" ? ListText(json)
                                          : PullText(json);
  }
  if (action.text.empty()) {
    action.text = absl::StrCat("gpuctl ", action.verb, " ended with ", exit_code);
    action.hint = absl::StrCat("gpuctl ", action.verb, " ", action.run_name, " in a terminal");
  }
}

Actions::Actions(std::string program, Clock& clock) : program_(std::move(program)), clock_(clock) {}

absl::Status Actions::Begin(const std::string& verb, const std::string& run_id,
                            const std::string& run_name) {
  size_t running = 0;
  for (const Action& action : actions_) {
    if (action.state != Action::State::kRunning) continue;
    ++running;
    if (action.verb == verb && action.run_id == run_id) {
      return absl::FailedPreconditionError(
          absl::StrCat("gpuctl ", verb, " ", run_name, " is at work already"));
    }
  }
  if (running >= kAtOnce) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kAtOnce, " stops and pulls are at work: wait for one of them"));
  }
  ASSIGN_OR_RETURN(FdPair ends, MakePipe("make a pipe"));
  ASSIGN_OR_RETURN(FdPair progress, MakePipe("make a pipe"));
  SpawnOptions options;
  options.argv = {program_, verb == "list" ? "pull" : verb, run_id, "--json"};
  if (verb == "list") options.argv.push_back("--list");
  options.env = {absl::StrCat(kProgressVariable, "=1")};
  options.stdout_fd = ends.second.get();
  options.stderr_fd = progress.second.get();
  options.new_session = true;  // Ctrl-C is for this process: see End
  Process process;
  ASSIGN_OR_RETURN(process.pid, Spawn(options));
  (void)fcntl(ends.first.get(), F_SETFL, fcntl(ends.first.get(), F_GETFL) | O_NONBLOCK);
  process.number = next_;
  process.output_fd = std::move(ends.first);
  (void)fcntl(progress.first.get(), F_SETFL, fcntl(progress.first.get(), F_GETFL) | O_NONBLOCK);
  process.progress_fd = std::move(progress.first);
  process.interrupts = verb != "stop";
  processes_.push_back(std::move(process));
  Action action;
  action.number = next_++;
  action.verb = verb;
  action.run_id = run_id;
  action.run_name = run_name;
  action.started_ms = absl::ToUnixMillis(clock_.Now());
  actions_.push_back(std::move(action));
  while (actions_.size() > kKept && actions_.front().state != Action::State::kRunning) {
    actions_.pop_front();
  }
  changed_ = true;
  return absl::OkStatus();
}

void Actions::AddPolled(std::vector<pollfd>& polled) const {
  for (const Process& process : processes_) {
    if (process.output_fd.valid()) polled.push_back({process.output_fd.get(), POLLIN, 0});
    if (process.progress_fd.valid()) polled.push_back({process.progress_fd.get(), POLLIN, 0});
  }
}

Action* Actions::Find(int64_t number) {
  for (Action& action : actions_) {
    if (action.number == number) return &action;
  }
  return nullptr;
}

void Actions::Settle(Process& process, int status) {
  changed_ = true;
  Action* const action = Find(process.number);
  if (action == nullptr) return;
  action->text.clear();
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ReadOutcome(process.output, code, *action);
}

// The action's text is the newest whole line.
void Actions::ReadProgress(Process& process) {
  char buffer[4096];
  while (process.progress_fd.valid()) {
    const ssize_t count = read(process.progress_fd.get(), buffer, sizeof(buffer));
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return process.progress_fd.reset();
    process.progress.append(buffer, static_cast<size_t>(count));
    const size_t end = process.progress.rfind('\n');
    if (end == std::string::npos) {
      if (process.progress.size() > kMostOutputBytes) process.progress.clear();
      continue;
    }
    const size_t before = end == 0 ? std::string::npos : process.progress.rfind('\n', end - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    if (Action* const action = Find(process.number); action != nullptr) {
      action->text = process.progress.substr(begin, end - begin);
      changed_ = true;
    }
    process.progress.erase(0, end + 1);
  }
}

bool Actions::Step() {
  for (Process& process : processes_) {
    ReadProgress(process);
    char buffer[4096];
    while (process.output_fd.valid()) {
      const ssize_t count = read(process.output_fd.get(), buffer, sizeof(buffer));
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (count <= 0) {
        process.output_fd.reset();
      } else if (process.output.size() < kMostOutputBytes) {
        process.output.append(buffer, static_cast<size_t>(count));
      }
    }
    int status = 0;
    if (process.output_fd.valid() || waitpid(process.pid, &status, WNOHANG) != process.pid)
      continue;
    Settle(process, status);
    process.pid = -1;
  }
  processes_.erase(std::remove_if(processes_.begin(), processes_.end(),
                                  [](const Process& process) { return process.pid < 0; }),
                   processes_.end());
  return std::exchange(changed_, false);
}

void Actions::End(absl::Duration patience) {
  for (const Process& process : processes_) {
    if (process.interrupts) kill(process.pid, SIGINT);
  }
  const absl::Duration end = clock_.SinceBoot() + patience;
  const auto waits = [this] {
    return std::any_of(processes_.begin(), processes_.end(),
                       [](const Process& process) { return process.interrupts; });
  };
  while (waits() && clock_.SinceBoot() < end) {
    (void)Step();
    if (waits()) clock_.SleepFor(kLookEvery);
  }
}

nlohmann::ordered_json ActionToJson(const Action& action) {
  const char* const states[] = {"running", "done", "failed"};
  return {{"number", action.number},
          {"verb", action.verb},
          {"run_id", action.run_id},
          {"name", action.run_name},
          {"state", states[static_cast<int>(action.state)]},
          {"started", FormatRfc3339(action.started_ms)},
          {"text", action.text},
          {"hint", action.hint}};
}

}  // namespace gpuctl
