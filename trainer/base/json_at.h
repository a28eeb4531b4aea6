// A value of a JSON document together with its place in it, so that every complaint about a
// document can name the place: pre_tokenizer.pretokenizers[2].pattern.

#ifndef TRAINER_BASE_JSON_AT_H_
#define TRAINER_BASE_JSON_AT_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace gpuctl::trainer {

// Points into the document, which must outlive it. All functions throw Error(kBadData) that names
// the place when the value is missing or has another type; null counts as missing.
class JsonAt {
 public:
  // `doing` begins every message, such as "read PATH".
  JsonAt(const nlohmann::json& value, std::string place, std::string doing = "")
      : value_(&value), place_(std::move(place)), doing_(std::move(doing)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& place() const { return place_; }

  // A key of an object.
  JsonAt At(const std::string& key) const;
  // Absent when the key is missing.
  std::optional<JsonAt> Find(const std::string& key) const;
  // An element of an array, with the array's size.
  JsonAt At(size_t index) const;
  size_t Size() const;

  std::string Text() const;
  bool Bool() const;
  // A whole number from 0 to `most`.
  int64_t Number(int64_t most) const;
  // A finite number.
  double Real() const;
  // The value of a key, or `other` when it is missing.
  bool BoolOr(const std::string& key, bool other) const;
  std::string TextOr(const std::string& key, const std::string& other) const;

  // Throws Error(kBadData): "DOING: PLACE: `what`".
  [[noreturn]] void Refuse(const std::string& what, const std::string& hint = "") const;

 private:
  const nlohmann::json* value_;
  std::string place_;
  std::string doing_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_JSON_AT_H_
