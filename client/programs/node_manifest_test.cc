#include "client/programs/node_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

nlohmann::json Platform(char digit) {
  const std::string digest(64, digit);
  const nlohmann::json file = {{"sha256", digest}, {"size", 1000}};
  return {{"archive", "gpuctl-node-0.1.0-linux-x86_64.tar.zst"},
          {"sha256", digest},
          {"size", 500},
          {"files", {{"gpuctl-agent", file}, {"gpuctl-shim", file}, {"gpuctl-cuda-check", file}}}};
}

nlohmann::json Manifest() {
  return {{"version", "0.1.0"},
          {"api_level", 2},
          {"commit_time_s", 1790000000},
          {"platforms", {{"linux-x86_64", Platform('a')}, {"linux-aarch64", Platform('b')}}},
          {"roots_sha256", std::string(64, 'c')}};
}

TEST(NodeManifestTest, SaysWhatIsInARelease) {
  const auto manifest = ParseNodeManifest(Manifest().dump());
  ASSERT_OK(manifest);
  EXPECT_EQ(manifest->version, "0.1.0");
  EXPECT_EQ(manifest->api_level, 2);
  EXPECT_EQ(manifest->commit_time_s, 1790000000);
  EXPECT_EQ(manifest->roots_sha256, std::string(64, 'c'));
  const NodeManifest::Platform* const arm = manifest->For(NodePlatform::kLinuxAarch64);
  ASSERT_NE(arm, nullptr);
  EXPECT_EQ(arm->archive, "gpuctl-node-0.1.0-linux-x86_64.tar.zst");
  EXPECT_EQ(arm->size, 500);
  EXPECT_EQ(arm->files.at("gpuctl-shim").sha256, std::string(64, 'b'));
  EXPECT_EQ(manifest->For(NodePlatform::kMacArm64), nullptr);
}

TEST(NodeManifestTest, LaterReleasesMayHaveMore) {
  nlohmann::json json = Manifest();
  json["platforms"]["linux-riscv64"] = "something";
  json["signed_by"] = "somebody";
  EXPECT_OK(ParseNodeManifest(json.dump()));
}

TEST(NodeManifestTest, RefusesWhatIsNone) {
  const auto broken = [](const std::string& pointer, const nlohmann::json& value) {
    nlohmann::json json = Manifest();
    json[nlohmann::json::json_pointer(pointer)] = value;
    return json.dump();
  };
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), broken("/version", 1),
        broken("/api_level", "2"), broken("/commit_time_s", nullptr), broken("/platforms", "x"),
        broken("/roots_sha256", "abc"), broken("/platforms/linux-x86_64", 7),
        broken("/platforms/linux-x86_64/sha256", std::string(64, 'G')),
        broken("/platforms/linux-x86_64/archive", "../evil"),
        broken("/platforms/linux-x86_64/archive", "a/b"),
        broken("/platforms/linux-x86_64/archive", ""),
        broken("/platforms/linux-x86_64/files", nlohmann::json::object()),
        broken("/platforms/linux-x86_64/files/gpuctl-shim/sha256", std::string(63, 'a'))}) {
    EXPECT_THAT(ParseNodeManifest(text),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("manifest")))
        << text;
  }
}

TEST(NodeManifestTest, TheAddressOfARelease) {
  setenv("GPUCTL_NODE_URL", "https://example.com/releases", 1);
  EXPECT_EQ(ReleaseAddress(), "https://example.com/releases/");
  setenv("GPUCTL_NODE_URL", "https://example.com/releases/", 1);
  EXPECT_EQ(ReleaseAddress(), "https://example.com/releases/");
  unsetenv("GPUCTL_NODE_URL");
}

}  // namespace
}  // namespace gpuctl
