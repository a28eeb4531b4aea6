// Which defaults count: user, project, environment; what a project cannot do.
#include "client/config/settings.h"

#include "client/config/cluster_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "client/base/exit_codes.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<Setting> Parse(const std::string& text, Origin origin) {
  const auto parsed = ParseSettings(text, "F", origin);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : std::vector<Setting>();
}

std::string ErrorOf(const std::string& text, Origin origin = Origin::kUser) {
  return std::string(ParseSettings(text, "F", origin).status().message());
}

// Applies all that counts for a rented machine.
RunSpec Applied(const std::string& user, const std::string& project, RunSpec spec = {}) {
  Settings settings =
      Settings::Of(Parse(user, Origin::kUser), Parse(project, Origin::kProject), {});
  EXPECT_TRUE(settings.Apply(false, spec).ok());
  EXPECT_TRUE(settings.Apply(true, spec).ok());
  return spec;
}

TEST(Settings, HaveTheRunFilesFields) {
  const RunSpec spec = Applied(
      "checkpoints = ['a', 'b']\n[resources]\nmax_price = 2.5\nprovider = 'vast'\n"
      "[limits]\ntime = '6h'\nsalvage = '3h'\n",
      "");
  EXPECT_EQ(spec.max_price_usd_per_hour, 2.5);
  EXPECT_THAT(spec.providers, ElementsAre("vast"));
  EXPECT_THAT(spec.checkpoints, ElementsAre("a", "b"));
  EXPECT_EQ(spec.time_limit, absl::Hours(6));
  EXPECT_EQ(spec.salvage, absl::Hours(3));
}

TEST(Settings, GiveWayToTheRunFileAndToFlags) {
  RunSpec spec;
  spec.given = {"resources.max_price"};
  spec.flagged = {"limits.time"};
  spec.max_price_usd_per_hour = 9;
  const RunSpec applied =
      Applied("grace = '5m'\n[resources]\nmax_price = 2\n[limits]\ntime = '6h'\n", "", spec);
  EXPECT_EQ(applied.max_price_usd_per_hour, 9);
  EXPECT_EQ(applied.time_limit, absl::Hours(24));
  EXPECT_EQ(applied.grace, absl::Minutes(5));
}

TEST(Settings, OfRentedMachinesCountForThoseAlone) {
  Settings settings = Settings::Of(
      Parse("grace = '5m'\n[resources]\nmax_price = 2\nspot = true\n", Origin::kUser), {}, {});
  RunSpec spec;
  ASSERT_TRUE(settings.Apply(false, spec).ok());
  EXPECT_TRUE(CheckNothingRented(spec).ok());
  EXPECT_EQ(spec.grace, absl::Minutes(5));
}

TEST(Settings, AProjectCanOnlyLowerWhatLimitsMoney) {
  const std::string user = "[resources]\nmax_price = 2\n[limits]\ncost = 10\n";
  RunSpec spec = Applied(user, "[resources]\nmax_price = 50\n[limits]\ncost = 3\ntime = '48h'\n");
  EXPECT_EQ(spec.max_price_usd_per_hour, 2);
  EXPECT_EQ(spec.cost_limit_usd, 3);
  EXPECT_EQ(spec.time_limit, absl::Hours(24));
  // Where the user has no limit, any limit is less.
  spec = Applied("", "[resources]\nmax_price = 50\n");
  EXPECT_EQ(spec.max_price_usd_per_hour, 50);
  const Settings settings =
      Settings::Of({}, Parse("[limits]\nidle = '5h'\n", Origin::kProject), {});
  ASSERT_EQ(settings.ignored().size(), 1U);
  EXPECT_THAT(settings.ignored()[0].ignored, HasSubstr("only lower"));
}

TEST(Settings, AProjectChoosesAmongTheUsersProviders) {
  const std::string user = "[resources]\nprovider = ['vast', 'lambda']\n";
  EXPECT_THAT(Applied(user, "[resources]\nprovider = ['runpod', 'lambda']\n").providers,
              ElementsAre("lambda"));
  EXPECT_THAT(Applied(user, "[resources]\nprovider = 'runpod'\n").providers,
              ElementsAre("vast", "lambda"));
  EXPECT_THAT(Applied("", "[resources]\nprovider = 'runpod'\n").providers, ElementsAre("runpod"));
}

TEST(Settings, AProjectRunsNoCommand) {
  for (const char* text :
       {"notify.command = 'curl evil'\n", "notify = {webhook = 'https://evil.example/x'}\n",
        "[resources]\non_price_rise = 'accept'\n", "[limits]\nsalvage = '1s'\n",
        "[limits]\nlease = '1s'\n", "[notify]\ndesktop = true\n"}) {
    EXPECT_THAT(ErrorOf(text, Origin::kProject), HasSubstr("cannot come from a project")) << text;
    EXPECT_EQ(ErrorOf(text, Origin::kUser), "") << text;
  }
}

TEST(Settings, ErrorsNameThePlaceAndTheNearestKey) {
  EXPECT_EQ(ErrorOf("[limits]\ntme = '6h'\n"),
            "F:2:1: unknown setting \"limits.tme\" (did you mean \"limits.time\"?)");
  EXPECT_EQ(ErrorOf("max_price = 3\n"),
            "F:1:1: unknown setting \"max_price\" (did you mean \"resources.max_price\"?)");
  EXPECT_THAT(ErrorOf("[limits]\ntime = 6\n"), HasSubstr("F:2:8: limits.time: "));
  EXPECT_THAT(ErrorOf("run = 'rm -rf /'\n"), HasSubstr("only a run file has it"));
  EXPECT_THAT(ErrorOf("a = \n"), HasSubstr("F:1:"));
  EXPECT_THAT(ErrorOf("grace = 1979-05-27\n"), HasSubstr("must be a text"));
  EXPECT_THAT(ErrorOf("[notify]\nwebhook = 'ftp://hooks.example/T0/secret'\n"),
              Not(HasSubstr("secret'")));
  const auto status = ParseSettings("# ä\ngrace = [ 'ä', {} ]\n", "F", Origin::kUser).status();
  ASSERT_TRUE(ExcerptOf(status).has_value());
  EXPECT_EQ(ExcerptOf(status)->line, 2);
  EXPECT_EQ(ExcerptOf(status)->column, 17);
}

TEST(Settings, AVariableCountsBeforeTheRunFile) {
  const TempDir dir;
  setenv("GPUCTL_MAX_PRICE", "1.5", 1);
  setenv("GPUCTL_REGION", "US,EU", 1);
  absl::StatusOr<Settings> settings = Settings::Read(dir.path(), dir.path());
  unsetenv("GPUCTL_REGION");
  setenv("GPUCTL_MAX_PRICE", "much", 1);
  EXPECT_THAT(Settings::Read(dir.path(), dir.path()).status().message(),
              HasSubstr("GPUCTL_MAX_PRICE: "));
  unsetenv("GPUCTL_MAX_PRICE");
  ASSERT_TRUE(settings.ok()) << settings.status();
  RunSpec spec;
  spec.given = {"resources.max_price", "resources.region"};
  ASSERT_TRUE(settings->Apply(true, spec).ok());
  EXPECT_EQ(spec.max_price_usd_per_hour, 1.5);
  EXPECT_THAT(spec.regions, ElementsAre("US", "EU"));
}

TEST(FindProjectFile, LooksUpToTheRepositorysRoot) {
  const TempDir dir;
  const std::string repo = JoinPath(dir.path(), "repo"), deep = JoinPath(repo, "a/b");
  ASSERT_TRUE(MakeDirectories(deep).ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(dir.path(), "gpuctl.toml"), "").ok());
  // Nothing bounds the project: only its own directory counts.
  EXPECT_EQ(FindProjectFile(deep), "");
  EXPECT_EQ(FindProjectFile(dir.path()), JoinPath(dir.path(), "gpuctl.toml"));
  ASSERT_TRUE(MakeDirectories(JoinPath(repo, ".git")).ok());
  EXPECT_EQ(FindProjectFile(deep), "");
  ASSERT_TRUE(WriteFileAtomic(JoinPath(repo, "gpuctl.toml"), "").ok());
  EXPECT_EQ(FindProjectFile(deep), JoinPath(repo, "gpuctl.toml"));
}

TEST(FindSettingKey, TakesTheLastWord) {
  EXPECT_STREQ(FindSettingKey("max_price")->key, "resources.max_price");
  EXPECT_STREQ(FindSettingKey("limits.cost")->key, "limits.cost");
  EXPECT_THAT(FindSettingKey("max_prize").status().message(), HasSubstr("did you mean"));
}

TEST(WarmLink, IsATimeOrOff) {
  TempDir dir;
  const auto read = [&dir](const std::string& text) -> absl::StatusOr<absl::Duration> {
    RETURN_IF_ERROR(WriteFileAtomic(dir.path() + "/config.toml", text));
    return ReadWarmLink(dir.path());
  };
  EXPECT_EQ(*read(""), absl::Minutes(10));
  EXPECT_EQ(*read("warm_link = false\n"), absl::ZeroDuration());
  EXPECT_EQ(*read("warm_link = \"off\"\n"), absl::ZeroDuration());
  EXPECT_EQ(*read("warm_link = true\n"), absl::Minutes(10));
  EXPECT_EQ(*read("warm_link = \"90s\"\n"), absl::Seconds(90));
  for (const char* wrong : {"warm_link = \"2h\"\n", "warm_link = \"-1s\"\n", "warm_link = 5\n",
                            "warm_link = \"soon\"\n", "warm_link = [\"1m\"]\n"}) {
    EXPECT_THAT(read(wrong).status().message(), HasSubstr("warm_link: must be a time")) << wrong;
  }
  setenv("GPUCTL_WARM_LINK", "off", 1);
  EXPECT_EQ(*read("warm_link = \"90s\"\n"), absl::ZeroDuration());
  setenv("GPUCTL_WARM_LINK", "sometimes", 1);
  EXPECT_THAT(read("").status().message(), HasSubstr("GPUCTL_WARM_LINK: must be a time"));
  unsetenv("GPUCTL_WARM_LINK");
}

TEST(ClusterSettings, AreReadFromTheUsersFileAndTheEnvironment) {
  const std::string dir = testing::TempDir() + "/cluster-settings";
  ASSERT_OK(MakeDirectories(dir));
  ASSERT_OK(WriteFileAtomic(UserConfigFile(dir),
                            "[slurm]\nhost = \"ada@login\"\npartition = \"main\"\n"
                            "time = \"12h\"\ngpus = [\"gpu=h100\"]\nflags = [\"--mem=0\"]\n"
                            "without = \"--signal\"\n"));
  setenv("GPUCTL_SLURM_PARTITION", "low", 1);
  const absl::StatusOr<ClusterSettings> read = ReadClusterSettings(dir);
  unsetenv("GPUCTL_SLURM_PARTITION");
  ASSERT_OK(read);
  EXPECT_EQ(read->host, "ada@login");
  EXPECT_EQ(read->options.partition, "low");
  EXPECT_EQ(read->options.time, absl::Hours(12));
  EXPECT_EQ(read->options.gpus.at("gpu"), "H100");
  EXPECT_THAT(read->options.flags, ElementsAre("--mem=0"));
  EXPECT_EQ(read->options.without.count("--signal"), 1u);
  EXPECT_EQ(read->options.results, "~/.gpuctl-results");
  for (const auto& [value, results] :
       {std::pair("/data/ada/", "/data/ada"), {"~/r", "~/r"}, {"off", ""}}) {
    setenv("GPUCTL_SLURM_RESULTS", value, 1);
    EXPECT_EQ(ReadClusterSettings(dir)->options.results, results) << value;
  }
  unsetenv("GPUCTL_SLURM_RESULTS");
  for (const char* wrong : {"host = \"-oProxyCommand=x\"", "time = \"soon\"", "gpus = \"h100\"",
                            "flags = \"mem\"", "host = true", "results = \"here\""}) {
    ASSERT_OK(WriteFileAtomic(UserConfigFile(dir), absl::StrCat("[slurm]\n", wrong, "\n")));
    EXPECT_THAT(ReadClusterSettings(dir), StatusIs(absl::StatusCode::kInvalidArgument)) << wrong;
  }
}

TEST(SettingKeys, AreFieldsOfRunFiles) {
  for (const SettingKey& key : SettingKeys()) {
    if (std::string_view(key.key) == "warm_link" || IsClusterKey(key.key)) continue;
    RunSpec spec;
    EXPECT_FALSE(absl::IsNotFound(SetRunField(key.key, true, "", spec))) << key.key;
  }
}

}  // namespace
}  // namespace gpuctl
