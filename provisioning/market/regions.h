// Places of machines, as users request them and as the markets write them.
#ifndef GPUCTL_PROVISIONING_MARKET_REGIONS_H_
#define GPUCTL_PROVISIONING_MARKET_REGIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns the two-letter code (ISO 3166) of a country given by code or name, or of a place that
// ends in one: "US", "USA", "United States", "California, US", "Frankfurt, Germany". Empty when
// none is known.
std::string CountryCode(absl::string_view text);

// True when a machine in `region` (the market's own name) and `country` (a code, or empty) is in
// one of the places in `asked`; true when `asked` is empty. Places are regions ("us-west-1", or the
// beginning of one up to a dash, "us-west"), countries, and groups of countries: EU (the union),
// EEA, EUROPE, NORTH-AMERICA, ASIA.
bool IsInRegions(const std::vector<std::string>& asked, absl::string_view region,
                 absl::string_view country);

// Returns the countries of `asked`; absent when it names anything but countries and groups.
std::optional<std::vector<std::string>> CountriesAsked(const std::vector<std::string>& asked);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_REGIONS_H_
