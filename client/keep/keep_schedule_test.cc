#include "client/keep/keep_schedule.h"

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

KeepJob Job() {
  KeepJob job;
  job.program = "/opt/my tools/gpu<ctl";
  job.where = {{"GPUCTL_STATE_DIR", "/home/a b/50%"}};
  job.every = absl::Minutes(10);
  job.log = "/home/a b/keep.stderr";
  return job;
}

TEST(KeepSchedule, ThePlistRunsKeepAndEscapes) {
  const std::string plist = LaunchdPlist(Job());
  EXPECT_THAT(plist, HasSubstr("<string>/opt/my tools/gpu&lt;ctl</string>"));
  EXPECT_THAT(plist, HasSubstr("<string>keep</string>"));
  EXPECT_THAT(plist, HasSubstr("<key>StartInterval</key><integer>600</integer>"));
  EXPECT_THAT(plist, HasSubstr("<key>GPUCTL_STATE_DIR</key><string>/home/a b/50%</string>"));
}

TEST(KeepSchedule, TheUnitsRunKeepAndEscape) {
  EXPECT_THAT(SystemdService(Job()), HasSubstr("ExecStart=\"/opt/my tools/gpu<ctl\" keep\n"));
  EXPECT_THAT(SystemdService(Job()), HasSubstr("Environment=\"GPUCTL_STATE_DIR=/home/a b/50%%\""));
  EXPECT_THAT(SystemdTimer(Job()), HasSubstr("OnUnitActiveSec=600s"));
}

TEST(KeepSchedule, CronSaysPartsOfHoursAndDays) {
  KeepJob job = Job();
  EXPECT_EQ(CronLine(job).value(),
            "*/10 * * * * GPUCTL_STATE_DIR='/home/a b/50\\%' '/opt/my tools/gpu<ctl' keep "
            "2>>'/home/a b/keep.stderr' # gpuctl keep");
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

TEST(KeepSchedule, ThePeriodIsReadBack) {
  KeepJob job = Job();
  for (const absl::Duration every : {absl::Minutes(5), absl::Minutes(30), absl::Hours(2)}) {
    job.every = every;
    EXPECT_EQ(PeriodOfPlist(LaunchdPlist(job)), every);
    EXPECT_EQ(PeriodOfTimer(SystemdTimer(job)), every);
    EXPECT_EQ(PeriodOfCrontab("0 1 * * * backup\n" + CronLine(job).value() + "\n"), every);
  }
  EXPECT_EQ(PeriodOfPlist("<plist/>"), absl::ZeroDuration());
  EXPECT_EQ(PeriodOfTimer(""), absl::ZeroDuration());
  EXPECT_EQ(PeriodOfCrontab("*/10 * * * * 'x' reap -y 2>>'l' # gpuctl reap\n"),
            absl::ZeroDuration())
      << "an older version's";
}

TEST(KeepSchedule, TheLineOfAnOlderVersionIsReplaced) {
  EXPECT_EQ(ReplaceCronLine("*/10 * * * * 'x' reap -y 2>>'l' # gpuctl reap\n", "new"), "new\n");
}

TEST(KeepSchedule, OtherLinesOfACrontabStay) {
  const std::string ours = "*/10 * * * * x keep 2>>l # gpuctl keep";
  EXPECT_EQ(ReplaceCronLine("", ours), ours + "\n");
  EXPECT_EQ(ReplaceCronLine("MAILTO=me\n0 1 * * * backup\n", ours),
            "MAILTO=me\n0 1 * * * backup\n" + ours + "\n");
  EXPECT_EQ(ReplaceCronLine("a\n*/5 * * * * y keep 2>>m # gpuctl keep\nb", ours),
            "a\nb\n" + ours + "\n");
  EXPECT_EQ(ReplaceCronLine("a\n" + ours + "\nb\n", ""), "a\nb\n");
  EXPECT_EQ(ReplaceCronLine("a\nb\n", ""), "a\nb\n");
  // The user's own words, and a line of ours that the user has switched off.
  const std::string words = "# gpuctl keep\n#" + ours + "\n0 1 * * * mail # gpuctl keep\n";
  EXPECT_EQ(ReplaceCronLine(words, ""), words);
  EXPECT_EQ(ReplaceCronLine(words, ours), words + ours + "\n");
}

TEST(KeepSchedule, AJobOfAnotherNameLiesBesideIt) {
  KeepJob job = Job();
  const std::string ours = CronLine(job).value();
  job.name = "other";
  job.at_once = true;
  const std::string other = CronLine(job).value();
  EXPECT_THAT(other, ::testing::EndsWith(" # gpuctl other"));
  const std::string both = ReplaceCronLine(ours + "\n", other, "other");
  EXPECT_EQ(both, ours + "\n" + other + "\n");
  EXPECT_EQ(ReplaceCronLine(both, "", "other"), ours + "\n");
  EXPECT_EQ(ReplaceCronLine(both, ""), other + "\n");
  EXPECT_EQ(PeriodOfCrontab(other), absl::ZeroDuration());
  EXPECT_THAT(LaunchdPlist(job), HasSubstr("<key>Label</key><string>gpuctl.other</string>"));
  EXPECT_THAT(SystemdTimer(job), HasSubstr("OnActiveSec=100ms\nAccuracySec=100ms\nOnUnit"));
}

#ifdef __linux__
// A home with a crontab and a systemctl of its own in $PATH, and one key.
class KeepInstall : public ::testing::Test {
 protected:
  KeepInstall() : path_(std::getenv("PATH")) {
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
  ~KeepInstall() override {
    setenv("PATH", path_.c_str(), 1);
    unsetenv("GPUCTL_LAMBDA_API_KEY");
  }

  // Makes a `crontab` program that keeps its table in a file.
  std::string Crontab(const std::string& content) {
    const std::string table = dir_.Write("table", content);
    dir_.Write("bin/crontab",
               absl::StrCat("#!/bin/sh\ncase $1 in -l) cat '", table, "' ;; -r) rm '", table,
                            "' ;; *) cat \"$1\" > '", table, "' ;; esac\n"),
               0755);
    return table;
  }

  const TempDir dir_;

 private:
  const std::string path_;
};

TEST_F(KeepInstall, GoesIntoACrontabAndOutOfItAgain) {
  const std::string table = Crontab("0 1 * * * backup\n");
  for (int i = 0; i < 2; ++i) {
    const auto installed = InstallKeep(absl::Minutes(10));
    ASSERT_OK(installed);
    EXPECT_THAT(*installed, HasSubstr("your crontab"));
  }
  const std::string with = ReadFileToString(table).value();
  EXPECT_THAT(with, HasSubstr("0 1 * * * backup\n"));
  EXPECT_THAT(with, HasSubstr(" keep 2>>"));
  EXPECT_EQ(with.find(" keep 2>>"), with.rfind(" keep 2>>"));
  // The place of the keys is known only to the shell.
  EXPECT_THAT(with, HasSubstr(absl::StrCat("GPUCTL_CONFIG_DIR='", dir_.Sub("config/gpuctl"), "'")));
  EXPECT_THAT(InstallKeep(absl::Seconds(5)), StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_OK(UninstallKeep());
  EXPECT_EQ(ReadFileToString(table).value(), "0 1 * * * backup\n");
}

TEST_F(KeepInstall, LeavesNoEmptyCrontab) {
  const std::string table = Crontab("");
  ASSERT_OK(InstallKeep(absl::Minutes(10)));
  EXPECT_THAT(ReadFileToString(table).value(), HasSubstr(" keep 2>>"));
  ASSERT_OK(UninstallKeep());
  EXPECT_FALSE(PathExists(table));
}

TEST_F(KeepInstall, APathOfTwoLinesIsRefused) {
  const std::string table = Crontab("0 1 * * * backup\n");
  setenv("GPUCTL_STATE_DIR", dir_.Sub("state\n* * * * * evil").c_str(), 1);
  EXPECT_THAT(InstallKeep(absl::Minutes(10)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("control character")));
  EXPECT_EQ(ReadFileToString(table).value(), "0 1 * * * backup\n");
}

TEST_F(KeepInstall, ACrontabThatCannotBeReadIsNotReplaced) {
  const std::string table = Crontab("0 1 * * * backup\n");
  dir_.Write("bin/crontab",
             absl::StrCat("#!/bin/sh\n[ \"$1\" = -l ] && { echo you may not >&2; exit 1; }\n"
                          "cat \"$1\" > '",
                          table, "'\n"),
             0755);
  EXPECT_THAT(InstallKeep(absl::Minutes(10)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("you may not")));
  EXPECT_EQ(ReadFileToString(table).value(), "0 1 * * * backup\n");
}

TEST_F(KeepInstall, WantsEveryKeyStored) {
  const std::string table = Crontab("");
  setenv("GPUCTL_LAMBDA_API_KEY", "a-key", 1);
  const absl::Status refused = InstallKeep(absl::Minutes(10)).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnauthenticated,
                                HasSubstr("cron does not see the key of lambda, which is in "
                                          "$GPUCTL_LAMBDA_API_KEY")));
  EXPECT_EQ(ExitCodeOf(refused), kExitCredentials);
  EXPECT_EQ(HintOf(refused), "GPUCTL_KEY_STORE=file gpuctl login lambda keeps it where cron looks");
  setenv("GPUCTL_RUNPOD_API_KEY", "a-key", 1);
  const absl::Status several = InstallKeep(absl::Minutes(10)).status();
  unsetenv("GPUCTL_RUNPOD_API_KEY");
  EXPECT_THAT(several, StatusIs(absl::StatusCode::kUnauthenticated,
                                HasSubstr("cron does not see the keys of runpod, lambda")));
  EXPECT_EQ(HintOf(several),
            "GPUCTL_KEY_STORE=file gpuctl login PROVIDER, for each of them, keeps it where cron "
            "looks");
  EXPECT_EQ(ReadFileToString(table).value(), "");
  dir_.Write("config/gpuctl/keys/lambda", "a-key\n", 0600);
  EXPECT_OK(InstallKeep(absl::Minutes(10)));
  EXPECT_EQ(ReadFileToString(table).value().find("a-key"), std::string::npos);
}
#endif

}  // namespace
}  // namespace gpuctl
