// Parsing JSON that somebody else wrote: a node, a market, a job.
#ifndef GPUCTL_COMMON_BASE_BOUNDED_JSON_H_
#define GPUCTL_COMMON_BASE_BOUNDED_JSON_H_

#include <cstddef>
#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"

namespace gpuctl {

// The limits of one text. Hostile bytes take many times their size as values, and values that are
// nested deeply exhaust the stack when they are printed.
struct JsonLimits {
  size_t bytes = size_t{1} << 20;
  int depth = 32;
};

// True when `text` is within the limits. It need not be JSON.
bool IsWithin(absl::string_view text, const JsonLimits& limits);

// Return the value, discarded (see is_discarded) when `text` is no JSON or beyond the limits.
nlohmann::json ParseBoundedJson(absl::string_view text, const JsonLimits& limits = {});
nlohmann::ordered_json ParseBoundedOrderedJson(absl::string_view text,
                                               const JsonLimits& limits = {});

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_BOUNDED_JSON_H_
