#include "provisioning/rest/rest_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "provisioning/http/request_keys.h"
#include "provisioning/market/provider.h"
#include "provisioning/rest/json_reader.h"
#include "tests/support/fake_http.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"

namespace gpuctl {
namespace {

using Code = absl::StatusCode;

absl::Status Explained(const HttpResponse& response, bool creating) {
  return creating ? absl::AbortedError(response.body) : absl::NotFoundError(response.body);
}

absl::StatusOr<std::string> Parsed(absl::string_view body) {
  if (body == "bad") return absl::UnknownError("no sense");
  return std::string(body);
}

class RestApiTest : public ::testing::Test {
 protected:
  absl::StatusOr<HttpResponse> Asked(CallKind kind, int status) {
    http_->Answer(status, "said");
    return api_.Ask({.doing = "do it", .kind = kind, .method = "POST", .path = "/x"});
  }
  std::string Header(size_t i, const std::string& name) {
    const std::vector<HttpRequest> requests = http_->requests();
    for (const auto& header : requests.at(i).headers) {
      if (header.first == name) return header.second;
    }
    return "";
  }
  // A ScriptedHttp would compare the requests with the descriptions of real markets.
  std::shared_ptr<FakeHttp> http_ = std::make_shared<FakeHttp>();
  RestApi api_{http_, {"", "key-1"}, "http://market.test", Explained};
};

TEST_F(RestApiTest, SendsTheKeyAndTheBody) {
  http_->Answer(500, "anything");
  const auto response = api_.Send(
      {.doing = "do it", .method = "PUT", .path = "/x", .rate_class = "slow", .body = {{"a", 1}}});
  ASSERT_OK(response);
  EXPECT_EQ(response->body, "anything");
  EXPECT_EQ(http_->requests().at(0).method, "PUT");
  EXPECT_EQ(http_->requests().at(0).url, "http://market.test/x");
  EXPECT_EQ(http_->requests().at(0).body, R"({"a":1})");
  EXPECT_EQ(Header(0, "Authorization"), "Bearer key-1");
  EXPECT_EQ(Header(0, "Content-Type"), "application/json");
  EXPECT_EQ(http_->requests().at(0).rate_class, "slow");
  http_->Answer(200, "");
  ASSERT_OK(api_.Send({.doing = "do it", .kind = CallKind::kRead, .method = "GET", .path = "/x"}));
  EXPECT_EQ(http_->requests().at(1).body, "");
  EXPECT_EQ(Header(1, "Content-Type"), "");
  http_->Answer(absl::UnavailableError("no such host"));
  EXPECT_THAT(api_.Get("do it", "/x", Parsed), StatusIs(Code::kUnavailable, "do it: no such host"));
}

TEST_F(RestApiTest, OnlyWhatReadsOrRepeatsIsRepeatable) {
  for (const CallKind kind :
       {CallKind::kRead, CallKind::kRepeat, CallKind::kOnce, CallKind::kCreate}) {
    EXPECT_OK(Asked(kind, 200));
  }
  EXPECT_TRUE(http_->requests().at(0).repeatable);
  EXPECT_TRUE(http_->requests().at(1).repeatable);
  EXPECT_FALSE(http_->requests().at(2).repeatable);
  EXPECT_FALSE(http_->requests().at(3).repeatable);
  EXPECT_TRUE(http_->requests().at(3).creates);
  EXPECT_FALSE(http_->requests().at(2).creates);
  // A call of no stated kind is kOnce, too.
  EXPECT_EQ(ApiCall().kind, CallKind::kOnce);
}

TEST_F(RestApiTest, TakesNoPartOfAnAnswerForTheWhole) {
  EXPECT_OK(Asked(CallKind::kRepeat, 204));
  EXPECT_OK(Asked(CallKind::kCreate, 201));
  EXPECT_THAT(Asked(CallKind::kRead, 204), StatusIs(Code::kNotFound, "do it: said"));
  EXPECT_THAT(Asked(CallKind::kRead, 206), StatusIs(Code::kNotFound));
  EXPECT_THAT(Asked(CallKind::kOnce, 302), StatusIs(Code::kNotFound));
  EXPECT_THAT(Asked(CallKind::kCreate, 400), StatusIs(Code::kAborted, "do it: said"));
  http_->Answer(200, "good").Answer(200, "bad");
  EXPECT_EQ(*api_.Get("do it", "/x", Parsed), "good");
  EXPECT_THAT(api_.Get("do it", "/x", Parsed), StatusIs(Code::kUnknown, "do it: no sense"));
}

TEST(TokenExchangeTest, AKeyIsExchangedOnceAndAgainBeforeItExpires) {
  SteppingClock clock;
  const auto http = std::make_shared<FakeHttp>();
  const RestApi api(http, {"", "me:s3cret-word"}, "http://market.test", Explained, {},
                    TokenExchange{.path = "/oauth2/token"}, clock);
  const auto ask = [&] { return api.Ask({.doing = "do it", .method = "GET", .path = "/x"}); };
  const auto shown = [&](size_t i) {
    const std::vector<HttpRequest> requests = http->requests();
    for (const auto& header : requests.at(i).headers) {
      if (header.first == "Authorization") return header.second;
    }
    return std::string();
  };
  http->Answer(200, R"({"access_token":"first","expires_in":600})").Answer(200).Answer(200);
  ASSERT_OK(ask());
  ASSERT_OK(ask());
  ASSERT_EQ(http->requests().size(), 3u);
  EXPECT_EQ(http->requests().at(0).url, "http://market.test/oauth2/token");
  EXPECT_EQ(shown(0), "");
  const nlohmann::json sent = nlohmann::json::parse(http->requests().at(0).body);
  EXPECT_EQ(sent["grant_type"], "client_credentials");
  EXPECT_EQ(sent["client_id"], "me");
  EXPECT_EQ(sent["client_secret"], "s3cret-word");
  EXPECT_EQ(shown(1), "Bearer first");
  EXPECT_EQ(shown(2), "Bearer first");
  EXPECT_THAT(KeysOf(http->requests().at(0)), ::testing::ElementsAre("s3cret-word"));
  clock.Advance(absl::Seconds(301));
  http->Answer(200, R"({"access_token":"second","expires_in":600})").Answer(200);
  ASSERT_OK(ask());
  EXPECT_EQ(shown(4), "Bearer second");
  // The market forgot it: one new one, and the call again.
  http->Answer(401).Answer(200, R"({"access_token":"third","expires_in":600})").Answer(200);
  ASSERT_OK(ask());
  EXPECT_EQ(shown(7), "Bearer third");
  // A second refusal is the key's.
  http->Answer(401, "no").Answer(200, R"({"access_token":"4","expires_in":9})").Answer(401, "no");
  EXPECT_FALSE(ask().ok());
  EXPECT_EQ(http->requests().size(), 11u);
}

TEST(TokenExchangeTest, WithoutATokenNothingWasSent) {
  const auto http = std::make_shared<FakeHttp>();
  const RestApi api(http, {"", "me:s3cret-word"}, "http://market.test", Explained, {},
                    TokenExchange{.path = "/oauth2/token"});
  const auto create = [&] {
    return api.Ask({.doing = "rent", .kind = CallKind::kCreate, .method = "POST", .path = "/x"});
  };
  http->Answer(absl::DeadlineExceededError("30 s"));
  EXPECT_THAT(create(), StatusIs(Code::kUnavailable));
  for (const char* body : {"<html>", "{}", R"({"access_token":"a b","expires_in":1})",
                           R"({"access_token":"a"})", R"({"access_token":7,"expires_in":1})"}) {
    http->Answer(200, body);
    EXPECT_THAT(create(), StatusIs(Code::kUnavailable)) << body;
  }
  EXPECT_EQ(http->requests().size(), 6u);
  const RestApi half(http, {"", "no-secret"}, "http://market.test", Explained, {},
                     TokenExchange{.path = "/oauth2/token"});
  EXPECT_THAT(half.Ask({.doing = "list", .method = "GET", .path = "/x"}),
              StatusIs(Code::kUnauthenticated));
}

TEST(HttpWordsTest, WhatMayHaveBeenMadeIsUnknownOnlyForCreates) {
  EXPECT_EQ(StatusOfHttp(503, "").code(), Code::kUnavailable);
  EXPECT_EQ(StatusOfCreate(503, "").code(), Code::kUnknown);
  EXPECT_EQ(StatusOfCreate(429, "").code(), Code::kUnavailable);
  EXPECT_TRUE(IsBusy(StatusOfCreate(429, "")));
  EXPECT_FALSE(IsBusy(StatusOfCreate(402, "")));
  // What is busy before the create says nothing about the create.
  EXPECT_FALSE(IsBusy(BeforeCreate(StatusOfHttp(429, ""))));
  EXPECT_EQ(StatusOfCreate(200, "").code(), Code::kUnknown);
  EXPECT_EQ(BeforeCreate(absl::DeadlineExceededError("x")).code(), Code::kUnavailable);
  EXPECT_EQ(BeforeCreate(absl::UnauthenticatedError("x")).code(), Code::kUnauthenticated);
}

TEST(HttpWordsTest, ShowsOneCleanLine) {
  EXPECT_EQ(PrintableText("a\nb\x1b[31m\tc"), "a b [31m c");
  EXPECT_EQ(PrintableText("abcdef", 3), "abc...");
  EXPECT_EQ(PrintableText("ab\xc3\xa4", 3), "ab...");
  EXPECT_EQ(PrintableText("\xff!"), "\xef\xbf\xbd!");
}

TEST(HttpWordsTest, EncodesPartsOfAPath) { EXPECT_EQ(UrlEncode("a/b c?"), "a%2Fb%20c%3F"); }

TEST(HttpWordsTest, MessagesHaveNoSecretsOfBodies) {
  const std::string body = R"({"instance_api_key":"canary","new_contract":7})";
  const std::string said = HttpSaid({400, {}, body}, "");
  EXPECT_EQ(said.find("canary"), std::string::npos) << said;
  EXPECT_NE(said.find("new_contract"), std::string::npos) << said;
  const absl::Status torn = ParseJson(body.substr(0, body.size() - 3)).status();
  EXPECT_FALSE(torn.ok());
  EXPECT_EQ(torn.message().find("canary"), std::string::npos) << torn;
  EXPECT_EQ(HttpSaid({502, {}, "Bad Gateway"}, ""), "HTTP 502: Bad Gateway");
}

}  // namespace
}  // namespace gpuctl
