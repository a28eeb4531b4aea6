#include "agent/https/https_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/https/resolve.h"
#include "common/base/clock.h"
#include "tests/support/matchers.h"
#include "tests/support/reply_server.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class HttpsClientTest : public ::testing::Test {
 protected:
  HttpsClientTest() { options_.roots_files = {dir_.Write("roots.pem", ca_.pem())}; }

  ReplyServer::Options Serving(const std::string& names, std::vector<std::string> pieces = {
                                                             "HTTP/1.1 204 No Content\r\n\r\n"}) {
    ReplyServer::Options options;
    options.certificate = ca_.Issue(names);
    options.pieces = std::move(pieces);
    return options;
  }
  absl::StatusOr<HttpsReply> Ask(const std::string& host, int port) {
    HttpsRequest request;
    request.method = "POST";
    request.url = absl::StrCat("https://", host, ":", port, "/v2/pods/p1/action");
    request.headers = {{"Authorization", "Bearer k"}};
    request.body = "{}";
    return SendHttps(request, options_, Clock::Real());
  }

  TempDir dir_;
  TestCa ca_;
  HttpsOptions options_;
};

TEST_F(HttpsClientTest, AsksAndReadsTheAnswer) {
  ReplyServer server(
      Serving("IP:127.0.0.1", {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", "llo"}));
  const auto reply = Ask("127.0.0.1", server.port());
  ASSERT_OK(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "hello");
  ASSERT_THAT(server.requests(), SizeIs(1));
  EXPECT_EQ(server.requests()[0],
            absl::StrCat("POST /v2/pods/p1/action HTTP/1.1\r\nHost: 127.0.0.1:", server.port(),
                         "\r\nUser-Agent: gpuctl\r\nAccept: */*\r\nConnection: close\r\n"
                         "Authorization: Bearer k\r\nContent-Length: 2\r\n\r\n{}"));
}

TEST_F(HttpsClientTest, ReadsAChunkedAnswerInPieces) {
  ReplyServer server(
      Serving("IP:127.0.0.1", {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encod",
                               "ing: chunked\r\n\r\n3;x=y\r\nhel\r\n2", "\r\nlo\r\n0\r\n\r\n"}));
  const auto reply = Ask("127.0.0.1", server.port());
  ASSERT_OK(reply);
  EXPECT_EQ(reply->body, "hello");
}

TEST_F(HttpsClientTest, AnAnswerThatEndsEarlyIsNone) {
  for (const char* torn : {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",
                           "HTTP/1.1 200 O", "nothing like HTTP\r\n\r\n"}) {
    ReplyServer server(Serving("IP:127.0.0.1", {torn}));
    EXPECT_THAT(Ask("127.0.0.1", server.port()), StatusIs(absl::StatusCode::kDataLoss)) << torn;
  }
}

TEST_F(HttpsClientTest, ASilentServerIsGivenUp) {
  ReplyServer server(Serving("IP:127.0.0.1", {}));
  options_.timeout = absl::Milliseconds(200);
  EXPECT_THAT(Ask("127.0.0.1", server.port()), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(HttpsClientTest, OnlyWhoHoldsTheNameIsBelieved) {
  NameServer names("127.0.0.1", "");
  options_.name_server = names.address();
  {
    ReplyServer server(Serving("DNS:api.test"));
    EXPECT_OK(Ask("api.test", server.port()));
    EXPECT_THAT(Ask("other.test", server.port()),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("hostname mismatch")));
    EXPECT_THAT(Ask("127.0.0.1", server.port()),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("IP address mismatch")));
    EXPECT_THAT(server.requests(), SizeIs(1)) << "the key went to somebody else";
  }
  ReplyServer::Options expired;
  expired.certificate = ca_.Issue("DNS:api.test", -3600, -60);
  {
    ReplyServer server(expired);
    EXPECT_THAT(Ask("api.test", server.port()),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("expired")));
  }
  ReplyServer::Options foreign;
  foreign.certificate = TestCa().Issue("DNS:api.test");
  {
    ReplyServer server(foreign);
    EXPECT_THAT(Ask("api.test", server.port()),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("issuer certificate")));
    EXPECT_THAT(server.requests(), SizeIs(0));
  }
}

TEST_F(HttpsClientTest, WithoutRootsNobodyIsAsked) {
  ReplyServer server(Serving("IP:127.0.0.1"));
  options_.roots_files = {dir_.Sub("missing.pem")};
  EXPECT_THAT(Ask("127.0.0.1", server.port()), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(server.requests(), SizeIs(0));
}

TEST_F(HttpsClientTest, AnotherAddressIsTriedWhereNobodyAnswers) {
  NameServer names("127.0.0.1", "::1");
  options_.name_server = names.address();
  {
    ReplyServer server(Serving("DNS:api.test"));
    EXPECT_OK(Ask("api.test", server.port()));
  }
  auto six = Serving("DNS:api.test,IP:::1");
  six.address = "::1";
  ReplyServer server(six);
  EXPECT_OK(Ask("api.test", server.port()));
  EXPECT_OK(Ask("[::1]", server.port()));
}

TEST_F(HttpsClientTest, ANameWithoutAddressIsUnavailable) {
  NameServer names("", "");
  options_.name_server = names.address();
  EXPECT_THAT(Ask("api.test", 1),
              StatusIs(absl::StatusCode::kUnavailable, StartsWith("resolve api.test: ")));
}

TEST_F(HttpsClientTest, PlainHttpStaysOnThisMachine) {
  ReplyServer server(ReplyServer::Options{});
  HttpsRequest request;
  request.method = "DELETE";
  request.url = absl::StrCat("http://127.0.0.1:", server.port(), "/x");
  const auto reply = SendHttps(request, HttpsOptions(), Clock::Real());
  ASSERT_OK(reply);
  EXPECT_EQ(reply->status, 204);
  EXPECT_THAT(ParseHttpsUrl("http://api.test/x"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ParseHttpsUrlTest, TakesApart) {
  const auto url = ParseHttpsUrl("https://[::1]:8443");
  ASSERT_OK(url);
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, 8443);
  EXPECT_EQ(url->path, "/");
  for (const char* bad : {"", "ftp://a/", "https://", "https://a:0/", "https://a:x/",
                          "https://u@a/", "https://a/b c", "https://[::1/", "https://a\r\nb/"}) {
    EXPECT_THAT(ParseHttpsUrl(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
}

TEST(ParseHttpReplyTest, EveryCutIsEitherMoreOrBroken) {
  const std::string whole =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
  const size_t enough = whole.size() - 2;  // the last, empty trailer is not needed
  for (size_t cut = 0; cut < enough; ++cut) {
    EXPECT_THAT(ParseHttpReply(whole.substr(0, cut), false, 100),
                StatusIs(absl::StatusCode::kUnavailable))
        << cut;
    EXPECT_THAT(ParseHttpReply(whole.substr(0, cut), true, 100),
                StatusIs(absl::StatusCode::kDataLoss))
        << cut;
  }
  EXPECT_EQ(ParseHttpReply(whole, false, 100)->body, "hello");
  EXPECT_THAT(ParseHttpReply(whole, false, 4), StatusIs(absl::StatusCode::kDataLoss));
  for (const char* bad : {"HTTP/2 x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
                          "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n"}) {
    EXPECT_THAT(ParseHttpReply(bad, false, 100), StatusIs(absl::StatusCode::kDataLoss)) << bad;
  }
}

}  // namespace
}  // namespace gpuctl
