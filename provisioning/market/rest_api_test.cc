#include "provisioning/market/rest_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "provisioning/market/json_reader.h"
#include "provisioning/market/provider.h"
#include "tests/support/fake_http.h"
#include "tests/support/matchers.h"

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

TEST(ReadPagesTest, ReadsAllOrFails) {
  std::map<std::string, InstancePage> pages;
  const auto add = [&pages](const std::string& page, const std::string& id,
                            const std::string& next) {
    pages[page].ids = {id};
    pages[page].instances.resize(1);
    pages[page].instances[0].id = id;
    pages[page].next = next;
  };
  const auto read = [&](int max_pages) {
    return ReadPages("list", max_pages,
                     [&](const std::string& next) -> absl::StatusOr<InstancePage> {
                       if (next == "lost") return absl::UnavailableError("lost");
                       return pages[next];
                     });
  };
  add("", "a", "2");
  add("2", "b", "");
  const auto all = read(2);
  ASSERT_OK(all);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->at(1).id, "b");
  EXPECT_THAT(read(1), StatusIs(Code::kUnknown, "list: more than 1 pages"));
  add("2", "a", "");
  EXPECT_THAT(read(2), StatusIs(Code::kUnknown, "list: a came twice"));
  // An id of an instance that no longer bills counts, too.
  pages["2"].instances.clear();
  EXPECT_THAT(read(2), StatusIs(Code::kUnknown));
  add("2", "b", "lost");
  EXPECT_THAT(read(3), StatusIs(Code::kUnavailable, "lost"));
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
