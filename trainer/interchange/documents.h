// Reads JSON documents that others wrote.

#ifndef TRAINER_INTERCHANGE_DOCUMENTS_H_
#define TRAINER_INTERCHANGE_DOCUMENTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

namespace gpuctl::trainer {

// Parses an object. `what` names the file in messages. Throws Error(kBadData) when it is not valid,
// no object, nested more than 64 levels deep, or when an object in it has a key twice.
nlohmann::json ParseDocument(const std::string& text, const std::string& what);

// Does the same for a file. Throws Error(kBadData) also when it is missing, no regular file, or
// above `most` bytes; Error(kIo).
nlohmann::json ReadDocument(const std::string& path, uint64_t most);

// A value with its place, for messages: "PATH: model.vocab". Points into the document. All
// functions throw Error(kBadData) that names the place when the value is missing or of another
// type; null counts as missing.
class Part {
 public:
  Part(const nlohmann::json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  std::optional<Part> Find(const std::string& key) const;
  Part At(const std::string& key) const;
  Part At(size_t index) const;
  size_t Size() const;  // of a list
  std::string Text() const;
  bool Flag() const;
  // A whole number from 0 to `most`.
  int64_t Count(int64_t most) const;
  // A finite number.
  double Real() const;
  // The value of a key, or `other` when it is missing.
  std::string TextOr(const std::string& key, const std::string& other) const;
  bool FlagOr(const std::string& key, bool other) const;
  // Throws Error(kBadData): "read PATH: KEY.KEY: `why`".
  [[noreturn]] void Refuse(const std::string& why, const std::string& hint = "") const;

 private:
  Part(const nlohmann::json& value, std::string path, std::string place)
      : value_(&value), path_(std::move(path)), place_(std::move(place)) {}

  const nlohmann::json* value_;
  std::string path_;
  std::string place_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_INTERCHANGE_DOCUMENTS_H_
