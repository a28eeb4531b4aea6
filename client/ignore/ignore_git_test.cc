// Tests IgnoreRules against git itself. Both decide every path of generated trees and rule files,
// and must agree on the file, line and text of the deciding pattern. gpuctl's own code reads git's
// settings; a second pass asks git for them.
//
// GPUCTL_TEST_SEED=N takes other trees, GPUCTL_TEST_TREES=N more of them.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/ignore/ignore_rules.h"
#include "client/ignore/test_git.h"
#include "client/ignore/test_ignore_generator.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using Strings = std::vector<std::string>;

int FromEnvironment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

struct Entry {
  std::string path;  // relative to the repository's root
  bool is_directory = false;
};

// One repository with a work directory somewhere in it, and a home.
class Tree {
 public:
  Tree(IgnoreGenerator& random, const TempDir& dir) : random_(random), dir_(dir) {
    repository_ = dir_.Sub("repo");
    Make("repo");
    Make("home");
    if (random_.Percent(30)) {
      for (int depth = 1 + random_.Below(2); depth > 0; --depth) {
        const std::string below = prefix_ + random_.Name();
        if (MakeEntry(below, true)) prefix_ = absl::StrCat(below, "/");
      }
    }
    Fill(prefix_, 3);
    for (const Entry& entry : entries_) names_.push_back(entry.path);
    MakeRules();
    MakeGit();
  }

  const std::string& repository() const { return repository_; }
  std::string work() const {
    return JoinPath(repository_, prefix_.substr(0, prefix_.empty() ? 0 : prefix_.size() - 1));
  }
  const std::string& prefix() const { return prefix_; }
  const std::vector<Entry>& entries() const { return entries_; }
  const std::string& git_dir() const { return git_dir_; }
  GitEnvironment environment() const {
    GitEnvironment environment;
    environment.home = dir_.Sub("home");
    environment.system_config = dir_.Sub("system");
    return environment;
  }

 private:
  void Make(const std::string& directory) { EXPECT_OK(MakeDirectories(dir_.Sub(directory), 0755)); }
  void Write(const std::string& path, const std::string& text) {
    Make(DirName(path));
    EXPECT_OK(WriteAll(Create(dir_.Sub(path)).get(), text, path));
  }

  bool MakeEntry(const std::string& path, bool is_directory) {
    const std::string full = JoinPath(repository_, path);
    for (const Entry& entry : entries_) {
      if (entry.path == path) return false;
    }
    if (is_directory) {
      EXPECT_EQ(mkdir(full.c_str(), 0755), 0) << path;
    } else if (random_.Percent(10)) {
      EXPECT_EQ(symlink(random_.Percent(50) ? "." : "nowhere", full.c_str()), 0) << path;
    } else if (random_.Percent(20)) {
      // git answers for missing files too; making each would take most of the time.
      Create(full);
    }
    entries_.push_back({path, is_directory});
    return true;
  }

  void Fill(const std::string& prefix, int depth) {
    for (int count = 3 + random_.Below(4); count > 0; --count) {
      const std::string path = prefix + random_.Name();
      const bool is_directory = depth > 0 && random_.Percent(45);
      if (MakeEntry(path, is_directory) && is_directory) Fill(absl::StrCat(path, "/"), depth - 1);
    }
  }

  void MakeRules() {
    const std::vector<Entry> entries = entries_;
    RulesIn("");
    for (const Entry& entry : entries) {
      if (entry.is_directory && random_.Percent(30)) RulesIn(absl::StrCat(entry.path, "/"));
    }
  }

  void RulesIn(const std::string& prefix) {
    if (random_.Percent(10)) return;
    const std::string path = absl::StrCat(prefix, ".gitignore");
    if (random_.Percent(4)) {
      const std::string rules = dir_.Sub("home/excludes");
      EXPECT_EQ(symlink(rules.c_str(), JoinPath(repository_, path).c_str()), 0);
      return;
    }
    Strings below;
    for (const std::string& name : names_) {
      if (absl::StartsWith(name, prefix)) below.push_back(name.substr(prefix.size()));
    }
    Write(absl::StrCat("repo/", path), random_.RuleFile(below));
    if (absl::StartsWith(path, prefix_)) entries_.push_back({path, false});
  }

  void MakeGit() {
    std::string git = "repo/.git";     // HEAD and config.worktree
    std::string common = "repo/.git";  // everything else
    const int layout = random_.Below(4);
    if (layout == 0) {  // a linked worktree
      git = "main/.git/worktrees/w";
      common = "main/.git";
      Write("main/.git/HEAD", "ref: refs/heads/main\n");
      Write("main/.git/worktrees/w/commondir", "../..\n");
      Write("main/.git/worktrees/w/gitdir", absl::StrCat(repository_, "/.git\n"));
      Write("repo/.git", absl::StrCat("gitdir: ", dir_.Sub("main/.git/worktrees/w"), "\n"));
    } else if (layout == 1) {  // a submodule's
      git = common = "modules/sub";
      Write("repo/.git", "gitdir: ../modules/sub\n");
    }
    git_dir_ = dir_.Sub(git);
    Write(absl::StrCat(git, "/HEAD"), "ref: refs/heads/main\n");
    Make(absl::StrCat(common, "/objects"));
    Make(absl::StrCat(common, "/refs"));
    std::string config = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n";
    if (random_.Percent(25)) config += random_.Pick({"ignorecase\n", "[CORE] ignoreCase = yes\n"});
    Strings configs = {"system", "home/.gitconfig", "home/.config/git/config"};
    for (const std::string& path : configs) Write(path, "");
    MakeExcludes(config);
    Write(absl::StrCat(common, "/config"), config);
    if (random_.Percent(60)) Write(absl::StrCat(common, "/info/exclude"), random_.RuleFile(names_));
  }

  // Sets core.excludesFile in each of its possible places.
  void MakeExcludes(std::string& config) {
    const std::string absolute = dir_.Sub("home/excludes");
    Write("home/excludes", random_.RuleFile(names_));
    switch (random_.Below(9)) {
      case 0:
        absl::StrAppend(&config, "excludesFile = \"", absolute, "\" ; comment\n");
        break;
      case 1:
        Write("home/.gitconfig", "; comment\n[core]\n  excludesfile = ~/excludes\n");
        break;
      case 2:
        Write("system", absl::StrCat("[core]excludesfile=", absolute, "\r\n"));
        break;
      case 3:
        Write("home/.gitconfig", "[include]\n\tpath = .config/more\n");
        Write("home/.config/more", "[core]\n\texcludesFile = ~/exclu\\\ndes\n");
        break;
      case 4:
        Write(
            "home/.config/git/config",
            absl::StrCat("[includeIf \"gitdir", random_.Pick({":", "/i:"}),
                         random_.Pick({"re?o/", "repo/.git", "/nowhere/", "main/", "~/", "REPO/"}),
                         "\"]\npath = ../more\n"));
        Write("home/.config/more", absl::StrCat("[core]\n\texcludesFile = ", absolute, "\n"));
        break;
      case 5:
        Write("home/.gitconfig", absl::StrCat("[core]\n\texcludesFile = ", absolute, "\n"));
        config += "excludesFile =\n";
        break;
      case 6:
        config += "excludesFile = ../home/excludes\n";
        break;
      case 7:
        break;
      default:
        Write("home/.config/git/ignore", random_.RuleFile(names_));
    }
  }

  IgnoreGenerator& random_;
  const TempDir& dir_;
  std::string repository_, prefix_, git_dir_;
  std::vector<Entry> entries_;
  Strings names_;
};

std::string Normal(const std::string& path, const std::string& root) {
  return std::filesystem::weakly_canonical(std::filesystem::path(root) / path).string();
}

class IgnoreGitTest : public GitTest {
 protected:
  void Compare(const TempDir& dir, const Tree& tree) {
    UseHome(tree.environment());
    Strings paths;
    for (const Entry& entry : tree.entries()) paths.push_back(entry.path);
    const std::vector<Verdict> theirs = CheckIgnore(git_, dir, tree.repository(), paths);
    ASSERT_EQ(theirs.size(), paths.size()) << ReadFileToString(dir.Sub("errors")).value_or("");
    GitEnvironment environment = tree.environment();
    CompareWith(theirs, tree, environment);
    const int read = decisions_;
    environment.git = git_;
    environment.git_limit = limit_;
    CompareWith(theirs, tree, environment);
    told_ += decisions_ - read;
    decisions_ = read;
  }

  void CompareWith(const std::vector<Verdict>& theirs, const Tree& tree,
                   const GitEnvironment& environment) {
    SCOPED_TRACE(environment.git.empty() ? "settings read" : "settings told");
    absl::StatusOr<IgnoreRules> rules = IgnoreRules::Load(tree.work(), environment);
    ASSERT_OK(rules);
    bool root_is_ignored = false;
    for (size_t i = 0; i < theirs.size(); ++i) {
      const bool above = absl::StartsWith(tree.prefix(), absl::StrCat(tree.entries()[i].path, "/"));
      if (above && theirs[i].Excludes()) root_is_ignored = true;
    }
    EXPECT_EQ(rules->root_is_ignored(), root_is_ignored) << tree.prefix();
    if (root_is_ignored) return;
    for (size_t i = 0; i < theirs.size(); ++i) {
      const Entry& entry = tree.entries()[i];
      if (entry.path.size() <= tree.prefix().size()) continue;
      Verdict expected = theirs[i];
      if (!expected.source.empty()) expected.source = Normal(expected.source, tree.repository());
      Verdict got =
          ToVerdict(rules->Decide(entry.path.substr(tree.prefix().size()), entry.is_directory));
      if (!got.source.empty()) got.source = Normal(got.source, "/");
      ++decisions_;
      if (environment.git.empty() && expected.Excludes()) ++excluded_;
      if (environment.git.empty() && absl::StartsWith(expected.pattern, "!")) ++brought_back_;
      if (expected.ToString() == got.ToString()) continue;
      ++differences_;
      ADD_FAILURE() << absl::CHexEscape(entry.path) << (entry.is_directory ? "/" : "")
                    << "\n  git: " << absl::CHexEscape(expected.ToString())
                    << "\n  we:  " << absl::CHexEscape(got.ToString());
    }
  }

  int decisions_ = 0, excluded_ = 0, brought_back_ = 0, differences_ = 0;
  int told_ = 0;  // decisions with settings that git told
};

TEST_F(IgnoreGitTest, DecidesEveryPathAsGitDoes) {
  const int seed = FromEnvironment("GPUCTL_TEST_SEED", 1);
  const int trees = FromEnvironment("GPUCTL_TEST_TREES", 400);
  for (int i = 0; i < trees && differences_ < 20; ++i) {
    SCOPED_TRACE(absl::StrCat("GPUCTL_TEST_SEED=", seed, ", tree ", i));
    IgnoreGenerator random(static_cast<unsigned>(seed * 1'000'003 + i));
    const TempDir dir;
    const Tree tree(random, dir);
    // As in a hook: GIT_DIR names the repository that is found anyway.
    const std::string git_dir = JoinPath(tree.repository(), ".git");
    if (i % 4 == 0) setenv("GIT_DIR", tree.git_dir().c_str(), 1);
    if (i % 4 == 1) setenv("GIT_DIR", tree.git_dir() == git_dir ? ".git" : git_dir.c_str(), 1);
    Compare(dir, tree);
    unsetenv("GIT_DIR");
  }
  std::cout << "seed " << seed << ": " << trees << " trees, " << decisions_ << " decisions, "
            << excluded_ << " excluded, " << brought_back_ << " brought back, " << differences_
            << " differences\n";
  // The generator must not run dry.
  EXPECT_GT(decisions_, trees * 16);
  EXPECT_GT(excluded_, decisions_ / 10);
  EXPECT_GT(brought_back_, decisions_ / 100);
  EXPECT_EQ(told_, decisions_);
}

}  // namespace
}  // namespace gpuctl
