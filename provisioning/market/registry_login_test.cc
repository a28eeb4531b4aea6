#include "provisioning/market/registry_login.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RegistryLogin, AnImagesNameTellsItsRegistry) {
  EXPECT_EQ(RegistryOfImage("ghcr.io/ada/tool:1"), "ghcr.io");
  EXPECT_EQ(RegistryOfImage("GHCR.io/ada/tool@sha256:00"), "ghcr.io");
  EXPECT_EQ(RegistryOfImage("localhost/tool"), "localhost");
  EXPECT_EQ(RegistryOfImage("registry:5000/tool"), "registry:5000");
  for (const char* hub : {"ubuntu", "ubuntu:22.04", "ada/tool", "ada/tool:1.2",
                          "docker.io/ada/tool", "index.docker.io/ada/tool"}) {
    EXPECT_EQ(RegistryOfImage(hub), "docker.io") << hub;
  }
}

TEST(RegistryLogin, ARegistryIsAHost) {
  EXPECT_EQ(*CheckedRegistry("https://GHCR.io"), "ghcr.io");
  EXPECT_EQ(*CheckedRegistry("https://index.docker.io/v1/"), "docker.io");
  EXPECT_EQ(*CheckedRegistry("registry.example:5000"), "registry.example:5000");
  for (const char* bad : {"", "ghcr.io/ada", "two words", "-u", "a:b", "a:0", "a;b", "http://a"}) {
    EXPECT_THAT(CheckedRegistry(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
}

TEST(RegistryLogin, OneLoginHasOneNameAndAnotherHasAnother) {
  const RegistryLogin login = {"ghcr.io", "ada", "pass-word-1"};
  const std::string name = StoredLoginName("00ff12ab", login, "key");
  EXPECT_EQ(name, StoredLoginName("00ff12ab", login, "key"));
  EXPECT_TRUE(IsStoredLoginOf("00ff12ab", name)) << name;
  EXPECT_FALSE(IsStoredLoginOf("00ff12ac", name));
  EXPECT_FALSE(IsStoredLoginOf("00ff12ab", name + "0"));
  EXPECT_FALSE(IsStoredLoginOf("00ff12ab", "dockerhub-private"));
  EXPECT_FALSE(IsStoredLoginOf("00ff12ab", "gpuctl-00ff12ab-0123456789ab"));
  for (const RegistryLogin& other : {RegistryLogin{"ghcr.io", "ada", "pass-word-2"},
                                     RegistryLogin{"ghcr.io", "ad", "apass-word-1"},
                                     RegistryLogin{"docker.io", "ada", "pass-word-1"}}) {
    EXPECT_NE(name, StoredLoginName("00ff12ab", other, "key"));
  }
  // Who does not have the key cannot try passwords against the name.
  EXPECT_NE(name, StoredLoginName("00ff12ab", login, "another key"));
}

TEST(RegistryLogin, KnowsTheWordsOfADaemonWithoutItsImage) {
  for (const char* words :
       {"Error response from daemon: pull access denied for ada/tool, repository does not exist or "
        "may require 'docker login'",
        "Error response from daemon: Head \"https://ghcr.io/v2/ada/tool/manifests/1\": denied: "
        "denied",
        "Error response from daemon: Get \"https://x/v2/\": unauthorized: incorrect username or "
        "password",
        "manifest for ada/tool:2 not found: manifest unknown: manifest unknown",
        "error: no basic auth credentials"}) {
    EXPECT_TRUE(SaysImageFails(words)) << words;
  }
  for (const char* words : {"", "pulling image ada/tool:1", "success, running ada/tool_1",
                            "OCI runtime create failed: permission denied: unknown"}) {
    EXPECT_FALSE(SaysImageFails(words)) << words;
  }
}

TEST(RegistryLogin, APasswordIsHidden) {
  const RegistryLogin login = {"ghcr.io", "ada", "s3cret"};
  EXPECT_EQ(WithoutPassword("docker login -p s3cret: s3cret", login),
            "docker login -p [hidden]: [hidden]");
  EXPECT_EQ(WithoutPassword(R"({"said":"a \"quoted\" word", "or": "a "quoted" word"})",
                            {"ghcr.io", "ada", "a \"quoted\" word"}),
            R"({"said":"[hidden]", "or": "[hidden]"})");
  EXPECT_EQ(WithoutPassword("text", {"ghcr.io", "ada", ""}), "text");
  EXPECT_THAT(DescribeLogin(login), Not(HasSubstr("s3cret")));
}

}  // namespace
}  // namespace gpuctl
