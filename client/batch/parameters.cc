#include "client/batch/parameters.h"

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr size_t kLongestName = 64;
constexpr size_t kLongestValue = 4096;
constexpr char kByteOrderMark[] = "\xef\xbb\xbf";
// A batch draws from at most so many points.
constexpr uint64_t kMostPoints = uint64_t{1} << 62;
// Variables that a job, its shell or its libraries need as they are.
constexpr std::array<const char*, 18> kTakenVariables = {
    "PATH",     "HOME",       "USER",        "LOGNAME",     "SHELL",      "PWD",
    "TMPDIR",   "LANG",       "TERM",        "IFS",         "HOSTNAME",   "CUDA_VISIBLE_DEVICES",
    "BASH_ENV", "PYTHONPATH", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "WORLD_SIZE"};

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::Status CheckName(absl::string_view name) {
  bool good = !name.empty() && name.size() <= kLongestName &&
              (name[0] == '_' || absl::ascii_isalpha(static_cast<unsigned char>(name[0])));
  for (const char c : name) {
    good =
        good && (absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("_-.", c));
  }
  if (good) return absl::OkStatus();
  return Bad(absl::StrCat("\"", name.substr(0, kLongestName),
                          "\" cannot name a parameter: use letters, digits, '_', '-' and '.', "
                          "beginning with a letter"));
}

absl::Status CheckValue(absl::string_view name, absl::string_view value) {
  if (value.empty()) return Bad(absl::StrCat(name, " has an empty value"));
  if (value.size() > kLongestValue) {
    return Bad(absl::StrCat("a value of ", name, " is longer than ", kLongestValue, " bytes"));
  }
  for (const char c : value) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      return Bad(absl::StrCat("a value of ", name, " has a control character"));
    }
  }
  return absl::OkStatus();
}

// One line of CSV, which may span several lines of the file.
struct CsvRecord {
  int line = 0;
  std::vector<std::string> cells;
};

class CsvReader {
 public:
  explicit CsvReader(absl::string_view text) : text_(text) {
    if (absl::StartsWith(text_, kByteOrderMark)) text_.remove_prefix(3);
  }

  bool AtEnd() const { return at_ == text_.size(); }

  absl::StatusOr<CsvRecord> Next() {
    CsvRecord record;
    record.line = line_;
    while (true) {
      ASSIGN_OR_RETURN(record.cells.emplace_back(), Cell());
      if (AtEnd()) return record;
      const char c = text_[at_++];
      if (c == ',') continue;
      if (c == '\r' && !AtEnd() && text_[at_] == '\n') ++at_;
      ++line_;
      return record;
    }
  }

 private:
  absl::StatusOr<std::string> Cell() {
    if (AtEnd() || text_[at_] != '"') {
      const size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
      const absl::string_view cell = text_.substr(at_, end - at_);
      at_ = end;
      return std::string(absl::StripAsciiWhitespace(cell));
    }
    const int began = line_;
    std::string cell;
    for (++at_; !AtEnd(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        cell += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        cell += text_[at_++];
      } else {
        ++at_;
        if (AtEnd() || absl::StrContains(",\r\n", text_[at_])) return cell;
        return Bad(absl::StrCat("line ", line_, ": there is text behind a closing quote"));
      }
    }
    return Bad(absl::StrCat("line ", began, ": a quote is not closed"));
  }

  absl::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

bool IsEmpty(const CsvRecord& record) {
  return record.cells.size() == 1 && record.cells[0].empty();
}

// Returns the number of points; kMostPoints when there are more.
uint64_t CountPoints(uint64_t rows, const std::vector<ParameterAxis>& axes) {
  uint64_t points = rows;
  for (const ParameterAxis& axis : axes) {
    if (points >= kMostPoints / axis.values.size()) return kMostPoints;
    points *= axis.values.size();
  }
  return points;
}

Parameters PointAt(uint64_t index, const std::vector<Parameters>& rows,
                   const std::vector<ParameterAxis>& axes) {
  std::vector<std::pair<std::string, std::string>> of_grid;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    of_grid.emplace_back(axis->name, axis->values[index % axis->values.size()]);
    index /= axis->values.size();
  }
  Parameters point = rows[index];
  point.insert(point.end(), of_grid.rbegin(), of_grid.rend());
  return point;
}

// Draws numbers below `points`, all different. The generator and what is made of its numbers are
// the same everywhere, unlike the library's distributions.
std::vector<uint64_t> Draw(uint64_t points, const Sampling& sampling) {
  std::mt19937_64 random(sampling.seed);
  const uint64_t fair = UINT64_MAX - UINT64_MAX % points;
  std::vector<uint64_t> drawn;
  std::set<uint64_t> seen;
  while (drawn.size() < static_cast<size_t>(sampling.count)) {
    const uint64_t number = random();
    if (number >= fair || !seen.insert(number % points).second) continue;
    drawn.push_back(number % points);
  }
  return drawn;
}

}  // namespace

namespace {

// Reads a whole number as a person writes it: no sign but '-', no leading zeros.
std::optional<int64_t> WholeNumber(absl::string_view text) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || absl::StrCat(number) != text) return std::nullopt;
  return number;
}

// Reads "0..5" or, with `between` "-", "0-5"; nothing for a text that is no such range.
std::optional<std::pair<int64_t, int64_t>> RangeOf(absl::string_view text,
                                                   absl::string_view between) {
  const size_t at = text.find(between, 1);
  if (at == text.npos) return std::nullopt;
  const std::optional<int64_t> first = WholeNumber(text.substr(0, at));
  const std::optional<int64_t> last = WholeNumber(text.substr(at + between.size()));
  if (!first.has_value() || !last.has_value()) return std::nullopt;
  return std::make_pair(*first, *last);
}

// Refuses what Slurm takes for a range.
absl::Status CheckNoOtherRange(const std::vector<std::string>& values) {
  size_t numbers = 0;
  std::string found;
  for (const std::string& value : values) {
    // "0-5%2": two at once.
    const auto range = RangeOf(absl::string_view(value).substr(0, value.find('%')), "-");
    if (WholeNumber(value).has_value()) ++numbers;
    if (range.has_value() && range->first >= 0 && range->first < range->second) found = value;
  }
  if (found.empty() || (values.size() > 1 && numbers == 0)) return absl::OkStatus();
  const auto range = *RangeOf(absl::string_view(found).substr(0, found.find('%')), "-");
  return Bad(absl::StrCat("\"", found, "\" is one value and no range; ", range.first, "..",
                          range.second, " stands for all from ", range.first, " to ",
                          range.second));
}

// Refuses "log(1e-5,1e-3)", a distribution of other tools that the comma divides.
absl::Status CheckNoFunction(const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    const auto opened = std::count(value.begin(), value.end(), '(');
    if (opened == std::count(value.begin(), value.end(), ')')) continue;
    return Bad(absl::StrCat("\"", value,
                            "\" has a part of a pair of parentheses: there are no "
                            "distributions; write the values one by one, and --sample draws some"));
  }
  return absl::OkStatus();
}

// Returns the values of an axis, with ranges written out.
absl::StatusOr<std::vector<std::string>> ValuesOf(absl::string_view text) {
  const std::vector<std::string> given = absl::StrSplit(text, ',');
  RETURN_IF_ERROR(CheckNoOtherRange(given));
  RETURN_IF_ERROR(CheckNoFunction(given));
  std::vector<std::string> values;
  for (const std::string& value : given) {
    const auto range = RangeOf(value, "..");
    if (!range.has_value()) {
      values.push_back(value);
      continue;
    }
    const auto& [first, last] = *range;
    if (first > last) return Bad(absl::StrCat(value, " begins above its end"));
    // The difference of two numbers may be no such number.
    if (static_cast<uint64_t>(last) - static_cast<uint64_t>(first) >= uint64_t{kMostEntries}) {
      return Bad(absl::StrCat(value, " has more than ", kMostEntries, " values"));
    }
    for (int64_t number = first; number < last; ++number) values.push_back(absl::StrCat(number));
    values.push_back(absl::StrCat(last));
  }
  return values;
}

}  // namespace

absl::StatusOr<ParameterAxis> ParseAxis(absl::string_view text) {
  const size_t equals = text.find('=');
  if (equals == text.npos) {
    return Bad(absl::StrCat("\"", text, "\" is not NAME=VALUE,VALUE"));
  }
  ParameterAxis axis;
  axis.name = std::string(text.substr(0, equals));
  RETURN_IF_ERROR(CheckName(axis.name));
  ASSIGN_OR_RETURN(axis.values, ValuesOf(text.substr(equals + 1)));
  std::set<std::string> seen;
  for (const std::string& value : axis.values) {
    RETURN_IF_ERROR(CheckValue(axis.name, value));
    if (!seen.insert(value).second) {
      return Bad(absl::StrCat(axis.name, " has the value ", value, " twice"));
    }
  }
  return axis;
}

absl::StatusOr<std::vector<Parameters>> ParseParameterCsv(absl::string_view text) {
  CsvReader reader(text);
  CsvRecord names;
  std::vector<Parameters> rows;
  while (!reader.AtEnd()) {
    ASSIGN_OR_RETURN(CsvRecord record, reader.Next());
    if (IsEmpty(record)) continue;
    if (names.cells.empty()) {
      for (const std::string& name : record.cells) {
        RETURN_IF_ERROR(Annotate(CheckName(name), absl::StrCat("line ", record.line)));
      }
      names = std::move(record);
      continue;
    }
    if (record.cells.size() != names.cells.size()) {
      return Bad(absl::StrCat("line ", record.line, " has ", record.cells.size(),
                              " values, and the first line names ", names.cells.size(),
                              " parameters"));
    }
    Parameters& row = rows.emplace_back();
    for (size_t i = 0; i < names.cells.size(); ++i) {
      RETURN_IF_ERROR(Annotate(CheckValue(names.cells[i], record.cells[i]),
                               absl::StrCat("line ", record.line)));
      row.emplace_back(names.cells[i], std::move(record.cells[i]));
    }
  }
  if (names.cells.empty()) return Bad("it is empty; its first line names the parameters");
  if (rows.empty()) return Bad("it has names in its first line, and no line of values");
  return rows;
}

absl::StatusOr<std::vector<Parameters>> ExpandGrid(const std::vector<Parameters>& rows,
                                                   const std::vector<ParameterAxis>& axes,
                                                   const Sampling& sampling) {
  const std::vector<Parameters> all = rows.empty() ? std::vector<Parameters>(1) : rows;
  std::set<std::string> names;
  const auto take = [&names](const std::string& name) {
    return names.insert(name).second ? absl::OkStatus()
                                     : Bad(absl::StrCat("parameter ", name, " is there twice"));
  };
  for (const auto& [name, value] : all.front()) RETURN_IF_ERROR(take(name));
  for (const ParameterAxis& axis : axes) RETURN_IF_ERROR(take(axis.name));
  const uint64_t points = CountPoints(all.size(), axes);
  const uint64_t wanted = sampling.count > 0 ? static_cast<uint64_t>(sampling.count) : points;
  if (wanted > points) {
    return Bad(absl::StrCat("--sample ", sampling.count, ": there are only ", points,
                            points == 1 ? " combination" : " combinations"));
  }
  if (wanted > kMostEntries) {
    return Bad(absl::StrCat(points == kMostPoints ? "very many" : absl::StrCat(wanted),
                            " runs are more than ", kMostEntries,
                            ", the most of one batch; --sample N draws some"));
  }
  std::vector<Parameters> expanded;
  if (sampling.count > 0) {
    for (const uint64_t index : Draw(points, sampling)) {
      expanded.push_back(PointAt(index, all, axes));
    }
  } else {
    for (uint64_t i = 0; i < points; ++i) expanded.push_back(PointAt(i, all, axes));
  }
  return expanded;
}

std::string VariableOf(absl::string_view parameter) {
  std::string variable = absl::AsciiStrToUpper(parameter);
  std::replace_if(
      variable.begin(), variable.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return variable;
}

absl::Status CheckParameterNames(const Parameters& parameters) {
  std::set<std::string> variables;
  for (const auto& [name, value] : parameters) {
    const std::string variable = VariableOf(name);
    const bool taken = absl::StartsWith(variable, "GPUCTL_") || absl::StartsWith(variable, "LD_") ||
                       std::find(kTakenVariables.begin(), kTakenVariables.end(), variable) !=
                           kTakenVariables.end();
    if (taken) {
      return Bad(absl::StrCat("parameter ", name, " would replace ", variable,
                              " in the job's environment; give it another name"));
    }
    if (!variables.insert(variable).second) {
      return Bad(absl::StrCat("two parameters would be ", variable,
                              " in the job's environment; give one another name"));
    }
  }
  return absl::OkStatus();
}

std::string DescribeParameters(const Parameters& parameters) {
  return absl::StrJoin(parameters, " ", absl::PairFormatter("="));
}

}  // namespace gpuctl
