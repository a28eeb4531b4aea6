#include "provisioning/rest/json_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/bounded_json.h"
#include "provisioning/rest/printable.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxBodyBytes = 32 << 20;
constexpr int kMaxDepth = 64;

std::optional<int64_t> WholeNumber(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  // Beyond 2^53 a double no longer tells neighbours apart.
  if (std::abs(number) > 9e15 || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view body) {
  if (body.size() > kMaxBodyBytes) {
    return absl::UnknownError(absl::StrCat("the answer has ", body.size(), " bytes"));
  }
  const JsonLimits limits = {.bytes = kMaxBodyBytes, .depth = kMaxDepth};
  if (!IsWithin(body, limits)) return absl::UnknownError("the answer is nested too deeply");
  nlohmann::json json = ParseBoundedJson(body, limits);
  if (json.is_discarded()) {
    return absl::UnknownError(absl::StrCat("the answer is no JSON: ", BodyInWords(body, 80)));
  }
  return json;
}

JsonReader::JsonReader(const nlohmann::json& json, absl::string_view what)
    : json_(&json), what_(what) {
  if (!json.is_object()) status_ = absl::UnknownError(absl::StrCat(what_, " is no JSON object"));
}

void JsonReader::RequireId(absl::string_view path, std::string& value) {
  Require(path, value);
  if (value.empty()) Fail(path, "is empty");
}

void JsonReader::ReadLooseInt(absl::string_view path, int64_t& value) {
  const nlohmann::json* found = Find(path);
  if (found == nullptr) return;
  int64_t number = 0;
  if (found->is_string() && absl::SimpleAtoi(found->get_ref<const std::string&>(), &number)) {
    value = number;
    return;
  }
  Take(path, *found, value);
}

void JsonReader::ReadObject(absl::string_view path, absl::string_view what, ReadFunction read) {
  const nlohmann::json* found = Find(path);
  if (found == nullptr || !Fits(path, *found, found->is_object(), "an object")) return;
  JsonReader inner(*found, what);
  read(inner);
  Check(inner.status());
}

void JsonReader::RequireObject(absl::string_view path, absl::string_view what, ReadFunction read) {
  if (MustFind(path) != nullptr) ReadObject(path, what, read);
}

void JsonReader::ReadEach(absl::string_view path, absl::string_view what, ReadFunction read) {
  if (Find(path) != nullptr) RequireEach(path, what, read);
}

void JsonReader::RequireEach(absl::string_view path, absl::string_view what, ReadFunction read) {
  const nlohmann::json* array = RequireArray(path);
  if (array == nullptr) return;
  for (const nlohmann::json& json : *array) {
    if (!status_.ok()) return;
    JsonReader row(json, what);
    read(row);
    Check(row.status());
  }
}

void JsonReader::RequireEachField(absl::string_view path, absl::string_view what,
                                  ReadFunction read) {
  RequireObject(path, what, [what, read](JsonReader& object) {
    for (const auto& [name, json] : object.json_->items()) {
      if (!object.status_.ok()) return;
      JsonReader field(json, absl::StrCat(what, " ", PrintableText(name, 60)));
      read(field);
      object.Check(field.status());
    }
  });
}

const nlohmann::json* JsonReader::Find(absl::string_view path) {
  const nlohmann::json* found = json_;
  size_t begin = 0;
  while (true) {
    if (!found->is_object()) {
      // The constructor has reported the outermost one.
      if (begin > 0) Fits(path.substr(0, begin - 1), *found, false, "an object");
      return nullptr;
    }
    const size_t end = std::min(path.find('.', begin), path.size());
    const auto field = found->find(std::string(path.substr(begin, end - begin)));
    if (field == found->end() || field->is_null()) return nullptr;
    if (end == path.size()) return &*field;
    found = &*field;
    begin = end + 1;
  }
}

const nlohmann::json* JsonReader::MustFind(absl::string_view path) {
  const nlohmann::json* found = Find(path);
  if (found == nullptr) Fail(path, "is missing");
  return found;
}

const nlohmann::json* JsonReader::RequireArray(absl::string_view path) {
  const nlohmann::json* found = MustFind(path);
  const bool fits = found != nullptr && Fits(path, *found, found->is_array(), "an array");
  return fits ? found : nullptr;
}

bool JsonReader::IsNull(const char* field) const {
  return json_->is_object() && json_->contains(field) && (*json_)[field].is_null();
}

void JsonReader::Fail(absl::string_view path, absl::string_view problem) {
  Check(absl::UnknownError(absl::StrCat("field ", path, " of ", what_, " ", problem)));
}

void JsonReader::Check(const absl::Status& status) {
  if (status_.ok()) status_ = status;
}

bool JsonReader::Fits(absl::string_view path, const nlohmann::json& found, bool fits,
                      const char* wanted) {
  if (!fits) Fail(path, absl::StrCat("is a JSON ", found.type_name(), ", not ", wanted));
  return fits;
}

bool JsonReader::Take(absl::string_view path, const nlohmann::json& found, std::string& value) {
  const bool fits = Fits(path, found, found.is_string(), "a string");
  if (fits) value = found.get<std::string>();
  return fits;
}

bool JsonReader::Take(absl::string_view path, const nlohmann::json& found, double& value) {
  const bool fits = Fits(path, found, found.is_number(), "a number");
  if (fits) value = found.get<double>();
  return fits;
}

bool JsonReader::Take(absl::string_view path, const nlohmann::json& found, int64_t& value) {
  const std::optional<int64_t> number = WholeNumber(found);
  const bool fits = Fits(path, found, number.has_value(), "a whole number");
  if (fits) value = *number;
  return fits;
}

bool JsonReader::Take(absl::string_view path, const nlohmann::json& found, bool& value) {
  const bool fits = Fits(path, found, found.is_boolean(), "true or false");
  if (fits) value = found.get<bool>();
  return fits;
}

void RefuseUnknownPaging(JsonReader& answer, absl::Span<const absl::string_view> known) {
  // The fields may also be in an object beside the rows.
  for (const absl::string_view at : {"", "pagination."}) {
    if (!at.empty() && answer.Find("pagination") == nullptr) continue;
    for (const char* name : {"next", "nextPage", "next_page", "nextPageToken", "next_page_token",
                             "nextToken", "next_cursor", "cursor", "hasMore", "has_more"}) {
      const std::string path = absl::StrCat(at, name);
      if (absl::c_linear_search(known, path)) continue;
      const nlohmann::json* found = answer.Find(path);
      if (found == nullptr || *found == false || *found == "") continue;
      answer.Fail(path, "speaks of another page in a way that is not known here");
    }
  }
}

}  // namespace gpuctl
