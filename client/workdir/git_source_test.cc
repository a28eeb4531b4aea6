// What is recorded of a work directory, by the installed git.
#include "client/workdir/git_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/ignore/test_git.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class GitSourceTest : public GitTest {
 protected:
  void SetUp() override {
    GitTest::SetUp();
    dir_ = std::make_unique<TempDir>();
    environment_.home = dir_->Sub("home");
    environment_.git = git_;
    environment_.git_limit = limit_;
    ASSERT_OK(MakeDirectories(environment_.home));
    UseHome(environment_);
    char resolved[PATH_MAX];
    ASSERT_OK(MakeDirectories(dir_->Sub("repo")));
    repo_ = realpath(dir_->Sub("repo").c_str(), resolved);
  }
  void Git(std::vector<std::string> args, const std::string& where = "") {
    args.insert(args.begin(), {git_, "-C", where.empty() ? repo_ : where, "-c", "user.name=Ada",
                               "-c", "user.email=ada@lovelace.example"});
    const auto end = RunWithin(limit_, args);
    ASSERT_OK(end);
    ASSERT_EQ(end->exit_code, 0) << args[7];
  }
  void Write(const std::string& name, const std::string& content) {
    dir_->Write("repo/" + name, content);
  }
  void Commit() {
    Git({"add", "-A", "-f"});
    Git({"commit", "-q", "-m", "one"});
  }
  // A repository with a commit of `files`.
  void Repository(const std::vector<std::string>& files) {
    Git({"init", "-q", "-b", "main"});
    for (const std::string& file : files) Write(file, "old\n");
    Commit();
  }
  Source Read(const std::string& below = "") {
    SourceQuestion question;
    question.root = below.empty() ? repo_ : JoinPath(repo_, below);
    question.include = include_;
    question.leave_out = leave_out_;
    return ReadSource(environment_, question);
  }
  // Applies the diff to the commit in a second place, and returns what a file is there.
  std::string Applied(const std::string& diff, const std::string& file) {
    const std::string other = dir_->Sub("other");
    EXPECT_OK(RemoveTree(other));
    Git({"clone", "-q", repo_, other});
    Git({"apply", dir_->Write("diff", diff)}, other);
    return ReadFileToString(JoinPath(other, file)).value_or("none");
  }

  std::unique_ptr<TempDir> dir_;
  std::string repo_;
  GitEnvironment environment_;
  std::vector<std::string> include_, leave_out_;
};

TEST_F(GitSourceTest, ACleanTreeHasACommitAndNoDiff) {
  Repository({"train.py"});
  const Source source = Read();
  EXPECT_EQ(source.record.unknown, "");
  EXPECT_EQ(source.record.commit.size(), 40u);
  EXPECT_EQ(source.record.branch, "main");
  EXPECT_TRUE(source.record.clean());
  EXPECT_EQ(source.diff, "");
}

TEST_F(GitSourceTest, WhatChangedAndWhatIsNewCanBeApplied) {
  Repository({"train.py", "gone.py", "a/deep/one.txt"});
  Write("train.py", "new\nlast line without end");
  Write("a/deep/one.txt", "changed\n");
  Write("a/two words.txt", "x\ny\n");
  Write("a/\"odd\"\n\xc3\xbc.txt", "odd\n");
  Write("one_line.txt", "no end");
  Write("empty.txt", "");
  Write("binary.bin", std::string("a\0b", 3));
  Write("run.sh", "#!/bin/sh\n");
  chmod((repo_ + "/run.sh").c_str(), 0755);
  ASSERT_EQ(symlink("train.py", (repo_ + "/link").c_str()), 0);
  unlink((repo_ + "/gone.py").c_str());
  const Source source = Read();
  EXPECT_EQ(source.record.changed, 10);
  EXPECT_EQ(source.record.left_out_count, 0);
  EXPECT_FALSE(source.record.diff_cut);
  EXPECT_EQ(source.record.diff_bytes, static_cast<int64_t>(source.diff.size()));
  EXPECT_THAT(source.diff, HasSubstr("Binary files /dev/null and b/binary.bin differ\n"));
  std::string text = source.diff;
  const size_t binary = text.find("diff --git a/binary.bin");
  text.erase(binary, text.find("diff --git", binary + 1) - binary);
  EXPECT_EQ(Applied(text, "train.py"), "new\nlast line without end");
  const std::string other = dir_->Sub("other/");
  EXPECT_EQ(ReadFileToString(other + "a/deep/one.txt").value_or(""), "changed\n");
  EXPECT_EQ(ReadFileToString(other + "a/two words.txt").value_or(""), "x\ny\n");
  EXPECT_EQ(ReadFileToString(other + "a/\"odd\"\n\xc3\xbc.txt").value_or(""), "odd\n");
  EXPECT_EQ(ReadFileToString(other + "one_line.txt").value_or(""), "no end");
  EXPECT_TRUE(PathExists(other + "empty.txt"));
  EXPECT_EQ(access((other + "run.sh").c_str(), X_OK), 0);
  char target[16] = "";
  EXPECT_EQ(readlink((other + "link").c_str(), target, sizeof(target) - 1), 8);
  EXPECT_FALSE(PathExists(other + "gone.py"));
}

TEST_F(GitSourceTest, SecretsAndWhatStaysHomeAreNotInTheDiff) {
  Repository({"train.py", ".env", "certs/server.pem", "private/notes.txt", "rows.jsonl"});
  Write(".gpuctlignore", "private/\n");
  Commit();
  Write("train.py", "new\n");
  for (const char* name : {".env", "certs/server.pem", "private/notes.txt", "rows.jsonl"}) {
    Write(name, "S3cret\n");
  }
  unlink((repo_ + "/certs/server.pem").c_str());
  // New, and neither in the commit nor with the job.
  Write("private/more.txt", "S3cret\n");
  Write("id_ed25519", "S3cret\n");
  leave_out_ = {"rows.jsonl"};
  Source source = Read();
  EXPECT_THAT(source.diff,
              AllOf(HasSubstr("+new"), Not(HasSubstr("S3cret")), Not(HasSubstr("server.pem"))));
  EXPECT_EQ(source.record.changed, 5);
  EXPECT_THAT(
      source.record.left_out,
      testing::UnorderedElementsAre(".env", "certs/server.pem", "private/notes.txt", "rows.jsonl"));
  // Sent by name; still no secret stays in the list of runs.
  include_ = {".env", "id_ed25519"};
  source = Read();
  EXPECT_THAT(source.diff, Not(HasSubstr("S3cret")));
  EXPECT_EQ(source.record.changed, 6);
}

TEST_F(GitSourceTest, OnlyTheWorkDirectoryCounts) {
  Repository({"a/train.py", "b/other.py"});
  Write("b/other.py", "new\n");
  EXPECT_TRUE(Read("a").record.clean());
  Write("a/train.py", "new\n");
  Write("a/more.py", "more\n");
  const Source source = Read("a");
  EXPECT_EQ(source.record.changed, 2);
  EXPECT_THAT(source.diff, Not(HasSubstr("other.py")));
  EXPECT_EQ(Applied(source.diff, "a/more.py"), "more\n");
}

TEST_F(GitSourceTest, BeforeTheFirstCommitEverythingIsNew) {
  Git({"init", "-q", "-b", "main"});
  Write("staged.py", "one\n");
  Git({"add", "staged.py"});
  Write("new.py", "two\n");
  const Source source = Read();
  EXPECT_EQ(source.record.commit, "");
  EXPECT_EQ(source.record.branch, "main");
  EXPECT_EQ(source.record.changed, 2);
  EXPECT_THAT(source.diff, AllOf(HasSubstr("+one"), HasSubstr("+two")));
}

TEST_F(GitSourceTest, LargeChangesAreCutAndLargeNewFilesLeftOut) {
  Repository({"train.py"});
  Write("large.csv", std::string(kMostNewFileBytes + 1, 'x'));
  Source source = Read();
  EXPECT_THAT(source.record.left_out, ElementsAre("large.csv"));
  EXPECT_EQ(source.diff, "");
  EXPECT_FALSE(source.record.diff_cut);
  std::string lines;
  while (lines.size() < 2 * kMostDiffBytes) lines += "a line of text that is new\n";
  Write("train.py", lines);
  Write("small.txt", "x\n");
  source = Read();
  EXPECT_TRUE(source.record.diff_cut);
  EXPECT_EQ(source.record.diff_bytes, kMostDiffBytes);
  EXPECT_EQ(source.record.changed, 3);
}

TEST_F(GitSourceTest, SettingsOfTheUserDoNotChangeTheDiff) {
  Repository({"train.py"});
  dir_->Write("home/.gitconfig",
              "[diff]\n\texternal = false\n\tnoprefix = true\n\tmnemonicPrefix = true\n"
              "\trelative = true\n[color]\n\tui = always\n[core]\n\tpager = false\n");
  Write("train.py", "new\n");
  const Source source = Read();
  EXPECT_THAT(source.diff, HasSubstr("--- a/train.py\n+++ b/train.py\n"));
  EXPECT_THAT(source.diff, Not(HasSubstr("\x1b")));
  setenv("GIT_LITERAL_PATHSPECS", "1", 1);
  setenv("GIT_EXTERNAL_DIFF", "false", 1);
  Write(".env", "x\n");
  Git({"add", "-f", ".env"});
  EXPECT_EQ(Read().diff, source.diff);
  unsetenv("GIT_EXTERNAL_DIFF");
  unsetenv("GIT_LITERAL_PATHSPECS");
}

TEST_F(GitSourceTest, SaysWhyNothingIsKnown) {
  const TempDir bare;
  SourceQuestion question{bare.path(), {}, {}};
  EXPECT_EQ(ReadSource(environment_, question).record.unknown, "not in a git repository");
  Repository({"train.py"});
  const std::string git = std::exchange(environment_.git, "");
  EXPECT_EQ(Read().record.unknown, "git is not installed");
  environment_.git = dir_->Write("git", "#!/bin/sh\nexit 3\n", 0755);
  EXPECT_EQ(Read().record.unknown, "git does not accept the repository");
  environment_.git =
      dir_->Write("git", "#!/bin/sh\ncase $* in *rev-parse*) echo /; exit;; esac\n", 0755);
  EXPECT_EQ(Read().record.unknown, "git works with another repository here");
  environment_.git = dir_->Write("git",
                                 "#!/bin/sh\ncase $* in *rev-parse*) echo " + repo_ + "; echo " +
                                     repo_ + "/.git;; *) echo what;; esac\n",
                                 0755);
  EXPECT_EQ(Read().record.unknown, "git status failed");
  // Of another repository, as in a hook.
  environment_.git = git;
  TempDir other;
  Git({"init", "-q"}, other.path());
  setenv("GIT_DIR", other.Sub(".git").c_str(), 1);
  EXPECT_EQ(Read().record.unknown, "git works with another repository here");
  unsetenv("GIT_DIR");
}

TEST_F(GitSourceTest, ALinkedWorktreeAndASubmoduleAreRepositories) {
  Repository({"train.py"});
  const std::string first = repo_;
  Git({"worktree", "add", "-q", "-b", "side", first + "/../side"});
  repo_ = JoinPath(DirName(first), "side");
  dir_->Write("side/train.py", "new\n");
  Source source = Read();
  EXPECT_EQ(source.record.unknown, "");
  EXPECT_EQ(source.record.branch, "side");
  EXPECT_THAT(source.diff, HasSubstr("+new"));
  repo_ = first;
  TempDir module;
  Git({"init", "-q", "-b", "main"}, module.path());
  module.Write("lib.py", "old\n");
  Git({"add", "-A"}, module.path());
  Git({"commit", "-q", "-m", "one"}, module.path());
  Git({"-c", "protocol.file.allow=always", "submodule", "add", "-q", module.path(), "module"});
  Git({"commit", "-q", "-m", "two"});
  Write("module/lib.py", "changed\n");
  // Its files are sent, and are in another repository.
  source = Read();
  EXPECT_EQ(source.record.changed, 1);
  EXPECT_THAT(source.diff, HasSubstr("-dirty"));
  source = Read("module");
  EXPECT_EQ(source.record.unknown, "");
  EXPECT_THAT(source.diff, HasSubstr("+changed"));
}

TEST_F(GitSourceTest, NothingIsFetched) {
  Repository({"train.py"});
  const std::string other = dir_->Sub("partial");
  Git({"config", "uploadpack.allowFilter", "true"});
  Git({"clone", "-q", "--filter=blob:none", "--no-checkout", "file://" + repo_, other});
  // The blob of the commit is not here, and its repository is gone.
  const std::string moved = repo_ + "-moved";
  ASSERT_EQ(rename(repo_.c_str(), moved.c_str()), 0);
  repo_ = other;
  dir_->Write("partial/train.py", "new\n");
  Git({"reset", "-q"});
  const Source source = Read();
  EXPECT_EQ(source.record.unknown, "");
  EXPECT_EQ(source.record.changed, 1);
  EXPECT_EQ(source.record.diff_missing, "git diff failed");
}

TEST_F(GitSourceTest, NothingIsWritten) {
  Repository({"train.py"});
  Write("train.py", "old\n");  // the same content at another time
  const std::string before = ReadFileToString(repo_ + "/.git/index").value();
  EXPECT_TRUE(Read().record.clean());
  EXPECT_EQ(ReadFileToString(repo_ + "/.git/index").value(), before);
  EXPECT_THAT(ListDirectory(dir_->Sub("home")).value(), IsEmpty());
}

}  // namespace
}  // namespace gpuctl
