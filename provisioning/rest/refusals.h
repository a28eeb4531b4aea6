// What a market's refusals mean, as a table for each market: its own codes and words are all that
// tells a machine that is gone from a proxy's 404, and a lack of machines from a bad request.
#ifndef GPUCTL_PROVISIONING_REST_REFUSALS_H_
#define GPUCTL_PROVISIONING_REST_REFUSALS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "provisioning/http/http.h"

namespace gpuctl {

// The market's own words in an answer. Both empty: the answer is not the market's, or has none.
struct MarketError {
  std::string code;
  std::string message;
};

// One row. It holds for an answer with the market's own words that has all that the row names.
struct Refusal {
  int http = 0;            // 0: any status below 500 but 429
  absl::string_view code;  // the market's code; "provider/*": begins so; "*": any; empty: also none
  absl::string_view words;    // in the code or the message, whatever their case; empty: any
  absl::StatusCode reading;   // anything but a create
  absl::StatusCode creating;  // kOk in either: as the HTTP status says
};

// Returns the error of an answer without success. 429 is BusyError; a status of 500 or more is
// UNAVAILABLE, and UNKNOWN for a create; else the first row that holds. Without one it is the
// StatusOfHttp or StatusOfCreate of its HTTP status, and 404 is UNKNOWN where nothing was created:
// only a market's own words say that something is gone. The message has the status and the words.
absl::Status StatusOfRefusal(const HttpResponse& response, const MarketError& error,
                             absl::Span<const Refusal> refusals, bool creating);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_REST_REFUSALS_H_
