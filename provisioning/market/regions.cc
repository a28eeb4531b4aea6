#include "provisioning/market/regions.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpuctl {
namespace {

struct Group {
  const char* name;
  const char* countries;
};

constexpr char kUnion[] =
    "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK";
constexpr Group kGroups[] = {
    {"EU", ""},
    {"EEA", "IS LI NO"},
    {"EUROPE", "IS LI NO GB CH UA RS MD AL BA ME MK"},
    {"NORTH-AMERICA", "US CA MX"},
    {"ASIA", "JP KR CN HK TW SG IN TH VN MY ID PH IL AE SA QA TR KZ"},
};

// Country names that the markets have written in full.
constexpr struct {
  const char* name;
  const char* code;
} kCountries[] = {
    {"USA", "US"},         {"UNITED STATES", "US"},  {"UNITED STATES OF AMERICA", "US"},
    {"UK", "GB"},          {"UNITED KINGDOM", "GB"}, {"CANADA", "CA"},
    {"MEXICO", "MX"},      {"GERMANY", "DE"},        {"FRANCE", "FR"},
    {"NETHERLANDS", "NL"}, {"SWEDEN", "SE"},         {"NORWAY", "NO"},
    {"FINLAND", "FI"},     {"DENMARK", "DK"},        {"ICELAND", "IS"},
    {"SPAIN", "ES"},       {"PORTUGAL", "PT"},       {"ITALY", "IT"},
    {"POLAND", "PL"},      {"ROMANIA", "RO"},        {"BULGARIA", "BG"},
    {"HUNGARY", "HU"},     {"CZECHIA", "CZ"},        {"AUSTRIA", "AT"},
    {"BELGIUM", "BE"},     {"ESTONIA", "EE"},        {"SWITZERLAND", "CH"},
    {"UKRAINE", "UA"},     {"ISRAEL", "IL"},         {"JAPAN", "JP"},
    {"SOUTH KOREA", "KR"}, {"KOREA", "KR"},          {"CHINA", "CN"},
    {"HONG KONG", "HK"},   {"TAIWAN", "TW"},         {"SINGAPORE", "SG"},
    {"INDIA", "IN"},       {"THAILAND", "TH"},       {"VIETNAM", "VN"},
    {"AUSTRALIA", "AU"},   {"BRAZIL", "BR"},         {"UNITED ARAB EMIRATES", "AE"},
};

std::string Upper(absl::string_view text) {
  return absl::AsciiStrToUpper(absl::StripAsciiWhitespace(text));
}

// Returns the countries of a group; none when there is no group of that name.
std::vector<std::string> GroupCountries(absl::string_view name) {
  for (const Group& group : kGroups) {
    if (name != group.name) continue;
    std::vector<std::string> countries = absl::StrSplit(group.countries, ' ', absl::SkipEmpty());
    if (absl::StartsWith(name, "E")) {
      for (absl::string_view code : absl::StrSplit(kUnion, ' ')) countries.emplace_back(code);
    }
    return countries;
  }
  return {};
}

bool Contains(const std::vector<std::string>& list, absl::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

}  // namespace

std::string CountryCode(absl::string_view text) {
  const size_t comma = text.rfind(',');
  const std::string name = Upper(comma == absl::string_view::npos ? text : text.substr(comma + 1));
  for (const auto& country : kCountries) {
    if (name == country.name) return country.code;
  }
  const bool is_code =
      name.size() == 2 && absl::ascii_isalpha(static_cast<unsigned char>(name[0])) &&
      absl::ascii_isalpha(static_cast<unsigned char>(name[1])) && GroupCountries(name).empty();
  return is_code ? name : "";
}

bool IsInRegions(const std::vector<std::string>& asked, absl::string_view region,
                 absl::string_view country) {
  if (asked.empty()) return true;
  const std::string here = Upper(region);
  for (const std::string& text : asked) {
    const std::string wanted = Upper(text);
    if (wanted.empty()) continue;
    const std::vector<std::string> group = GroupCountries(wanted);
    if (!group.empty()) {
      if (Contains(group, country)) return true;
      continue;
    }
    if (here == wanted || absl::StartsWith(here, absl::StrCat(wanted, "-"))) return true;
    if (!country.empty() && CountryCode(wanted) == country) return true;
  }
  return false;
}

std::optional<std::vector<std::string>> CountriesAsked(const std::vector<std::string>& asked) {
  std::vector<std::string> countries;
  for (const std::string& text : asked) {
    const std::vector<std::string> group = GroupCountries(Upper(text));
    const std::string country = CountryCode(text);
    if (group.empty() && country.empty()) return std::nullopt;
    countries.insert(countries.end(), group.begin(), group.end());
    if (group.empty()) countries.push_back(country);
  }
  return countries;
}

}  // namespace gpuctl
