#include "client/spec/registry_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;

TEST(RegistryRequest, IsAUserASecretsNameAndAServer) {
  const auto whole = ParseRegistryRequest("ada:GHCR_TOKEN@https://GHCR.io");
  ASSERT_OK(whole);
  EXPECT_EQ(whole->username, "ada");
  EXPECT_EQ(whole->password, "GHCR_TOKEN");
  EXPECT_EQ(whole->server, "ghcr.io");
  const auto image = ParseRegistryRequest("ada@example.org:TOKEN");
  ASSERT_OK(image);
  EXPECT_EQ(image->username, "ada@example.org");
  EXPECT_EQ(image->server, "");
  // NVIDIA's user of all keys.
  EXPECT_EQ(ParseRegistryRequest("$oauthtoken:NGC_KEY@nvcr.io")->username, "$oauthtoken");
  EXPECT_EQ(ParseRegistryRequest("ada:TOKEN@registry:5000")->server, "registry:5000");
  for (const char* bad : {"", "ada", "ada@ghcr.io", ":TOKEN", "ada:", "ada:TOKEN@", "a da:TOKEN",
                          "ada:TOKEN@ghcr.io/ada", "ada:TOKEN@a@b"}) {
    EXPECT_THAT(ParseRegistryRequest(bad), StatusIs(Code::kInvalidArgument)) << bad;
  }
}

TEST(RegistryRequest, APasswordInItsPlaceIsRefusedAndNotShown) {
  for (const char* text : {"ada:s3cret-word", "ada:s3cret-word@ghcr.io", "ada:s3cret word"}) {
    EXPECT_THAT(ParseRegistryRequest(text),
                StatusIs(Code::kInvalidArgument,
                         AllOf(HasSubstr("name of a secret"), Not(HasSubstr("s3cret")))));
  }
}

TEST(RegistryRequest, IsForTheRegistryOfTheImage) {
  RegistryRequest request = {"ghcr.io", "ada", "TOKEN"};
  EXPECT_OK(CheckRegistryFits(request, "ghcr.io/ada/tool:1"));
  EXPECT_THAT(
      CheckRegistryFits(request, "ada/tool:1"),
      StatusIs(Code::kInvalidArgument, AllOf(HasSubstr("ghcr.io"), HasSubstr("docker.io"))));
  EXPECT_THAT(CheckRegistryFits(request, ""),
              StatusIs(Code::kInvalidArgument, HasSubstr("there is no image")));
  request.server.clear();
  EXPECT_OK(CheckRegistryFits(request, "ada/tool:1"));
  EXPECT_OK(CheckRegistryFits({}, ""));
}

}  // namespace
}  // namespace gpuctl
