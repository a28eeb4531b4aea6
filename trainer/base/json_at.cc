#include "trainer/base/json_at.h"

#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {

JsonAt JsonAt::At(const std::string& key) const {
  const std::optional<JsonAt> found = Find(key);
  if (!found) Refuse("\"" + key + "\" is missing");
  return *found;
}

std::optional<JsonAt> JsonAt::Find(const std::string& key) const {
  if (!value_->is_object()) Refuse("must be an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonAt(*found, place_.empty() ? key : place_ + "." + key, doing_);
}

JsonAt JsonAt::At(size_t index) const {
  if (index >= Size()) Refuse("has too few elements");
  return JsonAt((*value_)[index], place_ + "[" + std::to_string(index) + "]", doing_);
}

size_t JsonAt::Size() const {
  if (!value_->is_array()) Refuse("must be a list");
  return value_->size();
}

std::string JsonAt::Text() const {
  if (!value_->is_string()) Refuse("must be a text");
  return value_->get<std::string>();  // the parser takes UTF-8 only
}

bool JsonAt::Bool() const {
  if (!value_->is_boolean()) Refuse("must be true or false");
  return value_->get<bool>();
}

int64_t JsonAt::Number(int64_t most) const {
  // Those above the largest int64_t are unsigned.
  const bool fits = value_->is_number_unsigned()
                        ? value_->get<uint64_t>() <= static_cast<uint64_t>(most)
                        : value_->is_number_integer() && value_->get<int64_t>() >= 0 &&
                              value_->get<int64_t>() <= most;
  if (!fits) Refuse("must be a whole number from 0 to " + std::to_string(most));
  return value_->get<int64_t>();
}

double JsonAt::Real() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) Refuse("must be a number");
  return value_->get<double>();
}

bool JsonAt::BoolOr(const std::string& key, bool other) const {
  const std::optional<JsonAt> found = Find(key);
  return found ? found->Bool() : other;
}

std::string JsonAt::TextOr(const std::string& key, const std::string& other) const {
  const std::optional<JsonAt> found = Find(key);
  return found ? found->Text() : other;
}

void JsonAt::Refuse(const std::string& what, const std::string& hint) const {
  const std::string doing = doing_.empty() ? "" : doing_ + ": ";
  const std::string place = place_.empty() ? "" : place_ + ": ";
  throw DataError(Printable(doing + place + what), hint);
}

}  // namespace gpuctl::trainer
