#include "client/runs/queue_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "common/base/bounded_json.h"
#include "common/base/ids.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostJobs = 1'000'000;
constexpr size_t kMostStateBytes = 4 << 10;

std::string StatePath(const std::string& mirror_dir) { return JoinPath(mirror_dir, "queue.json"); }

std::string Ordinal(int number) {
  const int tens = number % 100, ones = number % 10;
  const bool teen = tens >= 11 && tens <= 13;
  return absl::StrCat(number, teen        ? "th"
                              : ones == 1 ? "st"
                              : ones == 2 ? "nd"
                              : ones == 3 ? "rd"
                                          : "th");
}

int BoundedInt(const nlohmann::json& json, const char* key) {
  const auto field = json.find(key);
  if (field == json.end() || !field->is_number_integer()) return 0;
  return static_cast<int>(std::clamp<int64_t>(field->get<int64_t>(), 0, kMostJobs));
}

}  // namespace

QueueState QueueStateOf(const gpuctl::v1::JobQueue& queue) {
  QueueState state;
  state.gpus = std::clamp(queue.gpus(), 0, kMostJobs);
  state.free_gpus = std::clamp(queue.free_gpus(), 0, kMostJobs);
  state.place = std::clamp(queue.place(), 0, kMostJobs);
  state.since_ms = std::max<int64_t>(0, queue.since_ms());
  state.needs_secrets = queue.needs_secrets();
  if (IsValidId(queue.held_by())) state.held_by = queue.held_by();
  if (queue.scheduler() == kSlurm) state.scheduler = kSlurm;
  return state;
}

std::string DescribeQueue(const QueueState& queue) {
  if (!queue.scheduler.empty()) return absl::StrCat("waits in ", queue.scheduler, "'s queue");
  if (queue.needs_secrets) {
    return "waits for the values of its secrets: its machine lost them in a restart of the agent";
  }
  if (queue.gpus == 0) return "waits for GPUs";
  std::string text = absl::StrCat("waits for ", queue.gpus, queue.gpus == 1 ? " GPU" : " GPUs");
  if (queue.place == 0) return text;
  if (queue.held_by.empty()) {
    absl::StrAppend(&text, ", ", queue.free_gpus, " free");
  } else {
    absl::StrAppend(&text, ", all taken by job ", queue.held_by, ", which has no number of GPUs");
  }
  return absl::StrCat(text, ", ", Ordinal(queue.place));
}

Json QueueToJson(const std::optional<QueueState>& queue) {
  if (!queue.has_value()) return Json();
  const bool known = queue->place > 0;
  return {{"gpus", queue->gpus > 0 ? Json(queue->gpus) : Json()},
          {"free", known ? Json(queue->free_gpus) : Json()},
          {"place", known ? Json(queue->place) : Json()},
          {"since", queue->since_ms > 0 ? Json(FormatRfc3339(queue->since_ms)) : Json()},
          {"needs_secrets", queue->needs_secrets},
          {"held_by", queue->held_by.empty() ? Json() : Json(queue->held_by)},
          {"scheduler", queue->scheduler.empty() ? Json() : Json(queue->scheduler)}};
}

absl::Status StoreQueueState(const std::string& mirror_dir, const QueueState& queue) {
  const Json json = {{"gpus", queue.gpus},
                     {"free", queue.free_gpus},
                     {"place", queue.place},
                     {"since_ms", queue.since_ms},
                     {"needs_secrets", queue.needs_secrets},
                     {"held_by", queue.held_by},
                     {"scheduler", queue.scheduler}};
  return WriteFileAtomic(StatePath(mirror_dir), json.dump() + "\n");
}

std::optional<QueueState> ReadQueueState(const std::string& mirror_dir) {
  const absl::StatusOr<std::string> text = ReadFileToString(StatePath(mirror_dir), kMostStateBytes);
  if (!text.ok()) return std::nullopt;
  const nlohmann::json json = ParseBoundedJson(*text, {.bytes = kMostStateBytes, .depth = 4});
  if (!json.is_object()) return std::nullopt;
  QueueState queue;
  queue.gpus = BoundedInt(json, "gpus");
  queue.free_gpus = BoundedInt(json, "free");
  queue.place = BoundedInt(json, "place");
  const auto since = json.find("since_ms");
  if (since != json.end() && since->is_number_integer()) {
    queue.since_ms = std::max<int64_t>(0, since->get<int64_t>());
  }
  const auto secrets = json.find("needs_secrets");
  queue.needs_secrets = secrets != json.end() && secrets->is_boolean() && secrets->get<bool>();
  const auto held = json.find("held_by");
  if (held != json.end() && held->is_string() && IsValidId(held->get<std::string>())) {
    queue.held_by = held->get<std::string>();
  }
  const auto scheduler = json.find("scheduler");
  if (scheduler != json.end() && *scheduler == kSlurm) queue.scheduler = kSlurm;
  return queue;
}

}  // namespace gpuctl
