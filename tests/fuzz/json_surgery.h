// Changes a JSON document as no flip of bytes does: values of other types and of extreme sizes,
// values in the place of others, keys left out.
#ifndef GPUCTL_TESTS_FUZZ_JSON_SURGERY_H_
#define GPUCTL_TESTS_FUZZ_JSON_SURGERY_H_

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace gpuctl {

inline nlohmann::json OddValue(std::mt19937_64& random) {
  static const nlohmann::json kOdd = {nullptr,
                                      true,
                                      0,
                                      -1,
                                      1.5,
                                      1e300,
                                      -1e-300,
                                      4096,
                                      65537,
                                      INT32_MAX,
                                      int64_t{1} << 53,
                                      INT64_MAX,
                                      INT64_MIN,
                                      UINT64_MAX,
                                      "",
                                      "x",
                                      "\x1b[31m",
                                      "../../x",
                                      std::string(3000, 'a'),
                                      nlohmann::json::array(),
                                      nlohmann::json::object(),
                                      {{nullptr}},
                                      {{"x", {{"", 1}}}}};
  return kOdd[random() % kOdd.size()];
}

// Returns a value somewhere in the document, the document itself if it is no list or object.
inline nlohmann::json& SomeValue(nlohmann::json& document, std::mt19937_64& random) {
  nlohmann::json* at = &document;
  while (at->is_structured() && !at->empty()) {
    at = &*std::next(at->begin(), static_cast<int64_t>(random() % at->size()));
    if (random() % 5 < 2) break;
  }
  return *at;
}

// Returns whether `input` is JSON, and changes it then.
inline bool ChangeJson(std::string& input, std::mt19937_64& random) {
  nlohmann::json document = nlohmann::json::parse(input, nullptr, /*allow_exceptions=*/false);
  if (!document.is_structured() || document.empty()) return false;
  nlohmann::json& value = SomeValue(document, random);
  switch (random() % 4) {
    case 0:
      if (value.is_structured() && !value.empty()) {
        value.erase(std::next(value.begin(), static_cast<int64_t>(random() % value.size())));
        break;
      }
      [[fallthrough]];
    case 1: {
      const nlohmann::json other = SomeValue(document, random);
      value = other;
      break;
    }
    case 2:
      if (value.is_object()) {
        value[random() % 2 == 0 ? "" : "x\n"] = OddValue(random);
        break;
      }
      [[fallthrough]];
    default:
      value = OddValue(random);
  }
  input = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return true;
}

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_FUZZ_JSON_SURGERY_H_
