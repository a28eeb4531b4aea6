// Tests of a fake git's answers, and of a git that gives none. ignore_git_test.cc runs the real
// one.
#include "client/ignore/ask_git.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/run_program.h"
#include "client/ignore/ignore_rules.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kAccepts[] = "printf 'core.repositoryformatversion\\n0\\0'\n";

class AskGitTest : public testing::Test {
 protected:
  AskGitTest() {
    environment_.home = dir_.Sub("home");
    environment_.system_config = dir_.Sub("system");
    environment_.git_limit = absl::Seconds(60);  // a shell script may wait for a processor
    dir_.Write("w/keep", "");
  }
  // Makes a git that runs `script`; the directory is its $2, the whole question "$*".
  void MakeGit(const std::string& script) {
    environment_.git = dir_.Write("git", absl::StrCat("#!/bin/sh\n", script), 0755);
  }
  void MakeRepository() {
    dir_.Write("w/.git/HEAD", "ref: refs/heads/main\n");
    dir_.Write("w/.git/config", "[core]\nexcludesFile = /read\nignoreCase\n");
    ASSERT_OK(MakeDirectories(dir_.Sub("w/.git/objects")));
    ASSERT_OK(MakeDirectories(dir_.Sub("w/.git/refs")));
  }
  GitConfig Config(const std::string& directory = "w") {
    return GitConfigFor(environment_, FindGitRepository(dir_.Sub(directory)), dir_.Sub(directory));
  }
  void ExpectOwnReading(const std::string& script) {
    MakeGit(script);
    const absl::Duration before = Clock::Real().SinceBoot();
    const GitConfig config = Config();
    EXPECT_LT(Clock::Real().SinceBoot() - before, absl::Seconds(20)) << script;
    EXPECT_EQ(config.excludes_file, "/read") << script;
    EXPECT_TRUE(config.ignore_case) << script;
    EXPECT_THAT(config.notes, IsEmpty()) << script;
  }

  const TempDir dir_;
  GitEnvironment environment_;
};

TEST_F(AskGitTest, ItsAnswerHolds) {
  MakeRepository();
  MakeGit(absl::StrCat(kAccepts, "printf 'core.excludesfile\\n/first\\0core.ignorecase\\nno\\0",
                       "core.excludesfile\\n/told\\0'\n"));
  EXPECT_EQ(Config().excludes_file, "/told");
  EXPECT_FALSE(Config().ignore_case);
  MakeGit(absl::StrCat(kAccepts, "printf 'core.ignorecase\\0'\n"));
  EXPECT_EQ(Config().excludes_file, dir_.Sub("home/.config/git/ignore"));
  EXPECT_TRUE(Config().ignore_case);
  MakeGit(absl::StrCat(kAccepts, "printf 'core.excludesfile\\n\\0'\n"));
  EXPECT_EQ(Config().excludes_file, "");
}

TEST_F(AskGitTest, ARelativeFileBeginsAtTheRepositorysRoot) {
  MakeRepository();
  dir_.Write("w/sub/keep", "");
  MakeGit(absl::StrCat(kAccepts, "printf 'core.excludesfile\\nmine\\0'\n"));
  EXPECT_EQ(Config("w/sub").excludes_file, dir_.Sub("w/mine"));
}

TEST_F(AskGitTest, IsAskedOnceAndWithoutPrompts) {
  MakeRepository();
  dir_.Write("w/.gitignore", "*.o\n");
  MakeGit(absl::StrCat("echo \"$GIT_TERMINAL_PROMPT $1 $2 $(wc -c)\" >> ", dir_.Sub("asked"), "\n",
                       kAccepts));
  absl::StatusOr<IgnoreRules> rules = IgnoreRules::Load(dir_.Sub("w"), environment_);
  ASSERT_OK(rules);
  for (const char* path : {"a.o", "a/b.o", "c/d/e.o"}) {
    EXPECT_TRUE(rules->Decide(path, false).excluded);
  }
  EXPECT_EQ(ReadFileToString(dir_.Sub("asked")).value_or(""),
            absl::StrCat("0 -C ", dir_.Sub("w"), " 0\n"));
}

TEST_F(AskGitTest, IsAskedOnlyWhereThereIsSomethingToTell) {
  const auto asked = [this] {
    MakeGit(absl::StrCat("echo x >> ", dir_.Sub("asked"), "\nexit 1\n"));
    unlink(dir_.Sub("asked").c_str());
    EXPECT_EQ(Config().excludes_file, dir_.Sub("home/.config/git/ignore"));
    return PathExists(dir_.Sub("asked"));
  };
  EXPECT_FALSE(asked());
  for (const char* file : {"system", "home/.gitconfig", "home/.config/git/config"}) {
    dir_.Write(file, "");
    EXPECT_TRUE(asked()) << file;
    ASSERT_EQ(unlink(dir_.Sub(file).c_str()), 0);
  }
  environment_.global_config = dir_.Sub("global");
  EXPECT_FALSE(asked());
  dir_.Write("global", "");
  EXPECT_TRUE(asked());
  environment_.global_config.reset();
  environment_.says_settings = true;
  EXPECT_TRUE(asked());
  environment_.says_settings = false;
  EXPECT_FALSE(asked());
  dir_.Write("w/.git/HEAD", "ref: refs/heads/main\n");
  ASSERT_OK(MakeDirectories(dir_.Sub("w/.git/objects")));
  ASSERT_OK(MakeDirectories(dir_.Sub("w/.git/refs")));
  EXPECT_TRUE(asked());
}

TEST_F(AskGitTest, OneThatFailsChangesNothing) {
  MakeRepository();
  ExpectOwnReading("echo 'fatal: detected dubious ownership' >&2\nexit 128\n");
  ExpectOwnReading(absl::StrCat(kAccepts, "exit 129\n"));
  ExpectOwnReading(absl::StrCat(kAccepts, "kill -9 $$\n"));
  // This git reads the other configuration, and says nothing about the repository.
  ExpectOwnReading("exit 1\n");
  ExpectOwnReading("printf 'core.excludesfile\\n/users\\0'\n");
  ExpectOwnReading("echo 'xcode-select: note: no developer tools were found'\n");
  ExpectOwnReading(absl::StrCat(kAccepts, "echo 'git: moved'\n"));
  ExpectOwnReading("exec yes\n");
  environment_.git = dir_.Write("git", "no program", 0755);
  EXPECT_EQ(Config().excludes_file, "/read");
  environment_.git = dir_.Sub("nowhere");
  EXPECT_EQ(Config().excludes_file, "/read");
  environment_.git = dir_.path();
  EXPECT_EQ(Config().excludes_file, "/read");
}

TEST_F(AskGitTest, OneThatFailsOutsideOfARepositoryChangesNothing) {
  dir_.Write("home/.gitconfig", "[core]\nexcludesFile = /users\n");
  MakeGit("exit 1\n");
  EXPECT_EQ(Config().excludes_file, "/users");
}

TEST_F(AskGitTest, OneThatHangsChangesNothing) {
  MakeRepository();
  environment_.git_limit = absl::Milliseconds(100);
  ExpectOwnReading(absl::StrCat(kAccepts, "exec sleep 1000\n"));
  ExpectOwnReading(absl::StrCat(kAccepts, "exec >&-\nexec sleep 1000\n"));
  ExpectOwnReading("trap '' TERM INT HUP\nwhile :; do printf x; sleep 0.01; done\n");
}

// A wrapper's children are killed too: the files that they hold open are closed.
TEST_F(AskGitTest, NothingOfOneThatHangsIsLeft) {
  const std::string fifo = dir_.Sub("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const UniqueFd fd(open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const std::string script = dir_.Write(
      "script", absl::StrCat("#!/bin/sh\nexec 3> ", fifo, "\nsleep 1000 &\necho x >&3\nwait\n"),
      0755);
  EXPECT_THAT(RunWithin(absl::Seconds(2), {script}),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(script)));
  char said[8];
  ASSERT_EQ(read(fd.get(), said, sizeof(said)), 2) << "it did not get that far";
  pollfd polled = {fd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, 20'000), 1);
  EXPECT_EQ(read(fd.get(), said, sizeof(said)), 0);
}

TEST_F(AskGitTest, WhatIsNoConfigurationIsStillSaid) {
  MakeRepository();
  dir_.Write("home/.gitconfig", "[core\n");
  MakeGit("exit 128\n");
  EXPECT_THAT(Config().notes, ElementsAre(HasSubstr(".gitconfig: line")));
}

}  // namespace
}  // namespace gpuctl
