#include "trainer/base/json_object.h"

#include <algorithm>
#include <set>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {

using nlohmann::json;

namespace {

// Returns the line and the column of the `number`-th byte, both from 1.
std::string PlaceOf(const std::string& text, size_t number) {
  const size_t at = std::min(number == 0 ? 0 : number - 1, text.size());
  const auto begin = text.begin(), end = begin + static_cast<ptrdiff_t>(at);
  const auto lines = std::count(begin, end, '\n');
  const size_t newline = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  const size_t column = newline == std::string::npos ? at + 1 : at - newline;
  return Format("line %lld, column %zu", static_cast<long long>(lines) + 1, column);
}

}  // namespace

json ParseJsonObject(const std::string& text, const std::string& doing, size_t deepest,
                     bool comments) {
  std::vector<std::set<std::string>> keys;  // of each open object
  std::string repeated;
  bool repeats = false;
  size_t depth = 0;
  const auto refuse = [&](const std::string& why) {
    throw DataError(Printable(doing + ": " + why));
  };
  const auto watch = [&](int, json::parse_event_t event, json& value) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys.emplace_back();
        [[fallthrough]];
      case json::parse_event_t::array_start:
        // Such a document would need many times its size, so it is not read to its end.
        if (++depth > deepest) refuse("nested too deeply");
        break;
      case json::parse_event_t::object_end:
        keys.pop_back();
        [[fallthrough]];
      case json::parse_event_t::array_end:
        --depth;
        break;
      case json::parse_event_t::key: {
        const auto& name = value.get_ref<const std::string&>();
        if (!keys.back().insert(name).second && !repeats) {
          repeats = true;
          repeated = name;
        }
        break;
      }
      default:
        break;
    }
    return true;
  };
  json parsed;
  try {
    parsed = json::parse(text, watch, /*allow_exceptions=*/true, comments);
  } catch (const json::parse_error& error) {
    refuse("not valid JSON: see " + PlaceOf(text, error.byte));
  } catch (const json::exception&) {  // a number that is too large
    refuse("not valid JSON");
  }
  if (!parsed.is_object()) refuse("not a JSON object");
  if (repeats) refuse("\"" + repeated + "\" is there twice");
  return parsed;
}

}  // namespace gpuctl::trainer
