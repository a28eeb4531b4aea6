// Changes to TOML text keep comments, layout and all other values.
#include "client/config/toml_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

std::string Set(const std::string& text, const std::string& key, const nlohmann::json& value) {
  const auto changed = SetInToml(text, "F", key, value);
  return changed.ok() ? *changed : std::string(changed.status().message());
}

std::string Remove(const std::string& text, const std::string& key) {
  const auto changed = RemoveFromToml(text, "F", key);
  return changed.ok() ? *changed : std::string(changed.status().message());
}

TEST(SetInToml, ChangesAValueAndKeepsTheRest) {
  EXPECT_EQ(Set("# mine\n[limits]\ntime = \"6h\"  # long\ncost=3\n", "limits.time", "8h"),
            "# mine\n[limits]\ntime = \"8h\"  # long\ncost=3\n");
  EXPECT_EQ(Set("a = [ # one\n  1,\n  2 ] # end\nb = 2\n", "a", 5), "a = 5 # end\nb = 2\n");
  EXPECT_EQ(Set("ä = 1", "b", 2), "F:1:1: " + Set("ä = 1", "b", 2).substr(7));
  EXPECT_EQ(Set("x = {b = \"ä\", c = 1}\n", "x.c", 2), "x = {b = \"ä\", c = 2}\n");
  EXPECT_EQ(Set("limits.time = '1h'\n", "limits.time", "2h"), "limits.time = \"2h\"\n");
  EXPECT_EQ(Set("a = \"\"\"x \\\n  ä\"\"\"\nb = 1\n", "b", 2),
            "a = \"\"\"x \\\n  ä\"\"\"\nb = 2\n");
}

TEST(SetInToml, AddsAValueToItsTable) {
  EXPECT_EQ(Set("", "grace", "5m"), "grace = \"5m\"\n");
  EXPECT_EQ(Set("", "limits.cost", 2.5), "[limits]\ncost = 2.5\n");
  EXPECT_EQ(
      Set("# c\n[limits]\n# t\ntime = \"6h\"\n\n[notify]\ndesktop = true\n", "limits.cost", 4),
      "# c\n[limits]\n# t\ntime = \"6h\"\ncost = 4\n\n[notify]\ndesktop = true\n");
  EXPECT_EQ(Set("[limits]\ntime = \"6h\"\n", "grace", "5m"),
            "grace = \"5m\"\n[limits]\ntime = \"6h\"\n");
  EXPECT_EQ(Set("limits.time = '1h'\ngrace = '1s'\n", "limits.cost", 4),
            "limits.time = '1h'\nlimits.cost = 4\ngrace = '1s'\n");
  EXPECT_EQ(Set("grace = '1s'", "a", nlohmann::json::array({"x", "y"})),
            "grace = '1s'\na = [\"x\", \"y\"]\n");
}

TEST(SetInToml, QuotesText) {
  const std::string text = Set("", "a", "q\" \\ \n \x1b");
  EXPECT_EQ(text, "a = \"q\\\" \\\\ \\u000A \\u001B\"\n");
  EXPECT_EQ(ReadToml(text, "F")->at(0).value, "q\" \\ \n \x1b");
}

TEST(SetInToml, RefusesWhatItWouldBreak) {
  EXPECT_THAT(Set("limits = {time = '1h'}\n", "limits.cost", 4), HasSubstr("cannot change"));
  EXPECT_THAT(Set("a = '''\n[limits]\n'''\n", "limits.cost", 4), HasSubstr("[limits]\ncost = 4\n"));
}

TEST(RemoveFromToml, TakesTheLineAway) {
  EXPECT_EQ(Remove("# c\na = 1 # x\nb = 2\n", "a"), "# c\nb = 2\n");
  EXPECT_EQ(Remove("a = [\n1,\n2]\nb = 2\n", "a"), "b = 2\n");
  EXPECT_THAT(Remove("b = 2\n", "a"), HasSubstr("does not set a"));
  // Another value of the line would go, too.
  EXPECT_THAT(Remove("x = {b = 1, c = 1}\n", "x.c"), HasSubstr("cannot change"));
}

TEST(ReadToml, SurvivesNonsense) {
  EXPECT_FALSE(ReadToml(std::string(100'000, '['), "F").ok());
  EXPECT_EQ(ReadToml("a = 1\n[[[\n", "F").status().message().substr(0, 6), "F:2:1:");
  EXPECT_FALSE(ReadToml("[\x01", "F").ok());
  EXPECT_FALSE(ReadToml("a = " + std::string(100'000, '['), "F").ok());
  EXPECT_FALSE(ReadToml(std::string("\0\xff\xfe", 3), "F").ok());
  EXPECT_TRUE(ReadToml("", "F").ok());
  EXPECT_FALSE(ReadToml("a = 1\na = 2\n", "F").ok());
}

}  // namespace
}  // namespace gpuctl
