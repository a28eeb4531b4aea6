#include "trainer/interchange/documents.h"

#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_object.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {

using nlohmann::json;

json ParseDocument(const std::string& text, const std::string& what) {
  return ParseJsonObject(text, "read " + what);
}

json ReadDocument(const std::string& path, uint64_t most) {
  if (!IsFile(path)) throw DataError("read " + path + ": no such file");
  if (FileSize(path) > most) {
    throw DataError("read " + path + ": above " + std::to_string(most >> 20) + " MiB");
  }
  return ParseDocument(ReadWholeFile(path), path);
}

std::optional<Part> Part::Find(const std::string& key) const {
  if (!value_->is_object()) Refuse("must be an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return Part(*found, path_, place_.empty() ? key : place_ + "." + key);
}

Part Part::At(const std::string& key) const {
  const std::optional<Part> found = Find(key);
  if (!found) Refuse("\"" + key + "\" is missing");
  return *found;
}

Part Part::At(size_t index) const {
  if (index >= Size()) Refuse("has too few elements");
  return Part((*value_)[index], path_, place_ + "[" + std::to_string(index) + "]");
}

size_t Part::Size() const {
  if (!value_->is_array()) Refuse("must be a list");
  return value_->size();
}

std::string Part::Text() const {
  if (!value_->is_string()) Refuse("must be a text");
  return value_->get<std::string>();
}

bool Part::Flag() const {
  if (!value_->is_boolean()) Refuse("must be true or false");
  return value_->get<bool>();
}

int64_t Part::Count(int64_t most) const {
  // Those above the largest int64_t are unsigned.
  const bool fits = value_->is_number_unsigned()
                        ? value_->get<uint64_t>() <= static_cast<uint64_t>(most)
                        : value_->is_number_integer() && value_->get<int64_t>() >= 0 &&
                              value_->get<int64_t>() <= most;
  if (!fits) Refuse("must be a whole number from 0 to " + std::to_string(most));
  return value_->get<int64_t>();
}

double Part::Real() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) Refuse("must be a number");
  return value_->get<double>();
}

std::string Part::TextOr(const std::string& key, const std::string& other) const {
  const std::optional<Part> found = Find(key);
  return found ? found->Text() : other;
}

bool Part::FlagOr(const std::string& key, bool other) const {
  const std::optional<Part> found = Find(key);
  return found ? found->Flag() : other;
}

void Part::Refuse(const std::string& why, const std::string& hint) const {
  const std::string place = place_.empty() ? "" : place_ + ": ";
  throw DataError(Printable("read " + path_ + ": " + place + why), hint);
}

}  // namespace gpuctl::trainer
