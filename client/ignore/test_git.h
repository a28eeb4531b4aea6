// Lets tests ask the installed git about repositories that they made.
#ifndef GPUCTL_CLIENT_IGNORE_TEST_GIT_H_
#define GPUCTL_CLIENT_IGNORE_TEST_GIT_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/base/run_program.h"
#include "client/ignore/git_config.h"
#include "client/ignore/ignore_rules.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {

// Makes an empty file. Unlike TempDir::Write it does not wait for the disk: tests make hundreds.
inline UniqueFd Create(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  EXPECT_TRUE(fd.valid()) << path;
  return fd;
}

// The pattern that decides about a path.
struct Verdict {
  std::string source, line, pattern;
  bool Excludes() const { return !source.empty() && !absl::StartsWith(pattern, "!"); }
  std::string ToString() const {
    return source.empty() ? "nothing" : absl::StrCat(source, ":", line, ":", pattern);
  }
};

// Returns git's verdict about each of the paths of a repository; nothing when git refuses.
inline std::vector<Verdict> CheckIgnore(const std::string& git, const TempDir& dir,
                                        const std::string& repository,
                                        const std::vector<std::string>& paths) {
  std::string question;
  // A colon at the beginning would be special to git.
  for (const std::string& path : paths) question += absl::StrCat("./", path) + '\0';
  const UniqueFd in = Create(dir.Sub("question"));
  EXPECT_OK(WriteAll(in.get(), question, "question"));
  EXPECT_EQ(lseek(in.get(), 0, SEEK_SET), 0);
  const UniqueFd out = Create(dir.Sub("answer"));
  const UniqueFd errors = Create(dir.Sub("errors"));
  SpawnOptions options;
  options.argv = {git, "-C", repository, "check-ignore", "--no-index", "-z", "--stdin", "-v", "-n"};
  options.stdin_fd = in.get();
  options.stdout_fd = out.get();
  options.stderr_fd = errors.get();
  const absl::StatusOr<pid_t> pid = Spawn(options);
  EXPECT_OK(pid);
  int status = 0;
  EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) > 1) return {};
  const std::string answer = ReadFileToString(dir.Sub("answer")).value_or("");
  const std::vector<std::string> fields = absl::StrSplit(answer, '\0');
  std::vector<Verdict> verdicts;
  for (size_t i = 0; i + 3 < fields.size(); i += 4) {
    verdicts.push_back({fields[i], fields[i + 1], fields[i + 2]});
  }
  return verdicts;
}

inline Verdict ToVerdict(const IgnoreRules::Decision& decision) {
  if (decision.reason != IgnoreRules::Reason::kRule) return {};
  return {decision.file->path, absl::StrCat(decision.pattern->line()), decision.pattern->text()};
}

// A test without the environment variables that would affect git or gpuctl.
class GitTest : public testing::Test {
 protected:
  void SetUp() override {
    git_ = FindInPath("git");
    ASSERT_FALSE(git_.empty()) << "git is not installed";
    for (const char* name : {"XDG_CONFIG_HOME", "GIT_DIR", "GIT_WORK_TREE", "GIT_CONFIG_GLOBAL",
                             "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_COUNT", "GIT_INDEX_FILE",
                             "GIT_CONFIG_PARAMETERS", "GIT_PREFIX", "GIT_LITERAL_PATHSPECS"}) {
      unsetenv(name);
    }
    // Long enough for a machine that is busy with other tests.
    limit_ = absl::Seconds(60);
    setenv("LC_ALL", "C", 1);
    // Tests make thousands of files and directories; in memory that takes a tenth of the time.
    if (access("/dev/shm", W_OK | X_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
  }

  // Makes git see the home of `environment`.
  void UseHome(const GitEnvironment& environment) {
    setenv("HOME", environment.home.c_str(), 1);
    setenv("GIT_CONFIG_SYSTEM", environment.system_config.c_str(), 1);
  }

  std::string git_;
  absl::Duration limit_;  // for git's answer
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_IGNORE_TEST_GIT_H_
