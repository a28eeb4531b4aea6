// IgnoreRules against git itself: generated trees and rule files, every path decided by both, down
// to the file, line and text of the deciding pattern.
//
// GPUCTL_TEST_SEED=N takes other trees, GPUCTL_TEST_TREES=N more of them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/ignore/ignore_rules.h"
#include "client/ignore/test_ignore_generator.h"
#include "common/process/process.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using Strings = std::vector<std::string>;

int FromEnvironment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

std::string FindGit() {
  const char* path = std::getenv("PATH");
  for (const absl::string_view dir : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string git = JoinPath(dir, "git");
    if (access(git.c_str(), X_OK) == 0) return git;
  }
  return "";
}

// A new, empty file. Unlike TempDir::Write it does not wait for the disk, hundreds of times.
UniqueFd Create(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  EXPECT_TRUE(fd.valid()) << path;
  return fd;
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
      // To git a file that is not there is as good; making each would take most of the time.
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

  // core.excludesFile in each of the places where it can be said.
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
  std::string repository_, prefix_;
  std::vector<Entry> entries_;
  Strings names_;
};

struct Verdict {
  std::string source, line, pattern;
  bool Excludes() const { return !source.empty() && !absl::StartsWith(pattern, "!"); }
  std::string ToString() const {
    return source.empty() ? "nothing" : absl::StrCat(source, ":", line, ":", pattern);
  }
};

// What git says about each of the paths.
std::vector<Verdict> AskGit(const std::string& git, const TempDir& dir, const Tree& tree) {
  std::string question;
  // A colon at the beginning would mean something to git.
  for (const Entry& entry : tree.entries()) question += absl::StrCat("./", entry.path) + '\0';
  const UniqueFd in = Create(dir.Sub("question"));
  EXPECT_OK(WriteAll(in.get(), question, "question"));
  EXPECT_EQ(lseek(in.get(), 0, SEEK_SET), 0);
  const UniqueFd out = Create(dir.Sub("answer"));
  const UniqueFd errors = Create(dir.Sub("errors"));
  setenv("HOME", tree.environment().home.c_str(), 1);
  setenv("GIT_CONFIG_SYSTEM", tree.environment().system_config.c_str(), 1);
  SpawnOptions options;
  options.argv = {git,  "-C", tree.repository(), "check-ignore", "--no-index", "-z", "--stdin",
                  "-v", "-n"};
  options.stdin_fd = in.get();
  options.stdout_fd = out.get();
  options.stderr_fd = errors.get();
  const absl::StatusOr<pid_t> pid = Spawn(options);
  EXPECT_OK(pid);
  int status = 0;
  EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1)
      << ReadFileToString(dir.Sub("errors")).value_or("");
  const std::string answer = ReadFileToString(dir.Sub("answer")).value_or("");
  const Strings fields = absl::StrSplit(answer, '\0');
  std::vector<Verdict> verdicts;
  for (size_t i = 0; i + 3 < fields.size(); i += 4) {
    verdicts.push_back({fields[i], fields[i + 1], fields[i + 2]});
  }
  return verdicts;
}

std::string Normal(const std::string& path, const std::string& root) {
  return std::filesystem::weakly_canonical(std::filesystem::path(root) / path).string();
}

Verdict ToVerdict(const IgnoreRules::Decision& decision) {
  if (decision.reason != IgnoreRules::Reason::kRule) return {};
  return {decision.file->path, absl::StrCat(decision.pattern->line()), decision.pattern->text()};
}

class IgnoreGitTest : public testing::Test {
 protected:
  void SetUp() override {
    git_ = FindGit();
    ASSERT_FALSE(git_.empty()) << "git is not installed";
    for (const char* name : {"XDG_CONFIG_HOME", "GIT_DIR", "GIT_WORK_TREE", "GIT_CONFIG_GLOBAL",
                             "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_COUNT", "GIT_INDEX_FILE",
                             "GIT_CONFIG_PARAMETERS", "GIT_PREFIX", "GIT_LITERAL_PATHSPECS"}) {
      unsetenv(name);
    }
    setenv("LC_ALL", "C", 1);
    // Thousands of files and directories are made; in memory that takes a tenth of the time.
    if (access("/dev/shm", W_OK | X_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
  }

  void Compare(const TempDir& dir, const Tree& tree) {
    const std::vector<Verdict> theirs = AskGit(git_, dir, tree);
    ASSERT_EQ(theirs.size(), tree.entries().size());
    absl::StatusOr<IgnoreRules> rules = IgnoreRules::Load(tree.work(), tree.environment());
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
      if (expected.Excludes()) ++excluded_;
      if (absl::StartsWith(expected.pattern, "!")) ++brought_back_;
      if (expected.ToString() == got.ToString()) continue;
      ++differences_;
      ADD_FAILURE() << absl::CHexEscape(entry.path) << (entry.is_directory ? "/" : "")
                    << "\n  git: " << absl::CHexEscape(expected.ToString())
                    << "\n  we:  " << absl::CHexEscape(got.ToString());
    }
  }

  std::string git_;
  int decisions_ = 0, excluded_ = 0, brought_back_ = 0, differences_ = 0;
};

TEST_F(IgnoreGitTest, DecidesEveryPathAsGitDoes) {
  const int seed = FromEnvironment("GPUCTL_TEST_SEED", 1);
  const int trees = FromEnvironment("GPUCTL_TEST_TREES", 400);
  for (int i = 0; i < trees && differences_ < 20; ++i) {
    SCOPED_TRACE(absl::StrCat("GPUCTL_TEST_SEED=", seed, ", tree ", i));
    IgnoreGenerator random(static_cast<unsigned>(seed * 1'000'003 + i));
    const TempDir dir;
    const Tree tree(random, dir);
    Compare(dir, tree);
  }
  std::cout << "seed " << seed << ": " << trees << " trees, " << decisions_ << " decisions, "
            << excluded_ << " excluded, " << brought_back_ << " brought back, " << differences_
            << " differences\n";
  // The generator must not run dry.
  EXPECT_GT(decisions_, trees * 16);
  EXPECT_GT(excluded_, decisions_ / 10);
  EXPECT_GT(brought_back_, decisions_ / 100);
}

}  // namespace
}  // namespace gpuctl
