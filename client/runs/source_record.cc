#include "client/runs/source_record.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr char kNotRecorded[] = "not recorded";
constexpr size_t kShownCommit = 12;

// Passes each field with its name to `visit`: one list of fields for both directions.
template <typename Record, typename Visitor>
void VisitRecord(Record& record, Visitor&& visit) {
  visit("unknown", record.unknown);
  visit("commit", record.commit);
  visit("branch", record.branch);
  visit("changed", record.changed);
  visit("diff_bytes", record.diff_bytes);
  visit("diff_cut", record.diff_cut);
  visit("left_out", record.left_out);
  visit("left_out_count", record.left_out_count);
  visit("diff_missing", record.diff_missing);
}

}  // namespace

std::string FormatSourceRecord(const SourceRecord& record) {
  nlohmann::ordered_json json;
  VisitRecord(record, [&json](const char* name, const auto& value) { json[name] = value; });
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

SourceRecord ParseSourceRecord(absl::string_view text) {
  SourceRecord record;
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  bool good = json.is_object();
  if (good) {
    VisitRecord(record, [&json, &good](const char* name, auto& value) {
      const auto field = json.find(name);
      if (field == json.end()) return;  // an older gpuctl did not write it
      try {
        field->get_to(value);
      } catch (const nlohmann::json::exception&) {
        good = false;
      }
    });
  }
  if (good) return record;
  record = SourceRecord();
  record.unknown = kNotRecorded;
  return record;
}

std::string DescribeSource(const SourceRecord& record) {
  if (!record.unknown.empty()) return record.unknown;
  const std::string commit =
      record.commit.empty() ? "no commit yet" : record.commit.substr(0, kShownCommit);
  const std::string branch =
      record.branch.empty() ? ", no branch" : absl::StrCat(" on ", record.branch);
  if (record.changed == 0) return absl::StrCat(commit, branch, ", clean");
  return absl::StrCat(commit, branch, ", ", record.changed,
                      record.changed == 1 ? " file changed" : " files changed");
}

nlohmann::ordered_json SourceToJson(const SourceRecord& record) {
  nlohmann::ordered_json json;
  const auto text = [](const std::string& value) {
    return value.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
  };
  const bool known = record.unknown.empty();
  json["commit"] = text(record.commit);
  json["branch"] = text(record.branch);
  json["clean"] = known ? nlohmann::ordered_json(record.clean()) : nlohmann::ordered_json();
  json["changed"] = known ? nlohmann::ordered_json(record.changed) : nlohmann::ordered_json();
  json["diff_bytes"] = record.diff_bytes;
  json["diff_cut"] = record.diff_cut;
  json["left_out"] = record.left_out;
  json["left_out_count"] = record.left_out_count;
  json["why"] = text(known ? record.diff_missing : record.unknown);
  return json;
}

}  // namespace gpuctl
