// Lists of a market's API, whatever way it divides them into pages.
#ifndef GPUCTL_PROVISIONING_REST_LIST_ROWS_H_
#define GPUCTL_PROVISIONING_REST_LIST_ROWS_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "provisioning/rest/json_reader.h"
#include "provisioning/rest/rest_api.h"

namespace gpuctl {

// How an API divides a list. Paths are those of JsonReader.
struct Paging {
  enum class By {
    kNone,        // all rows are in one answer
    kPageNumber,  // the query has the page's number, from 1
    kOffset,      // the query has the number of rows before the page
    kCursor,      // an answer has a word for the next one's query
    kLink,        // an answer has the next one's address
    kLinkHeader,  // the header Link has it, as rel="next" (RFC 8288)
  };
  By by = By::kNone;
  absl::string_view parameter{};               // of the query, for the number, offset or cursor
  absl::Span<const absl::string_view> next{};  // where the cursor or address may be
  absl::Span<const absl::string_view> more{};  // where it may say whether there is a next page
  absl::string_view total{};                   // where it says how many rows all pages have
  int max_pages = 100;
};

struct ListShape {
  absl::string_view what;    // in errors: "the list of pods"
  absl::string_view part;    // a row, in errors: "pod"
  absl::string_view rows{};  // the path of the array; empty: the answer itself is the array
  absl::string_view id{};    // a field, of text or a number, that no two rows share; empty: none
  Paging paging = {};
  absl::string_view rate_class{};
  void (*check)(JsonReader& answer) = nullptr;  // more that must be true of an answer
  bool empty_is_404 = false;  // an answer of 404 that does not refuse the key says "no rows"
};

// Reads the list at `path`, which may have a query, and returns its rows. Every error begins with
// `doing`. UNKNOWN for an answer that is no such list, for a row that comes twice and for pages
// without an end; UNAVAILABLE when other rows came than the API says there are, which also happens
// when something was made or ended between two pages. So what is returned is the whole list. A page
// that is not full is no sign of the end, because an API may give smaller pages than it was asked
// for; an empty one is, and the number of all rows.
absl::StatusOr<std::vector<nlohmann::json>> ListRows(const RestApi& api, absl::string_view doing,
                                                     absl::string_view path,
                                                     const ListShape& shape);

// Returns the same as values, each read by `read`.
template <typename Row>
absl::StatusOr<std::vector<Row>> ListOf(const RestApi& api, absl::string_view doing,
                                        absl::string_view path, const ListShape& shape,
                                        void (*read)(JsonReader& row, Row& value)) {
  ASSIGN_OR_RETURN(const std::vector<nlohmann::json> rows, ListRows(api, doing, path, shape));
  std::vector<Row> values;
  for (const nlohmann::json& json : rows) {
    JsonReader row(json, shape.part);
    read(row, values.emplace_back());
    if (!row.status().ok()) return Annotate(row.status(), doing);
  }
  return values;
}

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_REST_LIST_ROWS_H_
