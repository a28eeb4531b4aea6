// The requests and answers of the dashboard's server, as HTTP/1.1 writes them. Pure.
#ifndef GPUCTL_CLIENT_DASHBOARD_HTTP_MESSAGE_H_
#define GPUCTL_CLIENT_DASHBOARD_HTTP_MESSAGE_H_

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

struct PageRequest {
  std::string method;
  std::string path;                            // without the query; not decoded
  std::map<std::string, std::string> query;    // decoded; of a name that comes twice the first
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  // Return "" for what is not there.
  std::string Query(const std::string& name) const;
  std::string Header(const std::string& name) const;
};

struct PageReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // more than FormatReply adds
  bool is_stream = false;                                    // events follow, without an end
};

// The most bytes of a request: what is longer is refused before it is kept.
constexpr size_t kMostHeadBytes = 16 << 10;
constexpr size_t kMostBodyBytes = 4 << 10;

enum class Parsed { kIncomplete, kWhole, kBad };
// Reads a request from the beginning of `bytes`. With kBad, *refusal is the HTTP status to answer
// with. A request that says its length twice, or that sends chunks, is bad: two readers could
// disagree about its end.
Parsed ParseRequest(absl::string_view bytes, PageRequest& request, int& refusal);

// Returns the whole answer; of a stream its beginning. Each closes its connection. `head_only`
// leaves out the body.
std::string FormatReply(const PageReply& reply, bool head_only = false);

// Returns one server-sent event. `data` may have several lines.
std::string FormatEvent(absl::string_view name, absl::string_view data, int64_t id);

// Compares in a time that depends only on the length of `given`.
bool EqualInConstantTime(absl::string_view secret, absl::string_view given);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DASHBOARD_HTTP_MESSAGE_H_
