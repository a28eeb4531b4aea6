#include "client/ignore/git_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/ignore/git_repository.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GitConfigTest : public testing::Test {
 protected:
  GitConfigTest() {
    environment_.home = dir_.Sub("home");
    environment_.system_config = dir_.Sub("system");
  }
  GitConfig Read() { return ReadGitConfig(environment_, repository_); }
  void MakeRepository() {
    dir_.Write("repo/.git/HEAD", "ref: refs/heads/main\n");
    ASSERT_TRUE(MakeDirectories(dir_.Sub("repo/.git/objects")).ok());
    ASSERT_TRUE(MakeDirectories(dir_.Sub("repo/.git/refs")).ok());
    repository_ = FindGitRepository(dir_.Sub("repo"));
    ASSERT_TRUE(repository_.has_value());
  }

  const TempDir dir_;
  GitEnvironment environment_;
  std::optional<GitRepository> repository_;
};

TEST_F(GitConfigTest, DefaultsWithoutAnyFile) {
  EXPECT_EQ(Read().excludes_file, dir_.Sub("home/.config/git/ignore"));
  EXPECT_FALSE(Read().ignore_case);
  environment_.xdg_config_home = "/xdg";
  EXPECT_EQ(Read().excludes_file, "/xdg/git/ignore");
  environment_.xdg_config_home.clear();
  environment_.home.clear();
  EXPECT_EQ(Read().excludes_file, "");
}

TEST_F(GitConfigTest, TheLastFileThatSaysItWins) {
  MakeRepository();
  dir_.Write("system", "[core]\nexcludesFile = /system\nignorecase = true\n");
  EXPECT_EQ(Read().excludes_file, "/system");
  EXPECT_TRUE(Read().ignore_case);
  dir_.Write("home/.config/git/config", "[core]\nexcludesfile = /xdg\n");
  EXPECT_EQ(Read().excludes_file, "/xdg");
  dir_.Write("home/.gitconfig", "[core] excludesFile = ~/mine # not this\n");
  EXPECT_EQ(Read().excludes_file, dir_.Sub("home/mine"));
  dir_.Write("repo/.git/config", "[Core]\r\n  EXCLUDESFILE = \"the \\\"file\\\"\"  \r\n");
  EXPECT_EQ(Read().excludes_file, dir_.Sub("repo/the \"file\""));
  dir_.Write("repo/.git/config.worktree", "[core]\nexcludesfile = /worktree\nignorecase = off\n");
  EXPECT_TRUE(Read().ignore_case);
  dir_.Write("repo/.git/config", "[extensions]\nworktreeConfig\n");
  EXPECT_EQ(Read().excludes_file, "/worktree");
  EXPECT_FALSE(Read().ignore_case);
  // This one file replaces the user's two files.
  environment_.global_config = "";
  dir_.Write("repo/.git/config", "");
  EXPECT_EQ(Read().excludes_file, "/system");
}

TEST_F(GitConfigTest, Includes) {
  MakeRepository();
  dir_.Write("home/.gitconfig",
             "[include]\npath = sub/more\n[includeIf \"gitdir:~/work/\"]\npath = not\n");
  dir_.Write("home/sub/more", "[core]\nexcludesfile = /more\n[include]\npath = again\n");
  dir_.Write("home/sub/again", "[core]\nignorecase\n[include]\npath = more\n");  // a circle
  dir_.Write("home/not", "[core]\nexcludesfile = /not\n");
  EXPECT_EQ(Read().excludes_file, "/more");
  EXPECT_TRUE(Read().ignore_case);
  dir_.Write("home/.gitconfig", "[includeIf \"gitdir/i:REPO/\"]\npath = ~/not\n");
  EXPECT_EQ(Read().excludes_file, "/not");
}

TEST_F(GitConfigTest, WhatIsNoConfigurationIsSaid) {
  dir_.Write("home/.gitconfig", "[core]\nexcludesfile = /before\n!\n");
  const GitConfig config = Read();
  EXPECT_EQ(config.excludes_file, "/before");
  EXPECT_THAT(config.notes, ElementsAre(HasSubstr(".gitconfig: line 3")));
  for (const char* text : {"[core", "[core \"x]\n", "[core]\na=\"b\n", "[core]\na = \\x\n",
                           "[co re]", "[core]\na b\n", "[c\"]", "[core \"\\", "[core]\na=\\"}) {
    dir_.Write("home/.gitconfig", text);
    EXPECT_EQ(Read().notes.size(), text == std::string("[core]\na=\\") ? 0U : 1U) << text;
  }
}

TEST_F(GitConfigTest, RepositoriesAreFoundUpwards) {
  MakeRepository();
  ASSERT_TRUE(MakeDirectories(dir_.Sub("repo/a/.git")).ok());  // no repository, for lack of a HEAD
  ASSERT_TRUE(MakeDirectories(dir_.Sub("repo/a/b")).ok());
  EXPECT_EQ(FindGitRepository(dir_.Sub("repo/a/b"))->root, dir_.Sub("repo"));
  dir_.Write("repo/a/b/.git", "gitdir: ../../.git/worktrees/b\n");
  dir_.Write("repo/.git/worktrees/b/HEAD", "0123456789abcdef0123456789abcdef01234567\n");
  dir_.Write("repo/.git/worktrees/b/commondir", "../..\n");
  const std::optional<GitRepository> linked = FindGitRepository(dir_.Sub("repo/a/b"));
  ASSERT_TRUE(linked.has_value());
  EXPECT_EQ(linked->root, dir_.Sub("repo/a/b"));
  EXPECT_EQ(linked->git_dir, dir_.Sub("repo/.git/worktrees/b"));
  EXPECT_EQ(linked->InfoExclude(), dir_.Sub("repo/.git/info/exclude"));
  EXPECT_FALSE(FindGitRepository(dir_.path()).has_value());
}

}  // namespace
}  // namespace gpuctl
