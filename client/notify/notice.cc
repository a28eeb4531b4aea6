#include "client/notify/notice.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/base/quantity.h"
#include "client/terminal/console.h"
#include "client/terminal/safe_text.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

const PlotPoint* LowestOf(const std::vector<PlotPoint>& points) {
  const PlotPoint* lowest = nullptr;
  for (const PlotPoint& point : points) {
    if (std::isfinite(point.y) && (lowest == nullptr || point.y < lowest->y)) lowest = &point;
  }
  return lowest;
}

std::string BestText(const BestMetric& best) {
  return absl::StrCat(best.name, " ", FormatNumber(best.value),
                      best.step >= 0 ? absl::StrCat(" at step ", best.step) : "");
}

absl::Duration TookOf(const Notice& notice) {
  const int64_t from_ms = notice.status.started_ms;
  return from_ms > 0 && notice.row.end.has_value()
             ? absl::Milliseconds(notice.row.end->ended_ms - from_ms)
             : absl::ZeroDuration();
}

// Slack reads three characters as its own.
std::string ForSlack(const std::string& text) {
  return absl::StrReplaceAll(MakeSafe(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

}  // namespace

std::optional<BestMetric> BestOf(const TrainingProgress& progress) {
  for (const bool eval : {true, false}) {
    const PlotPoint* const lowest = LowestOf(eval ? progress.eval_losses() : progress.losses());
    if (lowest == nullptr) continue;
    return BestMetric{eval ? "eval_loss" : "loss", lowest->y, static_cast<int64_t>(lowest->x)};
  }
  return std::nullopt;
}

std::string OutcomeOf(const Notice& notice) { return WordOf(notice.status.phase); }

std::string TitleOf(const Notice& notice) {
  return MakeSafe(absl::StrCat(notice.row.name, " ", OutcomeOf(notice)));
}

std::string BodyOf(const Notice& notice) {
  std::string text = DescribeEnd(*notice.row.end);
  if (TookOf(notice) > absl::ZeroDuration()) {
    absl::StrAppend(&text, " after ", HumanDuration(TookOf(notice)));
  }
  if (notice.cost_usd.has_value()) absl::StrAppend(&text, ", ", FormatUsd(*notice.cost_usd));
  if (notice.best.has_value()) absl::StrAppend(&text, ", best ", BestText(*notice.best));
  return MakeSafe(text);
}

Json NoticeJson(const Notice& notice) {
  Json json = {{"schema_version", kJsonSchemaVersion}};
  json.update(RunToJson(notice.row, notice.status));
  json["outcome"] = OutcomeOf(notice);
  json["best"] = nullptr;
  if (notice.best.has_value()) {
    json["best"] = {
        {"metric", notice.best->name}, {"value", notice.best->value}, {"step", notice.best->step}};
  }
  json["cost_usd"] = NumberToJson(notice.cost_usd);
  json["message"] = absl::StrCat(TitleOf(notice), ": ", BodyOf(notice));
  return json;
}

std::vector<std::string> NoticeVariables(const Notice& notice) {
  std::vector<std::string> variables = {
      absl::StrCat("GPUCTL_RUN=", notice.row.name),
      absl::StrCat("GPUCTL_RUN_ID=", notice.row.run_id),
      absl::StrCat("GPUCTL_OUTCOME=", OutcomeOf(notice)),
      absl::StrCat("GPUCTL_EXIT_CODE=", notice.row.end->exit_code),
      // A variable cannot have a NUL in it.
      absl::StrCat("GPUCTL_REASON=", MakeSafe(notice.row.end->reason)),
      absl::StrCat("GPUCTL_MESSAGE=", TitleOf(notice), ": ", BodyOf(notice))};
  const auto add = [&variables](const char* name, const std::string& value) {
    variables.push_back(absl::StrCat("GPUCTL_", name, "=", value));
  };
  add("COST_USD", notice.cost_usd.has_value() ? FormatNumber(*notice.cost_usd) : "");
  add("BEST_METRIC", notice.best.has_value() ? notice.best->name : "");
  add("BEST_VALUE", notice.best.has_value() ? FormatNumber(notice.best->value) : "");
  add("BEST_STEP", notice.best.has_value() ? absl::StrCat(notice.best->step) : "");
  return variables;
}

Json SlackMessage(const Notice& notice) {
  Json fields = Json::array();
  const auto field = [&fields](const char* title, const std::string& value) {
    if (!value.empty()) {
      fields.push_back({{"title", title}, {"value", ForSlack(value)}, {"short", true}});
    }
  };
  field("Outcome", DescribeEnd(*notice.row.end));
  if (TookOf(notice) > absl::ZeroDuration()) field("Took", HumanDuration(TookOf(notice)));
  if (notice.cost_usd.has_value()) field("Cost", FormatUsd(*notice.cost_usd));
  if (notice.best.has_value()) field("Best", BestText(*notice.best));
  field("Machine", notice.row.target.name);
  const char* color = notice.row.end->exit_code == 0 ? "good" : "danger";
  return {{"text", ForSlack(absl::StrCat(TitleOf(notice), ": ", BodyOf(notice)))},
          {"attachments", {{{"color", color}, {"fields", fields}}}}};
}

}  // namespace gpuctl
