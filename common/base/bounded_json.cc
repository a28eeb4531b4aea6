#include "common/base/bounded_json.h"

namespace gpuctl {

bool IsWithin(absl::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) return false;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limits.depth) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

namespace {

template <typename Json>
Json ParseWithin(absl::string_view text, const JsonLimits& limits) {
  if (!IsWithin(text, limits)) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

}  // namespace

nlohmann::json ParseBoundedJson(absl::string_view text, const JsonLimits& limits) {
  return ParseWithin<nlohmann::json>(text, limits);
}

nlohmann::ordered_json ParseBoundedOrderedJson(absl::string_view text, const JsonLimits& limits) {
  return ParseWithin<nlohmann::ordered_json>(text, limits);
}

}  // namespace gpuctl
