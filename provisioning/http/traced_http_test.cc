#include "provisioning/http/traced_http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/support/fake_http.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class TracedHttpTest : public ::testing::Test {
 protected:
  TracedHttpTest() {
    auto fake = std::make_unique<FakeHttp>();
    fake_ = fake.get();
    http_ = MakeTracedHttp(std::move(fake), clock_,
                           [this](absl::string_view line) { lines_.emplace_back(line); });
    request_.method = "POST";
    request_.url = "https://api.example/v2/pods?api_key=verysecret";
    request_.headers = {{"Authorization", "Bearer rpa_verysecret"}};
    request_.body = R"({"env":{"PUBLIC_KEY":"verysecret"}})";
  }
  SteppingClock clock_;
  FakeHttp* fake_;
  std::unique_ptr<Http> http_;
  HttpRequest request_;
  std::vector<std::string> lines_;
};

TEST_F(TracedHttpTest, OneLineARequest) {
  fake_->Answer(201, R"({"id":"p1"})", {{"x-request-id", "req-7"}});
  ASSERT_OK(http_->Send(request_));
  EXPECT_THAT(lines_, ElementsAre("POST https://api.example/v2/pods?api_key=[hidden]: 201 in "
                                  "0.0 ms, request req-7"));
}

TEST_F(TracedHttpTest, ErrorsShowTheirBodyWithoutSecrets) {
  fake_->Answer(400, "{\"detail\":\"bad key rpa_verysecret\",\"env\":{\"A\":\"verysecret\"}}");
  fake_->Answer(absl::UnknownError("reset after\nrpa_verysecret"));
  ASSERT_OK(http_->Send(request_));
  EXPECT_FALSE(http_->Send(request_).ok());
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_THAT(lines_[0], HasSubstr("400"));
  EXPECT_THAT(lines_[0], HasSubstr("bad key [hidden]"));
  EXPECT_THAT(lines_[1], HasSubstr("UNKNOWN (reset after [hidden])"));
  for (const std::string& line : lines_) EXPECT_THAT(line, Not(HasSubstr("verysecret")));
}

TEST_F(TracedHttpTest, AKeyInAnotherHeaderIsHiddenToo) {
  request_.headers = {{"X-API-KEY", "rpa_verysecret"}, {"Accept", "application/json"}};
  fake_->Answer(403, R"({"error":"X-API-KEY: rpa_verysecret is no key"})");
  ASSERT_OK(http_->Send(request_));
  EXPECT_THAT(lines_.at(0), HasSubstr("X-API-KEY: [hidden] is no key"));
}

TEST_F(TracedHttpTest, AnErrorDoesNotRepeatTheRequestsSecrets) {
  request_.body = R"({"image":"i","image_login":"-u ada-l -p pass-word-1 ghcr.io"})";
  fake_->Answer(400, R"({"msg":"cannot parse -u ada-l -p pass-word-1 ghcr.io of image i"})");
  ASSERT_OK(http_->Send(request_));
  request_.body = R"({"name":"n","username":"ada","password":"two words of it"})";
  // A cut leaves no part of it.
  fake_->Answer(422, absl::StrCat(R"({"detail":")", std::string(370, 'x'), R"(two words of it"})"));
  ASSERT_OK(http_->Send(request_));
  request_.body = R"({"name":"n","username":"ada","password":"a \"quoted\" one"})";
  fake_->Answer(422, R"({"detail":"no such password: a \"quoted\" one"})");
  ASSERT_OK(http_->Send(request_));
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_THAT(lines_[2], AllOf(HasSubstr("no such password: [hidden]"), Not(HasSubstr("quoted"))));
  EXPECT_THAT(lines_[0], HasSubstr("cannot parse -u ada-l -p [hidden]"));
  EXPECT_THAT(lines_[0], HasSubstr("of image i"));
  EXPECT_THAT(lines_[1], AllOf(HasSubstr("xxx"), Not(HasSubstr("two w"))));
}

}  // namespace
}  // namespace gpuctl
