#include "common/job/lifecycle.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Type = LifecycleEvent::Type;

constexpr char kLimitPrefix[] = "limit:";
constexpr size_t kMaxLineBytes = 64 << 10;
// Numbers of a line are within this, so that sums and differences of any two of them are none that
// overflow: sizes, offsets, times in milliseconds.
constexpr int64_t kMaxNumber = int64_t{1} << 60;
// The largest values of a process's end, so that a shell can report both as one byte.
constexpr size_t kMostListed = 8192;  // GPUs or packages of a line
constexpr int kMaxExitCode = 255;
constexpr int kMaxSignal = 127;

constexpr std::pair<Type, const char*> kNames[] = {
    {Type::kStarted, "started"},
    {Type::kStopping, "stopping"},
    {Type::kLingering, "lingering"},
    {Type::kExited, "exited"},
    {Type::kLost, "lost"},
    {Type::kRetry, "retry"},
    {Type::kCut, "cut"},
    {Type::kDropped, "dropped"},
    {Type::kQueued, "queued"},
    {Type::kSetupStarted, "setup_started"},
    {Type::kSetupEnded, "setup_ended"},
    {Type::kPackages, "packages"},
};

const char* NameOf(Type type) {
  for (const auto& [candidate, name] : kNames) {
    if (candidate == type) return name;
  }
  return "";
}

// True when an event of `type` has the optional `field`. All events have `attempt`, the sizes and
// the time.
bool HasField(Type type, absl::string_view field) {
  switch (type) {
    case Type::kStarted:
      return field == "pid" || field == "start_time_ticks" || field == "boot_id" ||
             field == "gpus" || field == "processes" || field == "detail";
    case Type::kQueued:
      return field == "ticket" || field == "reason";
    case Type::kStopping:
      return field == "reason";
    case Type::kLingering:
      return field == "exit_code" || field == "signal" || field == "not_before_ms";
    case Type::kExited:
      return field == "exit_code" || field == "signal" || field == "reason" || field == "error" ||
             field == "phase" || field == "detail";
    case Type::kSetupStarted:
      return false;
    case Type::kSetupEnded:
      return field == "environment" || field == "exit_code" || field == "signal" ||
             field == "reason" || field == "error";
    case Type::kPackages:
      return field == "packages";
    case Type::kLost:
      return field == "boot_id" || field == "reason";
    case Type::kRetry:
      return field == "not_before_ms";
    case Type::kCut:
      return field == "first_offset";
    case Type::kDropped:
      return field == "dropped_bytes" || field == "dropped_metric_lines";
  }
  return false;
}

// Visits every field but the type, in the order of the line.
template <typename Event, typename Visitor>
void VisitFields(Event& event, Visitor&& visit) {
  visit("attempt", event.attempt);
  visit("ticket", event.ticket);
  visit("pid", event.pid);
  visit("start_time_ticks", event.start_time_ticks);
  visit("boot_id", event.boot_id);
  visit("gpus", event.gpus);
  visit("processes", event.processes);
  visit("exit_code", event.exit_code);
  visit("signal", event.signal);
  visit("reason", event.reason);
  visit("error", event.error);
  visit("detail", event.detail);
  visit("phase", event.phase);
  visit("environment", event.environment);
  visit("packages", event.packages);
  visit("not_before_ms", event.not_before_ms);
  visit("first_offset", event.first_offset);
  visit("dropped_bytes", event.dropped_bytes);
  visit("dropped_metric_lines", event.dropped_metric_lines);
  visit("output_size", event.output_size);
  visit("metrics_size", event.metrics_size);
  visit("time_ms", event.time_ms);
}

bool IsCommonField(absl::string_view field) {
  return field == "attempt" || field == "output_size" || field == "metrics_size" ||
         field == "time_ms";
}

// The overloads of Assign return false when `value` has the wrong type or is out of range.
bool Assign(const OrderedJson& value, std::string& field) {
  if (!value.is_string()) return false;
  field = value.get<std::string>();
  return true;
}

bool Assign(const OrderedJson& value, std::optional<std::vector<std::string>>& field) {
  if (!value.is_array() || value.size() > kMostListed) return false;
  for (const OrderedJson& element : value) {
    if (!element.is_string()) return false;
  }
  field = value.get<std::vector<std::string>>();
  return true;
}

template <typename Int>
bool Assign(const OrderedJson& value, Int& field) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<Int>::max())) {
    return false;
  }
  const int64_t number = value.get<int64_t>();
  if (number < std::max<int64_t>(std::numeric_limits<Int>::min(), -kMaxNumber) ||
      number > std::min<int64_t>(std::numeric_limits<Int>::max(), kMaxNumber)) {
    return false;
  }
  field = static_cast<Int>(number);
  return true;
}

}  // namespace

std::string FormatLifecycleEvent(const LifecycleEvent& event) {
  OrderedJson line;
  line["event"] = NameOf(event.type);
  const LifecycleEvent defaults;
  VisitFields(event, [&](const char* name, const auto& value) {
    if (!IsCommonField(name) && !HasField(event.type, name)) return;
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, std::string>) {
      if (!value.empty()) line[name] = value;
    } else if constexpr (std::is_same_v<Value, std::optional<std::vector<std::string>>>) {
      if (value.has_value()) line[name] = *value;
    } else {
      // An end has a code or a signal, not both.
      if (absl::string_view(name) == "exit_code" && event.exit_code < 0) return;
      if (absl::string_view(name) == "signal" && event.signal == 0) return;
      if (absl::string_view(name) == "dropped_metric_lines" && value == 0) return;
      if (absl::string_view(name) == "processes" && value == 0) return;
      line[name] = value;
    }
  });
  return line.dump(-1, ' ', true, OrderedJson::error_handler_t::replace) + "\n";
}

absl::StatusOr<LifecycleEvent> ParseLifecycleEvent(absl::string_view line) {
  const OrderedJson json = ParseBoundedOrderedJson(line, {.bytes = kMaxLineBytes, .depth = 8});
  const auto invalid = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("parse lifecycle line: ", why));
  };
  if (json.is_discarded() || !json.is_object()) return invalid("not a JSON object");
  const auto name = json.find("event");
  if (name == json.end() || !name->is_string()) return invalid("no event");
  LifecycleEvent event;
  const auto* entry = std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& known) {
    return name->get_ref<const std::string&>() == known.second;
  });
  if (entry == std::end(kNames)) return invalid("unknown event");
  event.type = entry->first;
  absl::Status status;
  VisitFields(event, [&](const char* field_name, auto& field) {
    const auto value = json.find(field_name);
    if (value == json.end()) return;
    if (!Assign(*value, field)) status.Update(invalid(absl::StrCat("bad ", field_name)));
  });
  RETURN_IF_ERROR(status);
  if (event.ticket < 0) return invalid("bad ticket");
  const bool counted = event.type != Type::kCut && event.type != Type::kDropped;
  if (counted && event.attempt < 1) return invalid("bad attempt");
  if (event.exit_code < -1 || event.exit_code > kMaxExitCode) return invalid("bad exit_code");
  if (event.signal < 0 || event.signal > kMaxSignal) return invalid("bad signal");
  return event;
}

Lifecycle ParseLifecycle(absl::string_view contents) {
  Lifecycle lifecycle;
  while (true) {
    const size_t newline = contents.find('\n');
    if (newline == absl::string_view::npos || lifecycle.skipped_lines == kMaxSkippedLines) {
      return lifecycle;
    }
    const absl::string_view line = contents.substr(0, newline);
    contents.remove_prefix(newline + 1);
    absl::StatusOr<LifecycleEvent> event = ParseLifecycleEvent(line);
    if (event.ok()) {
      lifecycle.events.push_back(*std::move(event));
    } else {
      ++lifecycle.skipped_lines;
    }
  }
}

const LifecycleEvent* LastStateEvent(const Lifecycle& lifecycle) {
  for (auto it = lifecycle.events.rbegin(); it != lifecycle.events.rend(); ++it) {
    if (it->type == Type::kStarted || it->type == Type::kExited || it->type == Type::kLost ||
        it->type == Type::kRetry) {
      return &*it;
    }
  }
  return nullptr;
}

const LifecycleEvent* QueuedEvent(const Lifecycle& lifecycle) {
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  if (last != nullptr && last->type != Type::kRetry) return nullptr;
  const int attempt = last == nullptr ? 1 : last->attempt;
  for (auto it = lifecycle.events.rbegin(); it != lifecycle.events.rend(); ++it) {
    if (it->type == Type::kQueued && it->attempt == attempt) return &*it;
  }
  return nullptr;
}

const LifecycleEvent* LingeringEvent(const Lifecycle& lifecycle) {
  const LifecycleEvent* lingering = nullptr;
  for (const LifecycleEvent& event : lifecycle.events) {
    const bool ends = event.type == Type::kStopping || event.type == Type::kExited ||
                      event.type == Type::kLost || event.type == Type::kStarted;
    if (ends) lingering = nullptr;
    if (event.type == Type::kLingering) lingering = &event;
  }
  return lingering;
}

int64_t QueuedSinceMs(const Lifecycle& lifecycle) {
  const LifecycleEvent* newest = QueuedEvent(lifecycle);
  if (newest == nullptr) return 0;
  for (const LifecycleEvent& event : lifecycle.events) {
    if (event.type == Type::kQueued && event.attempt == newest->attempt) return event.time_ms;
  }
  return 0;
}

std::optional<SetupState> SetupOf(const Lifecycle& lifecycle) {
  std::optional<SetupState> setup;
  for (const LifecycleEvent& event : lifecycle.events) {
    switch (event.type) {
      case Type::kSetupStarted:
        setup.emplace();
        setup->attempt = event.attempt;
        setup->running = true;
        setup->started_ms = event.time_ms;
        break;
      case Type::kSetupEnded:
      case Type::kExited:
      case Type::kLost:
        if (!setup.has_value() || !setup->running || setup->attempt != event.attempt) break;
        setup->running = false;
        setup->failed = event.type != Type::kSetupEnded || event.exit_code != 0;
        setup->reused = event.reason == kReusedReason;
        setup->environment = event.environment;
        setup->ended_ms = event.time_ms;
        setup->output_size = event.output_size;
        break;
      default:
        break;
    }
  }
  return setup;
}

std::vector<OutputPart> OutputPartsOf(const Lifecycle& lifecycle) {
  std::vector<OutputPart> parts;
  bool ranks = false;
  for (const LifecycleEvent& event : lifecycle.events) {
    if (event.type == Type::kStarted) ranks = event.processes != 0;
    const bool setup = event.type == Type::kSetupStarted;
    const bool job =
        event.type == Type::kStarted || (event.type == Type::kSetupEnded && event.exit_code == 0);
    if (setup || job) parts.push_back({event.output_size, event.attempt, setup, ranks && !setup});
  }
  return parts;
}

std::vector<LifecycleEvent> PackageEvents(int attempt, const std::vector<std::string>& packages) {
  constexpr size_t kMostBytes = kMaxLineBytes / 2;
  std::vector<LifecycleEvent> events;
  size_t bytes = 0;
  for (const std::string& package : packages) {
    if (events.empty() || bytes + package.size() > kMostBytes) {
      LifecycleEvent& event = events.emplace_back();
      event.type = Type::kPackages;
      event.attempt = attempt;
      event.packages.emplace();
      bytes = 0;
    }
    bytes += package.size() + 3;
    events.back().packages->push_back(package);
  }
  return events;
}

std::vector<std::string> PackagesOf(const Lifecycle& lifecycle) {
  std::vector<std::string> packages;
  int attempt = 0;
  for (const LifecycleEvent& event : lifecycle.events) {
    if (event.type != Type::kPackages || !event.packages.has_value()) continue;
    if (event.attempt != attempt) packages.clear();
    attempt = event.attempt;
    packages.insert(packages.end(), event.packages->begin(), event.packages->end());
  }
  return packages;
}

StopCause StopCauseOf(absl::string_view reason) {
  if (reason.empty()) return StopCause::kNone;
  if (reason == kUserReason) return StopCause::kUser;
  if (reason == kShutdownReason) return StopCause::kShutdown;
  if (absl::StartsWith(reason, kAlertPrefix)) return StopCause::kAlert;
  return absl::StartsWith(reason, kLimitPrefix) ? StopCause::kLimit : StopCause::kOther;
}

absl::string_view AlertOf(absl::string_view reason) {
  return absl::ConsumePrefix(&reason, kAlertPrefix) ? reason : absl::string_view();
}

absl::string_view LimitOf(absl::string_view reason) {
  return absl::ConsumePrefix(&reason, kLimitPrefix) ? reason : absl::string_view();
}

int ShellExitCode(const LifecycleEvent& exited) {
  return exited.exit_code >= 0 ? exited.exit_code : 128 + exited.signal;
}

bool WantsRetry(const gpuctl::v1::RetryPolicy& policy, const LifecycleEvent& end) {
  if (end.attempt < 1 || end.attempt > policy.max_retries()) return false;
  // A shutdown of the node ends its jobs, but nobody decided to end them.
  const StopCause cause = end.type == Type::kExited ? StopCauseOf(end.reason) : StopCause::kNone;
  const bool shut_down = cause == StopCause::kShutdown;
  const bool lost = end.type == Type::kLost || shut_down;
  if (cause != StopCause::kNone && !shut_down) return false;
  if (end.type != Type::kExited && end.type != Type::kLost) return false;
  const bool failed = !lost && ShellExitCode(end) != 0 && end.phase.empty();
  for (const std::string& on : policy.on()) {
    if (on == "lost" && lost) return true;
    if (on == "failed" && failed) return true;
    if (!lost && on == absl::StrCat("exit:", ShellExitCode(end))) return true;
  }
  return false;
}

bool WantsRestart(const gpuctl::v1::RetryPolicy& policy, int attempt) {
  if (attempt < 1 || attempt > policy.max_retries()) return false;
  return std::any_of(policy.on().begin(), policy.on().end(),
                     [](const std::string& on) { return on == "preempted" || on == "lost"; });
}

int64_t RetryDelayMs(const gpuctl::v1::RetryPolicy& policy, int next_attempt) {
  constexpr int64_t kMaxDelayMs = int64_t{10} * 60 * 1000;
  int64_t delay = std::clamp<int64_t>(policy.backoff_ms(), 0, kMaxDelayMs);
  for (int attempt = 2; attempt < next_attempt && delay < kMaxDelayMs && delay > 0; ++attempt) {
    delay = std::min(delay * 2, kMaxDelayMs);
  }
  return delay;
}

bool IsOver(const Lifecycle& lifecycle) {
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  return last != nullptr && (last->type == Type::kExited || last->type == Type::kLost);
}

}  // namespace gpuctl
