#include "client/ignore/ignore_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ignore/secret_files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Reason = IgnoreRules::Reason;

// Asks about a work directory "w" and its rules; each call reads them again.
class IgnoreRulesTest : public testing::Test {
 protected:
  IgnoreRulesTest() { dir_.Write("w/keep", ""); }

  IgnoreRules Load(const std::vector<std::string>& include = {}, const std::string& root = "w") {
    GitEnvironment environment;
    environment.home = dir_.Sub("home");
    return *IgnoreRules::Load(dir_.Sub(root), environment, include);
  }
  // Returns "sent" or the reason why it stays home; a slash at the end makes it a directory.
  std::string Ask(IgnoreRules& rules, std::string path) {
    const bool is_directory = path.back() == '/';
    if (is_directory) path.pop_back();
    const IgnoreRules::Decision decision = rules.Decide(path, is_directory);
    return decision.excluded ? DescribeDecision(decision) : "sent";
  }
  std::string Ask(const std::string& path) {
    IgnoreRules rules = Load();
    return Ask(rules, path);
  }
  void MakeRepository(const std::string& at) {
    dir_.Write(absl::StrCat(at, "/.git/HEAD"), "ref: refs/heads/main\n");
    ASSERT_OK(MakeDirectories(dir_.Sub(absl::StrCat(at, "/.git/objects"))));
    ASSERT_OK(MakeDirectories(dir_.Sub(absl::StrCat(at, "/.git/refs"))));
  }

  const TempDir dir_;
};

// A part of a checkpoint that a broken connection left is not sent back.
TEST_F(IgnoreRulesTest, WhatAPullThatWasCutLeftStaysHome) {
  for (const char* path : {".gpuctl-partial-0a1b2c3d/", "sub/.gpuctl-partial-0a1b2c3d/tree/f",
                           ".gpuctl-sftp-j-1/lock", "sub/.gpuctl-removed-r-1/"}) {
    EXPECT_EQ(Ask(path), "gpuctl's own, left for the next pull");
  }
  EXPECT_EQ(Ask(".gpuctl-partial"), "sent");
}

TEST_F(IgnoreRulesTest, GitignoreHoldsWithoutARepository) {
  dir_.Write("w/.gitignore", "*.o\n/data/\n!keep.o\n");
  dir_.Write("w/sub/.gitignore", "!x.o\nown\n");
  EXPECT_EQ(Ask("a.o"), ".gitignore:1: *.o");
  EXPECT_EQ(Ask("keep.o"), "sent");
  EXPECT_EQ(Ask("data/"), ".gitignore:2: /data/");
  EXPECT_EQ(Ask("data"), "sent");
  EXPECT_EQ(Ask("data/deep/file"), ".gitignore:2: /data/");
  EXPECT_EQ(Ask("sub/x.o"), "sent");
  EXPECT_EQ(Ask("sub/deep/own"), "sub/.gitignore:2: own");
  EXPECT_EQ(Ask("own"), "sent");
}

TEST_F(IgnoreRulesTest, NothingBringsBackWhatIsBelowAnExcludedDirectory) {
  dir_.Write("w/.gitignore", "out/\n!out/keep\n");
  dir_.Write("w/out/.gitignore", "!*\n");
  dir_.Write("w/out/.gpuctlignore", "!*\n");
  EXPECT_EQ(Ask("out/keep"), ".gitignore:1: out/");
}

TEST_F(IgnoreRulesTest, OurFileComesBeforeGitsInTheSameDirectoryOnly) {
  dir_.Write("w/.gitignore", "*.bin\n*.log\n");
  dir_.Write("w/.gpuctlignore", "!*.bin\n*.tmp\n");
  dir_.Write("w/sub/.gitignore", "c.bin\n!d.tmp\n");
  dir_.Write("home/.config/git/ignore", "*.swp\n*.bak\n");
  dir_.Write("w/swap/.gpuctlignore", "!*.swp\n");
  EXPECT_EQ(Ask("a.bin"), "sent");
  EXPECT_EQ(Ask("a.log"), ".gitignore:2: *.log");
  EXPECT_EQ(Ask("a.tmp"), ".gpuctlignore:2: *.tmp");
  EXPECT_EQ(Ask("sub/a.bin"), "sent");
  EXPECT_EQ(Ask("sub/c.bin"), "sub/.gitignore:1: c.bin");
  EXPECT_EQ(Ask("sub/d.tmp"), "sent");
  EXPECT_EQ(Ask("swap/a.swp"), "sent");
  EXPECT_EQ(Ask("swap/a.bak"), absl::StrCat(dir_.Sub("home/.config/git/ignore"), ":2: *.bak"));
}

TEST_F(IgnoreRulesTest, RulesFromAboveTheWorkDirectory) {
  MakeRepository("");
  dir_.Write(".gitignore", "*.o\n/w/only\n");
  dir_.Write(".gpuctlignore", "/w/ours\n");
  dir_.Write(".git/info/exclude", "/w/mine\n");
  EXPECT_EQ(Ask("sub/a.o"), absl::StrCat(dir_.Sub(".gitignore"), ":1: *.o"));
  EXPECT_EQ(Ask("only"), absl::StrCat(dir_.Sub(".gitignore"), ":2: /w/only"));
  EXPECT_EQ(Ask("ours"), absl::StrCat(dir_.Sub(".gpuctlignore"), ":1: /w/ours"));
  EXPECT_EQ(Ask("mine"), absl::StrCat(dir_.Sub(".git/info/exclude"), ":1: /w/mine"));
  EXPECT_EQ(Ask("sub/only"), "sent");
}

TEST_F(IgnoreRulesTest, AnIgnoredWorkDirectoryStandsForItself) {
  MakeRepository("");
  dir_.Write(".gitignore", "w/\nkeep\n");
  dir_.Write("w/.gitignore", "here\n");
  EXPECT_TRUE(Load().root_is_ignored());
  EXPECT_EQ(Ask("keep"), "sent");
  EXPECT_EQ(Ask("here"), ".gitignore:1: here");
  dir_.Write(".gpuctlignore", "!/w/\n");
  EXPECT_FALSE(Load().root_is_ignored());
  EXPECT_EQ(Ask("keep"), absl::StrCat(dir_.Sub(".gitignore"), ":2: keep"));
}

TEST_F(IgnoreRulesTest, DotGitStaysHomeEverywhere) {
  dir_.Write("w/.gpuctlignore", "!.git\n!.git/**\n");
  EXPECT_EQ(Ask(".git/"), ".git stays home");
  EXPECT_EQ(Ask(".git"), ".git stays home");
  EXPECT_EQ(Ask("sub/.git"), ".git stays home");
  EXPECT_EQ(Ask("sub/.git/config"), ".git stays home");
  EXPECT_EQ(Ask(".github/"), "sent");
  EXPECT_EQ(Ask(".gitignore"), "sent");
  EXPECT_EQ(Ask(".GIT"), "sent");
  MakeRepository("w");
  dir_.Write("w/.git/config", "[core]\nignorecase = true\n");
  EXPECT_EQ(Ask(".GIT"), ".git stays home");
}

TEST_F(IgnoreRulesTest, ADirectoryOfOnlyAStarIsLeftOutWhole) {
  dir_.Write("w/pulled/.gpuctlignore", "*\n");
  dir_.Write("w/half/.gpuctlignore", "*\n!keep\n");
  dir_.Write("w/gits/.gitignore", "*\n");
  EXPECT_EQ(Ask("pulled/"), "pulled/.gpuctlignore:1: *");
  EXPECT_EQ(Ask("pulled/a/b"), "pulled/.gpuctlignore:1: *");
  EXPECT_EQ(Ask("half/"), "sent");
  EXPECT_EQ(Ask("half/keep"), "sent");
  EXPECT_EQ(Ask("gits/"), "sent");
  IgnoreRules rules = Load({"pulled"});
  EXPECT_EQ(Ask(rules, "pulled/a"), "sent");
}

TEST_F(IgnoreRulesTest, SecretsStayHomeUnlessNamed) {
  const std::string held = "it looks like a secret";
  EXPECT_EQ(Ask(".env"), held);
  EXPECT_EQ(Ask("sub/server.pem"), held);
  EXPECT_EQ(Ask(".env/"), "sent");  // a directory, for example of a virtual environment
  EXPECT_EQ(Ask(".env.example"), "sent");
  for (const char* too_wide : {"!*\n", "!**\n", "!sub/**\n!/*\n", "!?*\n", "![!x]*\n"}) {
    dir_.Write("w/.gpuctlignore", too_wide);
    EXPECT_EQ(Ask(".env"), held) << too_wide;
    EXPECT_EQ(Ask("sub/server.pem"), held) << too_wide;
  }
  // A .gitignore decides about commits, not about sending.
  dir_.Write("w/.gpuctlignore", "");
  dir_.Write("w/.gitignore", "!.env\n");
  EXPECT_EQ(Ask(".env"), held);
  dir_.Write("w/.gitignore", ".env\n");
  EXPECT_EQ(Ask(".env"), ".gitignore:1: .env");
  dir_.Write("w/.gpuctlignore", "!.env\n!*\n!sub/*.pem\n");
  EXPECT_EQ(Ask(".env"), "sent");
  EXPECT_EQ(Ask("sub/server.pem"), "sent");
  EXPECT_EQ(Ask("server.pem"), held);
}

TEST_F(IgnoreRulesTest, IncludedByName) {
  dir_.Write("w/.gitignore", "data/\n*.bin\n");
  dir_.Write("w/data/a/one.bin", "");
  dir_.Write("w/data/a/.env", "");
  dir_.Write("w/data/b", "");
  dir_.Write("w/.env", "");
  IgnoreRules rules = Load({"./data/a/", ".env"});
  EXPECT_EQ(Ask(rules, "data/"), "sent");  // on the way there
  EXPECT_EQ(Ask(rules, "data/a/"), "sent");
  EXPECT_EQ(Ask(rules, "data/a/one.bin"), "sent");
  EXPECT_EQ(Ask(rules, "data/b"), ".gitignore:1: data/");
  EXPECT_EQ(Ask(rules, "data/c/"), ".gitignore:1: data/");
  EXPECT_EQ(Ask(rules, "x.bin"), ".gitignore:2: *.bin");
  EXPECT_EQ(Ask(rules, ".env"), "sent");
  // Its directory was named, the file itself was not.
  EXPECT_EQ(Ask(rules, "data/a/.env"), "it looks like a secret");
  const auto load = [this](const std::string& path) {
    return IgnoreRules::Load(dir_.Sub("w"), GitEnvironment(), {path}).status();
  };
  EXPECT_THAT(load("../w/.env"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(load(dir_.Sub("w/.env")), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(load("."), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(load(".git/config"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(load("nothing"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(IgnoreRulesTest, FilesThatCannotHoldRulesAreSaid) {
  dir_.Write("elsewhere", "a\n");
  ASSERT_EQ(symlink("../elsewhere", dir_.Sub("w/.gpuctlignore").c_str()), 0);
  ASSERT_OK(MakeDirectories(dir_.Sub("w/.gitignore")));
  ASSERT_OK(MakeDirectories(dir_.Sub("w/sub")));
  ASSERT_EQ(mkfifo(dir_.Sub("w/sub/.gitignore").c_str(), 0600), 0);
  IgnoreRules rules = Load();
  EXPECT_EQ(Ask(rules, "a"), "sent");
  EXPECT_EQ(Ask(rules, "sub/a"), "sent");
  EXPECT_THAT(rules.notes(), ElementsAre(HasSubstr("w/.gpuctlignore: a symbolic link")));
}

TEST_F(IgnoreRulesTest, EachFileIsReadOnce) {
  dir_.Write("w/sub/.gitignore", "a\n");
  IgnoreRules rules = Load();
  EXPECT_EQ(Ask(rules, "sub/a"), "sub/.gitignore:1: a");
  ASSERT_EQ(unlink(dir_.Sub("w/sub/.gitignore").c_str()), 0);
  EXPECT_EQ(Ask(rules, "sub/"), "sent");
  EXPECT_EQ(Ask(rules, "keep"), "sent");
  EXPECT_EQ(Ask(rules, "sub/deep/a"), "sub/.gitignore:1: a");
}

TEST(SecretFilesTest, Names) {
  for (const char* secret :
       {".env", "a/.env.local", ".ENV", "key.pem", "a/Server.KEY", "id_rsa", "a/id_ed25519",
        ".netrc", "x.p12", "credentials.json", "home/.aws/credentials", ".docker/config.json",
        "a/.cache/huggingface/token"}) {
    EXPECT_TRUE(LooksLikeSecret(secret)) << secret;
  }
  for (const char* harmless :
       {".env.example", ".env.sample", ".env.local.template", "environment", "id_rsa.pub", "key",
        ".key", ".pem", "aws/credentials", "config.json", "token", "xhuggingface/token",
        "a.pem.txt", ".environment", "env"}) {
    EXPECT_FALSE(LooksLikeSecret(harmless)) << harmless;
  }
}

}  // namespace
}  // namespace gpuctl
