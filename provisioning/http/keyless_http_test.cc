#include "provisioning/http/keyless_http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_http.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

TEST(KeylessHttp, AnAnswerThatRepeatsTheKeyLosesIt) {
  auto fake = std::make_unique<FakeHttp>();
  fake->Answer(401, R"({"msg":"Invalid user key rpa_very\/\"secret for \"rpa_very/\"secret\""})",
               {});
  fake->Answer(200, R"({"id":"p1"})", {});
  const std::unique_ptr<Http> http = MakeKeylessHttp(std::move(fake));
  HttpRequest request;
  request.headers = {{"Authorization", "Bearer rpa_very/\"secret"}};
  const auto refused = http->Send(request);
  ASSERT_OK(refused);
  EXPECT_EQ(refused->status, 401);
  EXPECT_EQ(refused->body.find("rpa_very/\"secret"), std::string::npos) << refused->body;
  EXPECT_NE(refused->body.find("[hidden]"), std::string::npos) << refused->body;
  EXPECT_EQ(http->Send(request)->body, R"({"id":"p1"})");
}

TEST(KeylessHttp, TheHeadersNameDoesNotMatter) {
  auto fake = std::make_unique<FakeHttp>();
  fake->Answer(409, R"({"error":"application/json: key-of-mine is not allowed"})", {});
  const std::unique_ptr<Http> http = MakeKeylessHttp(std::move(fake));
  HttpRequest request;
  request.headers = {{"X-API-KEY", "key-of-mine"}, {"Accept", "application/json"}};
  EXPECT_EQ(http->Send(request)->body, R"({"error":"application/json: [hidden] is not allowed"})");
}

}  // namespace
}  // namespace gpuctl
