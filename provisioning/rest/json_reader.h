// Reading a rental market's JSON with checked types. Nothing here is about one market.
#ifndef GPUCTL_PROVISIONING_REST_JSON_READER_H_
#define GPUCTL_PROVISIONING_REST_JSON_READER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"

namespace gpuctl {

// Returns the JSON of an answer. UNKNOWN when the body is not JSON (a proxy's HTML page, a torn
// body; the message shows its beginning), is larger than 32 MiB or is nested deeper than 64.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view body);

// Reads the fields of one JSON object into variables: std::string, double, int64_t (also from 3.0),
// bool, and std::optional of these. A variable keeps its value when its field is missing or wrong.
// Null counts as missing.
//
// The first wrong field makes status() an UNKNOWN error that names it. The other fields can still
// be read. A path is the name of a field, or leads through objects: "price.secure". A reader must
// not outlive its JSON.
class JsonReader {
 public:
  using ReadFunction = absl::FunctionRef<void(JsonReader&)>;

  // `what` names the object in errors: "pod", "offer 3".
  JsonReader(const nlohmann::json& json, absl::string_view what);

  // Reads a field that may be missing. A field of another type is wrong.
  template <typename T>
  void Read(absl::string_view path, T& value) {
    if (const nlohmann::json* found = Find(path); found != nullptr) Take(path, *found, value);
  }
  // Reads a field that must be there.
  template <typename T>
  void Require(absl::string_view path, T& value) {
    if (const nlohmann::json* found = MustFind(path); found != nullptr) Take(path, *found, value);
  }
  // Reads a string that must be there and not be empty.
  void RequireId(absl::string_view path, std::string& value);
  // Reads a whole number that may be missing, or written as a string: "123".
  void ReadLooseInt(absl::string_view path, int64_t& value);

  // Calls `read` for the object at `path`. `what` names the object in errors.
  void ReadObject(absl::string_view path, absl::string_view what, ReadFunction read);
  void RequireObject(absl::string_view path, absl::string_view what, ReadFunction read);
  // Calls `read` for each object of the array at `path`, up to the first wrong one.
  void ReadEach(absl::string_view path, absl::string_view what, ReadFunction read);
  void RequireEach(absl::string_view path, absl::string_view what, ReadFunction read);
  // Calls `read` for each object in the fields of the object at `path`, up to the first wrong one.
  // Errors name it by `what` and the field.
  void RequireEachField(absl::string_view path, absl::string_view what, ReadFunction read);
  // As RequireEach, with a new element of `rows` for each object.
  template <typename Row>
  void RequireRows(absl::string_view path, absl::string_view what,
                   std::type_identity_t<absl::FunctionRef<void(JsonReader& row, Row& value)>> read,
                   std::vector<Row>& rows) {
    RequireEach(path, what, [&](JsonReader& row) { read(row, rows.emplace_back()); });
  }

  // Returns the field, whatever its type; a null pointer when it is missing.
  const nlohmann::json* Find(absl::string_view path);
  // Returns the array that must be at `path`; a null pointer when it is not.
  const nlohmann::json* RequireArray(absl::string_view path);
  // True when the object has a field of that name and it is null. Takes no path.
  bool IsNull(const char* field) const;

  // Makes status() an error about `path`, unless it is one already.
  void Fail(absl::string_view path, absl::string_view problem);
  // Makes status() `status`, unless it is an error already.
  void Check(const absl::Status& status);
  const absl::Status& status() const { return status_; }

 private:
  // Stores `found` in `value`; false, and the field is wrong, when it has another type.
  bool Take(absl::string_view path, const nlohmann::json& found, std::string& value);
  bool Take(absl::string_view path, const nlohmann::json& found, double& value);
  bool Take(absl::string_view path, const nlohmann::json& found, int64_t& value);
  bool Take(absl::string_view path, const nlohmann::json& found, bool& value);
  template <typename T>
  bool Take(absl::string_view path, const nlohmann::json& found, std::optional<T>& value) {
    T taken{};
    const bool fits = Take(path, found, taken);
    if (fits) value = std::move(taken);
    return fits;
  }
  const nlohmann::json* MustFind(absl::string_view path);
  // Returns `fits`. When it is false, the field is wrong, because it is not `wanted`.
  bool Fits(absl::string_view path, const nlohmann::json& found, bool fits, const char* wanted);

  const nlohmann::json* json_;
  std::string what_;
  absl::Status status_;
};

// Makes a list fail that says in an unknown way that it is not whole: what is on its next page
// would count as gone. `known` are the fields that are understood.
void RefuseUnknownPaging(JsonReader& answer, absl::Span<const absl::string_view> known = {});

// Reads the object that an answer consists of. `what` names it in errors.
template <typename T>
absl::StatusOr<T> ParseAnswer(absl::string_view body, absl::string_view what,
                              absl::FunctionRef<void(JsonReader& answer, T& value)> read) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(body));
  JsonReader answer(json, what);
  T value{};
  read(answer, value);
  RETURN_IF_ERROR(answer.status());
  return value;
}

// Reads the object at `path` of an answer. `what` names the answer in errors, `part` the object.
template <typename T>
absl::StatusOr<T> ParseObject(absl::string_view body, absl::string_view what,
                              absl::string_view path, absl::string_view part,
                              absl::FunctionRef<void(JsonReader& object, T& value)> read) {
  return ParseAnswer<T>(body, what, [&](JsonReader& answer, T& value) {
    answer.RequireObject(path, part, [&](JsonReader& object) { read(object, value); });
  });
}

// Reads the rows of the array at `path` of an answer. `what` names the answer in errors, `part` a
// row.
template <typename Row>
absl::StatusOr<std::vector<Row>> ParseRows(
    absl::string_view body, absl::string_view what, absl::string_view path, absl::string_view part,
    absl::FunctionRef<void(JsonReader& row, Row& value)> read) {
  return ParseAnswer<std::vector<Row>>(body, what, [&](JsonReader& answer, std::vector<Row>& rows) {
    answer.RequireRows(path, part, read, rows);
  });
}

// Reads an answer that may be anything. A field of another type counts as missing.
template <typename T>
T ParseWhatFits(absl::string_view body,
                absl::FunctionRef<void(JsonReader& answer, T& value)> read) {
  T value{};
  if (const absl::StatusOr<nlohmann::json> json = ParseJson(body); json.ok()) {
    JsonReader answer(*json, "answer");
    read(answer, value);
  }
  return value;
}

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_REST_JSON_READER_H_
