#include "client/dashboard/access.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

PageReply Refusal(int status, absl::string_view why) {
  PageReply reply;
  reply.status = status;
  reply.body = absl::StrCat(why, "\n");
  return reply;
}

// True for the two names under which this server is reached.
bool IsOurs(const std::string& host, int port) {
  return host == absl::StrCat("127.0.0.1:", port) || host == absl::StrCat("localhost:", port);
}

}  // namespace

std::optional<PageReply> Refuse(const PageRequest& request, const std::string& token, int port) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (!reads && request.method != "POST") {
    PageReply reply = Refusal(405, "only GET, HEAD and POST are known here");
    reply.headers.emplace_back("Allow", "GET, HEAD, POST");
    return reply;
  }
  if (!IsOurs(request.Header("host"), port)) {
    return Refusal(403, absl::StrCat("this is 127.0.0.1:", port, ", and no other host"));
  }
  std::string given;
  const std::string bearer = request.Header("authorization");
  if (absl::StartsWithIgnoreCase(bearer, "Bearer ")) {
    given = bearer.substr(7);
  } else if (reads) {
    given = request.Query("token");
  }
  if (!EqualInConstantTime(token, given)) {
    return Refusal(403,
                   "the address has not the token of this dashboard: open the one that gpuctl "
                   "dashboard printed when it began");
  }
  if (reads) return std::nullopt;
  const std::string origin = request.Header("origin");
  if (!origin.empty() && !(absl::StartsWith(origin, "http://") && IsOurs(origin.substr(7), port))) {
    return Refusal(403, "another site's page may not do this");
  }
  return std::nullopt;
}

void AddSafetyHeaders(const std::string& script, const std::string& style, PageReply& reply) {
  std::string policy =
      "default-src 'none'; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'";
  if (!script.empty()) {
    absl::StrAppend(&policy, "; connect-src 'self'; img-src data:; script-src ", script,
                    "; style-src ", style);
  }
  reply.headers.insert(reply.headers.end(), {{"Content-Security-Policy", policy},
                                             {"Referrer-Policy", "no-referrer"},
                                             {"X-Content-Type-Options", "nosniff"},
                                             {"X-Frame-Options", "DENY"},
                                             {"Cross-Origin-Resource-Policy", "same-origin"},
                                             {"Cross-Origin-Opener-Policy", "same-origin"},
                                             {"Cache-Control", "no-store"}});
}

}  // namespace gpuctl
