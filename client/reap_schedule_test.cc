#include "client/reap_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tests/matchers.h"
#include "tests/temp_dir.h"

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
}

TEST(ReapSchedule, OtherLinesOfACrontabStay) {
  const std::string ours = "*/10 * * * * x # gpuctl reap";
  EXPECT_EQ(ReplaceCronLine("", ours), ours + "\n");
  EXPECT_EQ(ReplaceCronLine("MAILTO=me\n0 1 * * * backup\n", ours),
            "MAILTO=me\n0 1 * * * backup\n" + ours + "\n");
  EXPECT_EQ(ReplaceCronLine("a\n*/5 * * * * y # gpuctl reap\nb", ours), "a\nb\n" + ours + "\n");
  EXPECT_EQ(ReplaceCronLine("a\n" + ours + "\nb\n", ""), "a\nb\n");
  EXPECT_EQ(ReplaceCronLine("a\nb\n", ""), "a\nb\n");
}

#ifdef __linux__
// With a crontab of our own in $PATH and no user manager.
TEST(ReapSchedule, InstallsIntoACrontabAndOutOfItAgain) {
  const TempDir dir;
  const std::string table = dir.Write("table", "0 1 * * * backup\n");
  dir.Write("bin/crontab",
            absl::StrCat("#!/bin/sh\nif [ \"$1\" = -l ]; then cat '", table,
                         "'; else cat \"$1\" > '", table, "'; fi\n"),
            0755);
  const std::string old_path = std::getenv("PATH");
  setenv("PATH", absl::StrCat(dir.Sub("bin"), ":/bin").c_str(), 1);
  dir.Write("bin/systemctl", "#!/bin/sh\nexit 1\n", 0755);
  setenv("GPUCTL_STATE_DIR", dir.Sub("state").c_str(), 1);
  setenv("XDG_CONFIG_HOME", dir.Sub("config").c_str(), 1);
  setenv("HOME", dir.path().c_str(), 1);
  for (int i = 0; i < 2; ++i) {
    const auto installed = InstallReap(absl::Minutes(10));
    ASSERT_OK(installed);
    EXPECT_THAT(*installed, HasSubstr("your crontab"));
  }
  const std::string with = ReadFileToString(table).value();
  EXPECT_THAT(with, HasSubstr("0 1 * * * backup\n"));
  EXPECT_THAT(with, HasSubstr("reap -y"));
  EXPECT_EQ(with.find("reap -y"), with.rfind("reap -y"));
  EXPECT_THAT(InstallReap(absl::Seconds(5)), StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_OK(UninstallReap());
  EXPECT_EQ(ReadFileToString(table).value(), "0 1 * * * backup\n");
  setenv("PATH", old_path.c_str(), 1);
}
#endif

}  // namespace
}  // namespace gpuctl
