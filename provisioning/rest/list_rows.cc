#include "provisioning/rest/list_rows.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// What an answer says about the pages after it.
struct PageEnd {
  std::string next;
  std::optional<bool> more;
  std::optional<int64_t> total;
};

PageEnd ReadPageEnd(JsonReader& answer, const Paging& paging) {
  PageEnd end;
  for (const absl::string_view path : paging.next) {
    if (end.next.empty()) answer.Read(path, end.next);
  }
  for (const absl::string_view path : paging.more) {
    if (!end.more.has_value()) answer.Read(path, end.more);
  }
  if (!paging.total.empty()) answer.Read(paging.total, end.total);
  if (end.more.value_or(false) && end.next.empty()) {
    answer.Fail(paging.more.front(), "is true, and nothing leads there");
  }
  if (end.more.has_value() && !*end.more) end.next.clear();
  RefuseUnknownPaging(answer, paging.next);
  return end;
}

// Returns the address with rel="next" in an answer's header Link; "" when there is none.
std::string NextInHeaders(const HttpResponse& response) {
  for (const auto& [name, value] : response.headers) {
    if (name != "link") continue;
    absl::string_view rest = value;
    for (;;) {
      const size_t begin = rest.find('<');
      if (begin == absl::string_view::npos) break;
      const size_t end = rest.find('>', begin);
      if (end == absl::string_view::npos) break;
      const absl::string_view address = rest.substr(begin + 1, end - begin - 1);
      rest.remove_prefix(end + 1);
      const std::string parameters = absl::StrReplaceAll(
          absl::AsciiStrToLower(rest.substr(0, rest.find('<'))), {{"\"", ""}, {" ", ""}});
      if (absl::StrContains(parameters, "rel=next") && !address.empty()) {
        return std::string(address);
      }
    }
    // There is a next page, and nobody can tell where: the list is not whole.
    if (absl::StrContains(value, "next")) return "?";
  }
  return "";
}

// Returns path and query of an address. The host is dropped: the key goes to the market alone.
// Empty when it has none.
std::string PathOfLink(absl::string_view link, absl::string_view base_url) {
  const size_t scheme = link.find("://");
  if (scheme != absl::string_view::npos) {
    const size_t path = link.find('/', scheme + 3);
    if (path == absl::string_view::npos) return "";
    link.remove_prefix(path);
    // A base address may have a path of its own.
    const size_t base_scheme = base_url.find("://");
    const size_t base_path = base_scheme == absl::string_view::npos
                                 ? absl::string_view::npos
                                 : base_url.find('/', base_scheme + 3);
    if (base_path != absl::string_view::npos) {
      const absl::string_view before = base_url.substr(base_path);
      if (before != "/" && absl::StartsWith(link, absl::StrCat(before, "/"))) {
        link.remove_prefix(before.size());
      }
    }
  }
  for (const char c : link) {
    if (c <= ' ' || c > '~') return "";
  }
  return absl::StartsWith(link, "/") ? std::string(link) : "";
}

std::string PagePath(absl::string_view path, const Paging& paging, int page, size_t rows,
                     const std::string& next) {
  std::string value;
  switch (paging.by) {
    case Paging::By::kNone:
      return std::string(path);
    case Paging::By::kLink:
    case Paging::By::kLinkHeader:
      return next.empty() ? std::string(path) : next;
    case Paging::By::kPageNumber:
      value = absl::StrCat(page + 1);
      break;
    case Paging::By::kOffset:
      value = absl::StrCat(rows);
      break;
    case Paging::By::kCursor:
      if (next.empty()) return std::string(path);
      value = UrlEncode(next);
      break;
  }
  const char* const joint = absl::StrContains(path, '?') ? "&" : "?";
  return absl::StrCat(path, joint, paging.parameter, "=", value);
}

// Returns the field that no two rows share, as text; empty when there is none.
std::string IdOf(const nlohmann::json& row, absl::string_view field) {
  if (field.empty() || !row.is_object()) return "";
  const auto found = row.find(std::string(field));
  if (found == row.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  return found->is_number_integer() ? found->dump() : "";
}

}  // namespace

absl::StatusOr<std::vector<nlohmann::json>> ListRows(const RestApi& api, absl::string_view doing,
                                                     absl::string_view path,
                                                     const ListShape& shape) {
  const Paging& paging = shape.paging;
  const auto fail = [doing](const auto&... words) {
    return absl::UnknownError(absl::StrCat(doing, ": ", words...));
  };
  std::vector<nlohmann::json> rows;
  std::set<std::string> seen, pages;
  std::string next;
  for (int page = 0; page < paging.max_pages; ++page) {
    const std::string at = PagePath(path, paging, page, rows.size(), next);
    if (!pages.insert(at).second) return fail("the pages do not end");
    ASSIGN_OR_RETURN(const HttpResponse response, api.Send({.doing = doing,
                                                            .kind = CallKind::kRead,
                                                            .method = "GET",
                                                            .path = at,
                                                            .rate_class = shape.rate_class}));
    if (response.status != 200) {
      const absl::Status status = api.Explained(response, doing);
      if (response.status == 404 && shape.empty_is_404 && !absl::IsUnauthenticated(status)) {
        return rows;
      }
      if (status.ok()) return fail("HTTP ", response.status, " is no whole answer");
      return status;
    }
    absl::StatusOr<nlohmann::json> json = ParseJson(response.body);
    if (!json.ok()) return Annotate(json.status(), doing);
    const nlohmann::json* array = &*json;
    PageEnd end;
    if (shape.rows.empty()) {
      if (!array->is_array()) return fail(shape.what, " is no list");
    } else {
      JsonReader answer(*json, shape.what);
      if (shape.check != nullptr) shape.check(answer);
      end = ReadPageEnd(answer, paging);
      array = answer.RequireArray(shape.rows);
      if (!answer.status().ok()) return Annotate(answer.status(), doing);
    }
    for (const nlohmann::json& row : *array) {
      const std::string id = IdOf(row, shape.id);
      if (!id.empty() && !seen.insert(id).second) return fail(id, " came twice");
      rows.push_back(row);
    }
    bool last = paging.by == Paging::By::kNone;
    if (paging.by == Paging::By::kPageNumber || paging.by == Paging::By::kOffset) {
      last = array->empty() ||
             (end.total.has_value() && static_cast<int64_t>(rows.size()) >= *end.total);
    } else if (paging.by == Paging::By::kLink || paging.by == Paging::By::kLinkHeader) {
      if (paging.by == Paging::By::kLinkHeader) end.next = NextInHeaders(response);
      next = PathOfLink(end.next, api.base_url());
      if (next.empty() && !end.next.empty()) return fail("the next page's address is none");
      last = next.empty();
    } else if (paging.by == Paging::By::kCursor) {
      next = end.next;
      last = next.empty();
    }
    if (!last) continue;
    if (end.total.has_value() && *end.total != static_cast<int64_t>(rows.size())) {
      return absl::UnavailableError(
          absl::StrCat(doing, ": ", rows.size(), " came, and there are ", *end.total));
    }
    return rows;
  }
  return fail("more than ", paging.max_pages, " pages");
}

}  // namespace gpuctl
