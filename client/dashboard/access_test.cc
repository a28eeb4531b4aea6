#include "client/dashboard/access.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "client/dashboard/http_message.h"

namespace gpuctl {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
constexpr int kPort = 4242;

PageRequest Ask(const std::string& method, const std::string& target,
                const std::string& headers = "") {
  PageRequest request;
  int refusal = 0;
  EXPECT_EQ(ParseRequest(
                method + " " + target + " HTTP/1.1\r\nHost: 127.0.0.1:4242\r\n" + headers + "\r\n",
                request, refusal),
            Parsed::kWhole);
  return request;
}

// Returns the status of the refusal; 0 when the request may be answered.
int RefusalOf(const PageRequest& request) {
  const std::optional<PageReply> refused = Refuse(request, kToken, kPort);
  return refused.has_value() ? refused->status : 0;
}

const std::string kBearer = std::string("Authorization: Bearer ") + kToken + "\r\n";

TEST(Access, ReadsWithTheTokenInTheAddressOrInAHeader) {
  EXPECT_EQ(RefusalOf(Ask("GET", std::string("/?token=") + kToken)), 0);
  EXPECT_EQ(RefusalOf(Ask("HEAD", std::string("/events?runs=&token=") + kToken)), 0);
  EXPECT_EQ(RefusalOf(Ask("GET", "/", kBearer)), 0);
  EXPECT_EQ(RefusalOf(Ask("GET", "/")), 403);
  EXPECT_EQ(RefusalOf(Ask("GET", "/?token=")), 403);
  EXPECT_EQ(RefusalOf(Ask("GET", std::string("/?token=") + kToken + "0")), 403);
  EXPECT_EQ(RefusalOf(Ask("GET", std::string("/?Token=") + kToken)), 403);
  // A header that is wrong is not made good by the address.
  EXPECT_EQ(RefusalOf(Ask("GET", std::string("/?token=") + kToken, "Authorization: Bearer x\r\n")),
            403);
}

TEST(Access, ChangesOnlyWithTheTokenInAHeader) {
  EXPECT_EQ(RefusalOf(Ask("POST", "/api/stop", kBearer)), 0);
  EXPECT_EQ(RefusalOf(Ask("POST", std::string("/api/stop?token=") + kToken)), 403);
  EXPECT_EQ(RefusalOf(Ask("POST", "/api/stop", kBearer + "Origin: http://127.0.0.1:4242\r\n")), 0);
  EXPECT_EQ(RefusalOf(Ask("POST", "/api/stop", kBearer + "Origin: http://localhost:4242\r\n")), 0);
  EXPECT_EQ(RefusalOf(Ask("POST", "/api/stop", kBearer + "Origin: http://127.0.0.1:4243\r\n")),
            403);
  EXPECT_EQ(RefusalOf(Ask("POST", "/api/stop", kBearer + "Origin: https://127.0.0.1:4242\r\n")),
            403);
  EXPECT_EQ(RefusalOf(Ask("POST", "/api/stop", kBearer + "Origin: null\r\n")), 403);
}

TEST(Access, HasItsOwnNamesOnly) {
  PageRequest request = Ask("GET", "/", kBearer);
  for (const char* host : {"127.0.0.1:4242", "localhost:4242"}) {
    request.headers["host"] = host;
    EXPECT_EQ(RefusalOf(request), 0) << host;
  }
  for (const char* host : {"", "127.0.0.1", "127.0.0.1:42420", "evil.example:4242", "localhost",
                           "127.0.0.1:4242.evil.example", "[::1]:4242"}) {
    request.headers["host"] = host;
    EXPECT_EQ(RefusalOf(request), 403) << host;
  }
  request.headers.erase("host");
  EXPECT_EQ(RefusalOf(request), 403);
}

TEST(Access, KnowsThreeMethods) {
  for (const char* method : {"PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"}) {
    EXPECT_EQ(RefusalOf(Ask(method, "/", kBearer)), 405) << method;
  }
}

TEST(Access, ARefusalNeverHasTheToken) {
  const std::optional<PageReply> refused = Refuse(Ask("GET", "/"), kToken, kPort);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(FormatReply(*refused).find(kToken), std::string::npos);
}

TEST(EqualInConstantTime, ComparesAll) {
  EXPECT_TRUE(EqualInConstantTime("abc", "abc"));
  for (const char* other : {"", "a", "ab", "abcabc", "abd", "bbc", "abc "}) {
    EXPECT_FALSE(EqualInConstantTime("abc", other)) << other;
  }
  // Nothing opens a door without a lock.
  EXPECT_FALSE(EqualInConstantTime("", ""));
}

TEST(ParseRequest, WaitsForAllOfIt) {
  const std::string whole =
      "POST /a?b=c%20d&b=e&f HTTP/1.1\r\nX: y\r\nContent-Length: 3\r\n\r\nxyz";
  PageRequest request;
  int refusal = 0;
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_EQ(ParseRequest(whole.substr(0, size), request, refusal), Parsed::kIncomplete) << size;
  }
  ASSERT_EQ(ParseRequest(whole + "more", request, refusal), Parsed::kWhole);
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/a");
  EXPECT_EQ(request.Query("b"), "c d");
  EXPECT_EQ(request.Query("f"), "");
  EXPECT_EQ(request.Header("x"), "y");
  EXPECT_EQ(request.body, "xyz");
}

TEST(ParseRequest, RefusesWhatTwoReadersCouldReadDifferently) {
  const std::pair<std::string, int> cases[] = {
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 1 1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 4097\r\n\r\n", 413},
      {"GET / HTTP/1.1\r\nX : y\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n X: y\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400},
      {"GET http://127.0.0.1/ HTTP/1.1\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\n\r\n", 400},
      {"GET /?a=%4 HTTP/1.1\r\n\r\n", 400},
      {"GET /?a=%zz HTTP/1.1\r\n\r\n", 400},
      {"GET /\x01 HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/2\r\n\r\n", 400},
      {"\r\n\r\n", 400},
      {std::string(kMostHeadBytes + 1, 'x'), 431},
  };
  for (const auto& [bytes, wanted] : cases) {
    PageRequest request;
    int refusal = 0;
    EXPECT_EQ(ParseRequest(bytes, request, refusal), Parsed::kBad) << bytes.substr(0, 80);
    EXPECT_EQ(refusal, wanted) << bytes.substr(0, 80);
  }
}

TEST(FormatEvent, ALineBreakInDataBeginsNoOtherField) {
  EXPECT_EQ(FormatEvent("run", "a\nevent: b", 7), "id: 7\nevent: run\ndata: a\ndata: event: b\n\n");
}

}  // namespace
}  // namespace gpuctl
