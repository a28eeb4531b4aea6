#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "provisioning/rest/rest_api.h"
#include "provisioning/vast/vast_provider.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_http.h"

namespace gpuctl {
namespace {

TEST(VastCharges, TellWhatTrafficHasCost) {
  const auto http = std::make_shared<ScriptedHttp>("http://vast.test");
  const auto provider = MakeVastProvider(http, {"http://vast.test", "key-1"});
  const std::string first =
      "/api/v0/charges/?limit=500&select_filters=" +
      UrlEncode(R"({"day":{"gte":1000,"lte":2001},"type":{"in":["instance"]}})");
  const auto page = [](const char* rows, const char* next) {
    return absl::StrCat(R"({"success":true,"results":[)", rows, R"(],"next_token":)", next, "}");
  };
  http->On("GET", first, 200,
           page(R"({"source":"instance-312","type":"instance","amount":3,
      "items":[{"type":"gpu","amount":2.5},{"type":"bwd","amount":0.4},
               {"type":"bwu","amount":0.1}]},
      {"source":"volume-312","items":[{"type":"bwd","amount":9}]},
      {"source":null,"items":[]})",
                R"("a=")"))
      .On("GET", first + "&after_token=a%3D", 200,
          page(R"({"source":"instance-313","items":[{"type":"disk","amount":1}]},
      {"source":"instance-312","items":[{"type":"bwu","amount":0.25},
               {"type":"bwu","amount":-1}]})",
               "null"));
  const auto charges = provider->ListTrafficCharges(1'000'000, 2'000'000);
  ASSERT_OK(charges);
  ASSERT_EQ(charges->size(), 2u);
  EXPECT_DOUBLE_EQ(charges->at("312"), 0.75);
  EXPECT_DOUBLE_EQ(charges->at("313"), 0);
  EXPECT_EQ(http->request(0).rate_class, "charges");
  // Anything else is unknown, and never nothing.
  http->On("GET", first, 200, page("", R"("a=")"))
      .On("GET", first + "&after_token=a%3D", 200, page("", R"("a=")"));
  EXPECT_THAT(provider->ListTrafficCharges(1'000'000, 2'000'000),
              StatusIs(absl::StatusCode::kUnknown));
  for (const char* body : {"{}", "[]", "<html>", R"({"results":null})", R"({"results":[7]})",
                           R"({"success":false,"results":[]})"}) {
    http->On("GET", first, 200, body);
    EXPECT_FALSE(provider->ListTrafficCharges(1'000'000, 2'000'000).ok()) << body;
  }
}

}  // namespace
}  // namespace gpuctl
