// Tests of settings in places that only git knows: git tells them when asked, gpuctl's own reading
// misses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/ignore/git_config.h"
#include "client/ignore/ignore_rules.h"
#include "client/ignore/test_git.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

class GitToldTest : public GitTest {
 protected:
  void SetUp() override {
    GitTest::SetUp();
    environment_.home = dir_.Sub("home");
    environment_.system_config = dir_.Sub("system");
    environment_.git_limit = limit_;
    UseHome(environment_);
    excludes_ = dir_.Write("excludes", "*.out\n");
    setting_ = absl::StrCat("[core]\n\texcludesFile = ", excludes_, "\n");
    dir_.Write("more", setting_);
    MakeRepository("repo/.git", "");
    dir_.Write("repo/a.out", "");
  }
  void TearDown() override {
    for (const char* name :
         {"GIT_DIR", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0",
          "GIT_CONFIG_PARAMETERS", "GIT_TEST_ASSUME_DIFFERENT_OWNER"}) {
      unsetenv(name);
    }
  }
  void MakeRepository(const std::string& git_dir, const std::string& config) {
    dir_.Write(git_dir + "/HEAD", "ref: refs/heads/main\n");
    dir_.Write(git_dir + "/config", "[core]\nrepositoryformatversion = 0\n" + config);
    ASSERT_OK(MakeDirectories(dir_.Sub(git_dir + "/objects")));
    ASSERT_OK(MakeDirectories(dir_.Sub(git_dir + "/refs")));
  }
  IgnoreRules Load(const std::string& git) {
    environment_.git = git;
    environment_.says_settings = GitEnvironment::FromProcess().says_settings;
    absl::StatusOr<IgnoreRules> rules = IgnoreRules::Load(dir_.Sub("repo"), environment_);
    EXPECT_OK(rules);
    EXPECT_TRUE(rules->notes().empty());
    return *std::move(rules);
  }
  // Return what decides about a path of the repository, with settings that git told, or that gpuctl
  // read.
  std::string Told(const std::string& path) { return Decided(git_, path); }
  std::string Read(const std::string& path) { return Decided("", path); }
  std::string Decided(const std::string& git, const std::string& path) {
    IgnoreRules rules = Load(git);
    return ToVerdict(rules.Decide(path, false)).ToString();
  }
  // Returns git's own decision; "refused" when git does not accept the repository.
  std::string Git(const std::string& path) {
    const std::vector<Verdict> theirs = CheckIgnore(git_, dir_, dir_.Sub("repo"), {path});
    return theirs.empty() ? "refused" : theirs[0].ToString();
  }
  std::string ByExcludes() const { return absl::StrCat(excludes_, ":1:*.out"); }
  void ExpectOnlyGitKnows() {
    EXPECT_EQ(Git("a.out"), ByExcludes());
    EXPECT_EQ(Told("a.out"), ByExcludes());
    EXPECT_EQ(Read("a.out"), "nothing");
    EXPECT_EQ(Git("b.txt"), "nothing");
    EXPECT_EQ(Told("b.txt"), "nothing");
  }
  void IncludeIf(const std::string& condition) {
    dir_.Write("home/.gitconfig",
               absl::StrCat("[includeIf \"", condition, "\"]\n\tpath = ", dir_.Sub("more"), "\n"));
  }

  const TempDir dir_;
  GitEnvironment environment_;
  std::string excludes_, setting_;
};

TEST_F(GitToldTest, IncludeIfOnBranch) {
  IncludeIf("onbranch:ma*");
  ExpectOnlyGitKnows();
  IncludeIf("onbranch:other");
  EXPECT_EQ(Git("a.out"), "nothing");
  EXPECT_EQ(Told("a.out"), "nothing");
}

TEST_F(GitToldTest, IncludeIfARemoteIsConfigured) {
  IncludeIf("hasconfig:remote.*.url:https://forge.example/**");
  EXPECT_EQ(Git("a.out"), "nothing");
  EXPECT_EQ(Told("a.out"), "nothing");
  MakeRepository("repo/.git", "[remote \"origin\"]\nurl = https://forge.example/us/it\n");
  ExpectOnlyGitKnows();
}

TEST_F(GitToldTest, IgnoreCase) {
  IncludeIf("onbranch:main");
  dir_.Write("more", "[core]\n\tignoreCase = yes\n");
  dir_.Write("repo/.gitignore", "*.OUT\n");
  EXPECT_EQ(Git("a.out"), ".gitignore:1:*.OUT");
  EXPECT_EQ(Told("a.out"), absl::StrCat(dir_.Sub("repo/.gitignore"), ":1:*.OUT"));
  EXPECT_EQ(Read("a.out"), "nothing");
}

TEST_F(GitToldTest, SettingsInTheEnvironment) {
  setenv("GIT_CONFIG_COUNT", "1", 1);
  setenv("GIT_CONFIG_KEY_0", "core.excludesFile", 1);
  setenv("GIT_CONFIG_VALUE_0", excludes_.c_str(), 1);
  ExpectOnlyGitKnows();
}

// An alias or a hook of `git -c core.excludesFile=…` may run gpuctl.
TEST_F(GitToldTest, SettingsOfTheGitThatRunsUs) {
  setenv("GIT_CONFIG_PARAMETERS", absl::StrCat("'core.excludesFile'='", excludes_, "'").c_str(), 1);
  ExpectOnlyGitKnows();
}

TEST_F(GitToldTest, GitDir) {
  MakeRepository("dotfiles", setting_);
  setenv("GIT_DIR", dir_.Sub("dotfiles").c_str(), 1);
  ExpectOnlyGitKnows();
  ASSERT_OK(RemoveTree(dir_.Sub("repo/.git")));
  ExpectOnlyGitKnows();
}

TEST_F(GitToldTest, AGitDirThatIsNoneLeavesOurOwnReading) {
  MakeRepository("repo/.git", setting_);
  setenv("GIT_DIR", "nowhere", 1);
  EXPECT_EQ(Git("a.out"), "refused");
  EXPECT_EQ(Told("a.out"), ByExcludes());
}

// git refuses to work in a repository of somebody else, and `git config` just skips it. Then
// gpuctl's own reading holds, without a message.
TEST_F(GitToldTest, ARepositoryThatGitDoesNotTrust) {
  MakeRepository("repo/.git", setting_);
  dir_.Write("home/.gitconfig", "[core]\n\texcludesFile = /users/own\n");
  EXPECT_EQ(Git("a.out"), ByExcludes());
  setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1", 1);
  EXPECT_EQ(Git("a.out"), "refused");
  EXPECT_EQ(Told("a.out"), ByExcludes());
}

TEST_F(GitToldTest, ARepositoryThatGitIsToldToTrust) {
  setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1", 1);
  IncludeIf("onbranch:main");
  EXPECT_EQ(Git("a.out"), "refused");
  EXPECT_EQ(Told("a.out"), "nothing");
  dir_.Write("system", absl::StrCat("[safe]\n\tdirectory = ", dir_.Sub("repo"), "\n"));
  ExpectOnlyGitKnows();
}

}  // namespace
}  // namespace gpuctl
