#include "client/config/toml_text.h"

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

// toml++ 3.3 asserts where some malformed text, like a line "[[[", needs an error, and takes its
// assertions for granted in a release. Here they are exceptions, which end in Parse.
namespace gpuctl {
[[noreturn]] inline void ThrowMalformedToml() { throw std::logic_error("malformed TOML"); }
}  // namespace gpuctl
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) ((expr) ? static_cast<void>(0) : ::gpuctl::ThrowMalformedToml())
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

using Json = nlohmann::json;

// A value, and the end of its text.
struct Place {
  TomlValue value;
  toml::source_region region;
};

std::vector<std::string> LinesOf(absl::string_view text) { return absl::StrSplit(text, '\n'); }

// Returns the byte of `line` at the `column`-th character, from 1, as toml++ counts.
size_t ByteOf(absl::string_view line, int column) {
  size_t at = 0;
  for (int i = 1; i < column && at < line.size(); ++i) {
    ++at;
    while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0U) == 0x80) ++at;
  }
  return at;
}

std::optional<Json> ScalarOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return Json(text->get());
  if (const auto* number = node.as_integer()) return Json(number->get());
  if (const auto* number = node.as_floating_point()) return Json(number->get());
  if (const auto* truth = node.as_boolean()) return Json(truth->get());
  return std::nullopt;
}

class Collector {
 public:
  Collector(absl::string_view text, absl::string_view file) : text_(text), file_(file) {}

  absl::Status Add(const std::string& key, const toml::node& node) {
    if (const toml::table* table = node.as_table()) {
      for (const auto& [name, child] : *table) {
        const std::string full =
            key.empty() ? std::string(name.str()) : absl::StrCat(key, ".", std::string(name.str()));
        name_ = name.source().begin;
        RETURN_IF_ERROR(Add(full, child));
      }
      return absl::OkStatus();
    }
    const auto begin = node.source().begin;
    Place place;
    place.value = {key,
                   Json(),
                   static_cast<int>(begin.line),
                   static_cast<int>(begin.column),
                   static_cast<int>(name_.line),
                   static_cast<int>(name_.column)};
    place.region = node.source();
    if (const toml::array* list = node.as_array()) {
      place.value.value = Json::array();
      for (const toml::node& element : *list) {
        const std::optional<Json> scalar = ScalarOf(element);
        if (!scalar.has_value()) return Wrong(key, element);
        place.value.value.push_back(*scalar);
      }
    } else if (const std::optional<Json> scalar = ScalarOf(node); scalar.has_value()) {
      place.value.value = *scalar;
    } else {
      return Wrong(key, node);
    }
    found_.push_back(std::move(place));
    return absl::OkStatus();
  }

  std::vector<Place> Take() {
    std::sort(found_.begin(), found_.end(), [](const Place& a, const Place& b) {
      return std::pair(a.value.line, a.value.column) < std::pair(b.value.line, b.value.column);
    });
    return std::move(found_);
  }

 private:
  absl::Status Wrong(const std::string& key, const toml::node& node) const {
    const auto begin = node.source().begin;
    return TomlError(
        text_, file_, static_cast<int>(begin.line), static_cast<int>(begin.column),
        absl::StrCat(key, " must be a text, a number, true, false, or a list of them"));
  }

  const absl::string_view text_;
  const absl::string_view file_;
  toml::source_position name_;  // of the value that is added
  std::vector<Place> found_;
};

// Returns the number of the first line that begins like a table's header and has no name.
int LineOfBadHeader(absl::string_view text) {
  int number = 0;
  for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
    ++number;
    absl::string_view rest = absl::StripLeadingAsciiWhitespace(whole);
    if (!absl::ConsumePrefix(&rest, "[")) continue;
    absl::ConsumePrefix(&rest, "[");
    rest = absl::StripLeadingAsciiWhitespace(rest);
    const bool named =
        !rest.empty() && (absl::ascii_isalnum(static_cast<unsigned char>(rest[0])) ||
                          absl::string_view("_-\"']").find(rest[0]) != absl::string_view::npos);
    if (!named) return number;
  }
  return 1;
}

absl::StatusOr<std::vector<Place>> Places(absl::string_view text, absl::string_view file) {
  toml::parse_result parsed;
  try {
    parsed = toml::parse(std::string_view(text.data(), text.size()));
  } catch (const std::logic_error&) {
    return TomlError(text, file, LineOfBadHeader(text), 1,
                     "a line that begins with [ is the header of a table, like [limits]");
  }
  if (!parsed) {
    const auto begin = parsed.error().source().begin;
    const std::string_view why = parsed.error().description();
    return TomlError(text, file, static_cast<int>(begin.line), static_cast<int>(begin.column),
                     absl::string_view(why.data(), why.size()));
  }
  Collector collector(text, file);
  RETURN_IF_ERROR(collector.Add("", parsed.table()));
  return collector.Take();
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      absl::StrAppendFormat(&quoted, "\\u%04X", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string Literal(const Json& value) {
  if (value.is_array()) {
    std::vector<std::string> parts;
    for (const Json& element : value) parts.push_back(Literal(element));
    return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
  }
  return value.is_string() ? Quoted(value.get<std::string>()) : value.dump();
}

// True when `text` has the values of `before`, but `value` for `key` (null: none).
bool IsOnlyChange(const std::vector<Place>& before, const std::vector<Place>& after,
                  const std::string& key, const Json& value) {
  const auto map_of = [](const std::vector<Place>& places) {
    std::map<std::string, Json> map;
    for (const Place& place : places) map[place.value.key] = place.value.value;
    return map;
  };
  std::map<std::string, Json> wanted = map_of(before);
  if (value.is_null()) {
    wanted.erase(key);
  } else {
    wanted[key] = value;
  }
  return wanted == map_of(after);
}

absl::StatusOr<std::string> Verified(std::string text, absl::string_view file,
                                     const std::vector<Place>& before, const std::string& key,
                                     const Json& value) {
  const absl::StatusOr<std::vector<Place>> after = Places(text, file);
  if (after.ok() && IsOnlyChange(before, *after, key, value)) return text;
  return WithHint(absl::FailedPreconditionError(absl::StrCat(file, ": gpuctl cannot change ", key,
                                                             " there without losing something")),
                  absl::StrCat("edit ", file, " with an editor"));
}

// True when `line` is the header of `table`.
bool IsHeader(absl::string_view line, const std::string& table) {
  absl::string_view rest = absl::StripAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&rest, "[")) return false;
  rest = absl::StripLeadingAsciiWhitespace(rest);
  if (!absl::ConsumePrefix(&rest, table)) return false;
  return absl::StartsWith(absl::StripLeadingAsciiWhitespace(rest), "]");
}

// Returns the number of lines before the place for a new value of `table` ("" for none), and
// whether the value's key there has the table's name.
std::optional<std::pair<size_t, bool>> PlaceFor(const std::vector<std::string>& lines,
                                                const std::vector<Place>& places,
                                                const std::string& table) {
  size_t first_header = lines.size();
  std::optional<size_t> header;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!absl::StartsWith(absl::StripLeadingAsciiWhitespace(lines[i]), "[")) continue;
    // A line of a list begins so, too.
    bool inside = false;
    for (const Place& place : places) {
      inside = inside || (static_cast<size_t>(place.value.line) <= i &&
                          static_cast<size_t>(place.region.end.line) >= i + 1);
    }
    if (inside) continue;
    first_header = std::min(first_header, i);
    if (!table.empty() && IsHeader(lines[i], table)) header = i;
  }
  std::optional<size_t> last;
  for (const Place& place : places) {
    const std::pair<std::string, std::string> parts = {
        place.value.key.substr(0, place.value.key.rfind('.')), place.value.key};
    const bool top = place.value.key.find('.') == std::string::npos;
    if (table.empty() ? top : !top && parts.first == table) last = place.region.end.line;
  }
  if (header.has_value()) return std::pair(std::max(*header + 1, last.value_or(0)), false);
  if (last.has_value()) return std::pair(*last, true);
  if (table.empty()) return std::pair(first_header, false);
  return std::nullopt;
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text = absl::StrJoin(lines, "\n");
  while (absl::EndsWith(text, "\n\n")) text.pop_back();
  if (!text.empty() && text.back() != '\n') text += '\n';
  return text == "\n" ? "" : text;
}

}  // namespace

absl::Status TomlError(absl::string_view text, absl::string_view file, int line, int column,
                       absl::string_view message, bool show_line) {
  absl::Status status =
      absl::InvalidArgumentError(absl::StrCat(file, ":", line, ":", column, ": ", message));
  const std::vector<std::string> lines = LinesOf(text);
  if (!show_line || line < 1 || static_cast<size_t>(line) > lines.size()) return status;
  const std::string& shown = lines[static_cast<size_t>(line) - 1];
  if (absl::StripAsciiWhitespace(shown).empty()) return status;
  return WithExcerpt(std::move(status), {line, static_cast<int>(ByteOf(shown, column)) + 1, shown});
}

absl::StatusOr<std::vector<TomlValue>> ReadToml(absl::string_view text, absl::string_view file) {
  ASSIGN_OR_RETURN(const std::vector<Place> places, Places(text, file));
  std::vector<TomlValue> values;
  for (const Place& place : places) values.push_back(place.value);
  return values;
}

absl::StatusOr<std::string> SetInToml(absl::string_view text, absl::string_view file,
                                      const std::string& key, const Json& value) {
  ASSIGN_OR_RETURN(const std::vector<Place> places, Places(text, file));
  std::vector<std::string> lines = LinesOf(text);
  for (const Place& place : places) {
    if (place.value.key != key) continue;
    const size_t first = place.region.begin.line - 1, last = place.region.end.line - 1;
    if (last >= lines.size()) break;
    const std::string head =
        lines[first].substr(0, ByteOf(lines[first], static_cast<int>(place.region.begin.column)));
    const std::string tail =
        lines[last].substr(ByteOf(lines[last], static_cast<int>(place.region.end.column)));
    lines[first] = absl::StrCat(head, Literal(value), tail);
    lines.erase(lines.begin() + static_cast<int64_t>(first) + 1,
                lines.begin() + static_cast<int64_t>(last) + 1);
    return Verified(Joined(lines), file, places, key, value);
  }
  const size_t dot = key.rfind('.');
  const std::string table = dot == std::string::npos ? "" : key.substr(0, dot);
  const std::string leaf = dot == std::string::npos ? key : key.substr(dot + 1);
  const std::optional<std::pair<size_t, bool>> at = PlaceFor(lines, places, table);
  if (at.has_value()) {
    if (at->first == lines.size() && lines.back().empty()) lines.pop_back();
    lines.insert(lines.begin() + static_cast<int64_t>(std::min(at->first, lines.size())),
                 absl::StrCat(at->second ? key : leaf, " = ", Literal(value)));
    return Verified(Joined(lines), file, places, key, value);
  }
  std::string changed = Joined(lines);
  absl::StrAppend(&changed, changed.empty() ? "" : "\n", "[", table, "]\n", leaf, " = ",
                  Literal(value), "\n");
  return Verified(std::move(changed), file, places, key, value);
}

absl::StatusOr<std::string> RemoveFromToml(absl::string_view text, absl::string_view file,
                                           const std::string& key) {
  ASSIGN_OR_RETURN(const std::vector<Place> places, Places(text, file));
  std::vector<std::string> lines = LinesOf(text);
  for (const Place& place : places) {
    if (place.value.key != key) continue;
    lines.erase(lines.begin() + static_cast<int64_t>(place.region.begin.line) - 1,
                lines.begin() + static_cast<int64_t>(place.region.end.line));
    return Verified(Joined(lines), file, places, key, Json());
  }
  return absl::NotFoundError(absl::StrCat(file, " does not set ", key));
}

}  // namespace gpuctl
