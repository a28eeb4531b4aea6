#include "provisioning/http/redact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RedactUrl, HidesWhatNamesASecret) {
  EXPECT_EQ(RedactUrl("https://api.example/v2/pods?page=2"), "https://api.example/v2/pods?page=2");
  EXPECT_EQ(RedactUrl("https://api.example/v0/x/?api_key=abc&limit=3"),
            "https://api.example/v0/x/?api_key=[hidden]&limit=3");
  EXPECT_EQ(RedactUrl("https://me:pass@api.example/v2?token=t#part"),
            "https://api.example/v2?token=[hidden]");
  EXPECT_EQ(RedactUrl("https://api.example/?after_token=25"),
            "https://api.example/?after_token=25");
  EXPECT_EQ(RedactUrl("https://api.example/a@b"), "https://api.example/a@b");
  EXPECT_EQ(RedactUrl(""), "");
}

TEST(RedactBody, HidesSecretsAtAnyDepth) {
  const std::string shown = RedactBody(R"({"name":"pod","env":{"HF_TOKEN":"s3cret"},
    "nested":[{"PUBLIC_KEY":"s3cret"},{"instance_api_key":"s3cret"}],"onstart":"echo s3cret",
    "args":"--x s3cret","user_data":"s3cret","jupyter_token":"s3cret","sshKeys":["s3cret"],
    "vars":[{"key":"WANDB","value":"s3cret"}],"status":"RUNNING"})");
  EXPECT_THAT(shown, Not(HasSubstr("s3cret")));
  EXPECT_THAT(shown, HasSubstr("\"status\":\"RUNNING\""));
  EXPECT_THAT(shown, HasSubstr("\"name\":\"pod\""));
}

TEST(RedactBody, KeepsErrorsReadable) {
  const std::string error = R"({"error":{"code":"global/invalid-api-key","message":"wrong"}})";
  EXPECT_EQ(RedactBody(error), error);
}

TEST(RedactBody, ShowsNothingOfWhatIsNotJson) {
  EXPECT_EQ(RedactBody("<html>s3cret</html>"), "(19 bytes)");
  EXPECT_EQ(RedactBody("\"s3cret\""), "(8 bytes)");
  EXPECT_EQ(RedactBody("{\"token\":\"s3cr"), "(14 bytes)");
  EXPECT_EQ(RedactBody(""), "");
}

TEST(RedactBody, SurvivesDeepNesting) {
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "{\"a\":";
  deep += "{\"key\":\"s3cret\"}";
  deep += std::string(200, '}');
  EXPECT_THAT(RedactBody(deep), Not(HasSubstr("s3cret")));
}

}  // namespace
}  // namespace gpuctl
