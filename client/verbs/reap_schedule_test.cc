#include "client/verbs/reap_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

ReapJob Job() {
  ReapJob job;
  job.program = "/opt/my tools/gpu<ctl";
  job.where = {{"GPUCTL_STATE_DIR", "/home/a b/50%"}};
  job.every = absl::Minutes(10);
  job.log = "/home/a b/reap.log";
  return job;
}

TEST(ReapSchedule, ThePlistRunsReapAndEscapes) {
  const std::string plist = LaunchdPlist(Job());
  EXPECT_THAT(plist, HasSubstr("<string>/opt/my tools/gpu&lt;ctl</string>"));
  EXPECT_THAT(plist, HasSubstr("<string>reap</string>\n    <string>-y</string>"));
  EXPECT_THAT(plist, HasSubstr("<key>StartInterval</key><integer>600</integer>"));
  EXPECT_THAT(plist, HasSubstr("<key>GPUCTL_STATE_DIR</key><string>/home/a b/50%</string>"));
}

TEST(ReapSchedule, TheUnitsRunReapAndEscape) {
  EXPECT_THAT(SystemdService(Job()), HasSubstr("ExecStart=\"/opt/my tools/gpu<ctl\" reap -y\n"));
  EXPECT_THAT(SystemdService(Job()), HasSubstr("Environment=\"GPUCTL_STATE_DIR=/home/a b/50%%\""));
  EXPECT_THAT(SystemdTimer(Job()), HasSubstr("OnUnitActiveSec=600s"));
}

TEST(ReapSchedule, CronSaysPartsOfHoursAndDays) {
  ReapJob job = Job();
  EXPECT_EQ(CronLine(job).value(),
            "*/10 * * * * GPUCTL_STATE_DIR='/home/a b/50\\%' '/opt/my tools/gpu<ctl' reap -y "
            "2>>'/home/a b/reap.log' # gpuctl reap");
  job.every = absl::Hours(2);
  EXPECT_THAT(CronLine(job).value(), HasSubstr("0 */2 * * * "));
  for (const absl::Duration odd : {absl::Seconds(90), absl::Minutes(7), absl::Hours(5)}) {
    job.every = odd;
    EXPECT_THAT(CronLine(job), StatusIs(absl::StatusCode::kInvalidArgument)) << odd;
  }
  job = Job();
  job.where["GPUCTL_CACHE_DIR"] = std::string(900, 'c');
  EXPECT_THAT(CronLine(job), StatusIs(absl::StatusCode::kInvalidArgument)) << "it runs no more";
}

TEST(ReapSchedule, OtherLinesOfACrontabStay) {
  const std::string ours = "*/10 * * * * x reap -y 2>>l # gpuctl reap";
  EXPECT_EQ(ReplaceCronLine("", ours), ours + "\n");
  EXPECT_EQ(ReplaceCronLine("MAILTO=me\n0 1 * * * backup\n", ours),
            "MAILTO=me\n0 1 * * * backup\n" + ours + "\n");
  EXPECT_EQ(ReplaceCronLine("a\n*/5 * * * * y reap -y 2>>m # gpuctl reap\nb", ours),
            "a\nb\n" + ours + "\n");
  EXPECT_EQ(ReplaceCronLine("a\n" + ours + "\nb\n", ""), "a\nb\n");
  EXPECT_EQ(ReplaceCronLine("a\nb\n", ""), "a\nb\n");
  // The user's own words, and a line of ours that the user has switched off.
  const std::string words = "# gpuctl reap\n#" + ours + "\n0 1 * * * mail # gpuctl reap\n";
  EXPECT_EQ(ReplaceCronLine(words, ""), words);
  EXPECT_EQ(ReplaceCronLine(words, ours), words + ours + "\n");
}

#ifdef __linux__
// A home with a crontab and a systemctl of its own in $PATH, and one key.
class ReapInstall : public ::testing::Test {
 protected:
  ReapInstall() : path_(std::getenv("PATH")) {
    setenv("PATH", absl::StrCat(dir_.Sub("bin"), ":/bin").c_str(), 1);
    setenv("GPUCTL_STATE_DIR", dir_.Sub("state").c_str(), 1);
    setenv("GPUCTL_KEY_STORE", "file", 1);
    setenv("XDG_CONFIG_HOME", dir_.Sub("config").c_str(), 1);
    setenv("HOME", dir_.path().c_str(), 1);
    for (const char* market : {"RUNPOD", "LAMBDA", "VAST"}) {
      unsetenv(absl::StrCat("GPUCTL_", market, "_API_KEY").c_str());
      unsetenv(absl::StrCat(market, "_API_KEY").c_str());
    }
    // systemd has no user manager here.
    dir_.Write("bin/systemctl", "#!/bin/sh\nexit 1\n", 0755);
    dir_.Write("config/gpuctl/keys/vast", "stored-key\n", 0600);
  }
  ~ReapInstall() override {
    setenv("PATH", path_.c_str(), 1);
    unsetenv("GPUCTL_LAMBDA_API_KEY");
  }

  // Makes a `crontab` program that keeps its table in a file.
  std::string Crontab(const std::string& content) {
    const std::string table = dir_.Write("table", content);
    dir_.Write("bin/crontab",
               absl::StrCat("#!/bin/sh\nif [ \"$1\" = -l ]; then cat '", table,
                            "'; else cat \"$1\" > '", table, "'; fi\n"),
               0755);
    return table;
  }

  const TempDir dir_;

 private:
  const std::string path_;
};

TEST_F(ReapInstall, GoesIntoACrontabAndOutOfItAgain) {
  const std::string table = Crontab("0 1 * * * backup\n");
  for (int i = 0; i < 2; ++i) {
    const auto installed = InstallReap(absl::Minutes(10));
    ASSERT_OK(installed);
    EXPECT_THAT(*installed, HasSubstr("your crontab"));
  }
  const std::string with = ReadFileToString(table).value();
  EXPECT_THAT(with, HasSubstr("0 1 * * * backup\n"));
  EXPECT_THAT(with, HasSubstr("reap -y"));
  EXPECT_EQ(with.find("reap -y"), with.rfind("reap -y"));
  // The place of the keys is known only to the shell.
  EXPECT_THAT(with, HasSubstr(absl::StrCat("GPUCTL_CONFIG_DIR='", dir_.Sub("config/gpuctl"), "'")));
  EXPECT_THAT(InstallReap(absl::Seconds(5)), StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_OK(UninstallReap());
  EXPECT_EQ(ReadFileToString(table).value(), "0 1 * * * backup\n");
}

TEST_F(ReapInstall, APathOfTwoLinesIsRefused) {
  const std::string table = Crontab("0 1 * * * backup\n");
  setenv("GPUCTL_STATE_DIR", dir_.Sub("state\n* * * * * evil").c_str(), 1);
  EXPECT_THAT(InstallReap(absl::Minutes(10)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("control character")));
  EXPECT_EQ(ReadFileToString(table).value(), "0 1 * * * backup\n");
}

TEST_F(ReapInstall, ACrontabThatCannotBeReadIsNotReplaced) {
  const std::string table = Crontab("0 1 * * * backup\n");
  dir_.Write("bin/crontab",
             absl::StrCat("#!/bin/sh\n[ \"$1\" = -l ] && { echo you may not >&2; exit 1; }\n"
                          "cat \"$1\" > '",
                          table, "'\n"),
             0755);
  EXPECT_THAT(InstallReap(absl::Minutes(10)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("you may not")));
  EXPECT_EQ(ReadFileToString(table).value(), "0 1 * * * backup\n");
}

TEST_F(ReapInstall, WantsEveryKeyStored) {
  const std::string table = Crontab("");
  setenv("GPUCTL_LAMBDA_API_KEY", "a-key", 1);
  const absl::Status refused = InstallReap(absl::Minutes(10)).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnauthenticated,
                                HasSubstr("lambda's in $GPUCTL_LAMBDA_API_KEY")));
  EXPECT_EQ(ExitCodeOf(refused), kExitCredentials);
  EXPECT_THAT(HintOf(refused), HasSubstr("gpuctl login lambda"));
  EXPECT_EQ(ReadFileToString(table).value(), "");
  dir_.Write("config/gpuctl/keys/lambda", "a-key\n", 0600);
  EXPECT_OK(InstallReap(absl::Minutes(10)));
  EXPECT_EQ(ReadFileToString(table).value().find("a-key"), std::string::npos);
}
#endif

}  // namespace
}  // namespace gpuctl
