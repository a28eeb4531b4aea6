// The keys, the words and the removal of environments.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/envs/cache_sweep.h"
#include "agent/envs/env_key.h"
#include "agent/envs/env_store.h"
#include "agent/envs/packages.h"
#include "agent/envs/setup_words.h"
#include "common/base/fake_clock.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<std::string> Words(absl::string_view script) {
  std::vector<std::string> words;
  for (const SetupWord& word : WordsOf(script)) words.push_back(word.text);
  return words;
}

TEST(SetupWordsTest, AreThePathsThatAScriptMayMean) {
  EXPECT_THAT(Words("pip install -r ./a/req.txt --find-links=wheels/ 'b c' $HOME/x /etc/y ../z"),
              ElementsAre("pip", "install", "a/req.txt", "wheels", "b", "c"));
  EXPECT_THAT(Words("pip install .[dev] ./"), ElementsAre("pip", "install", ".", "dev", "."));
  EXPECT_THAT(Words(". env.sh\ncd x && . y"), ElementsAre("env.sh", "cd", "x", "y"));
  EXPECT_THAT(Words("pip install wheels/*.whl"), ElementsAre("pip", "install", "wheels/*.whl"));
  EXPECT_THAT(Words(""), IsEmpty());
  const std::vector<SetupWord> words = WordsOf("uv sync --script train.py");
  EXPECT_TRUE(words.back().after_script_flag);
  EXPECT_EQ(words.back().text, "train.py");
}

TEST(SetupWordsTest, VariablesRequirementsAndHeaders) {
  EXPECT_THAT(VariablesOf("a $B ${C:-x} $1 \\$D $"), ElementsAre("1", "B", "C", "D"));
  EXPECT_THAT(FilesOfRequirements("torch==2\n-r base.txt # why\n--constraint=c.txt\n"
                                  "-e ./pkg\n./other ; python_version > '3'\nx/y.whl\n-e git+x\n"),
              ElementsAre("base.txt", "c.txt", "pkg", "other", "x/y.whl", "git+x"));
  EXPECT_EQ(ScriptHeader("#!/x\n# /// script\n# dependencies = []\n# ///\nimport a\n"),
            "# dependencies = []\n");
  EXPECT_EQ(ScriptHeader("# /// script\nimport a\n"), "");
  EXPECT_EQ(ScriptHeader("import a\n"), "");
}

class EnvKeyTest : public ::testing::Test {
 protected:
  EnvKeyTest() {
    spec_.set_setup("make things");
    spec_.add_argv("python");
    spec_.add_argv("train.py");
    EXPECT_OK(MakeDirectories(work_));
  }
  EnvKey Key() { return ComputeEnvKey(spec_, work_, environment_).value(); }
  // True when `change` makes another key.
  template <typename Change>
  bool Changes(Change change) {
    const std::string before = Key().digest;
    EXPECT_EQ(Key().digest, before);
    change();
    return Key().digest != before;
  }
  bool Changes(const std::string& name, const std::string& text) {
    return Changes([&] { dir_.Write(absl::StrCat("work/", name), text); });
  }

  TempDir dir_;
  const std::string work_ = dir_.Sub("work");
  Environment environment_ = {{"PATH", "/usr/bin:/bin"}};
  gpuctl::v1::JobSpec spec_;
};

TEST_F(EnvKeyTest, FilesThatCountByThemselves) {
  EXPECT_FALSE(Changes("train.py", "import torch\n"));
  EXPECT_FALSE(Changes("README.md", "text"));
  for (const char* name : {"uv.lock", "requirements.txt", "requirements-gpu.txt", "pyproject.toml",
                           "environment.yml", "requirements/base.txt"}) {
    EXPECT_TRUE(Changes(name, "one")) << name;
    EXPECT_TRUE(Changes(name, "two")) << name;
  }
  EXPECT_TRUE(Changes("train.py", "# /// script\n# dependencies = ['a']\n# ///\nimport torch\n"));
  EXPECT_FALSE(Changes("train.py", "# /// script\n# dependencies = ['a']\n# ///\nimport x\n"));
  EXPECT_THAT(Key().inputs,
              UnorderedElementsAre("environment.yml", "pyproject.toml", "requirements-gpu.txt",
                                   "requirements.txt", "requirements/base.txt", "train.py (header)",
                                   "uv.lock"));
}

TEST_F(EnvKeyTest, FilesThatAreNamed) {
  EXPECT_FALSE(Changes("tools/install.sh", "one"));
  spec_.set_setup("bash ./tools/install.sh && pip install pkg wheels/*.whl");
  EXPECT_TRUE(Changes("tools/install.sh", "two"));
  EXPECT_TRUE(Changes("pkg/a/b.py", "one"));
  EXPECT_TRUE(Changes("pkg/a/b.py", "two"));
  EXPECT_FALSE(Changes("pkg/__pycache__/b.pyc", "x"));
  EXPECT_TRUE(Changes("wheels/x.whl", "one"));
  EXPECT_FALSE(Changes("wheels/x.txt", "one"));
  EXPECT_TRUE(Changes("requirements.txt", "-r more/deps.txt\n"));
  EXPECT_TRUE(Changes("more/deps.txt", "torch\n"));
  EXPECT_TRUE(Changes("more/deps.txt", "torch<2\n"));
}

TEST_F(EnvKeyTest, TheWholeDirectoryCountsAsItWasSent) {
  EXPECT_FALSE(Changes([&] { spec_.set_manifest_digest("one"); }));
  spec_.set_setup("pip install -e .");
  EXPECT_TRUE(Changes([&] { spec_.set_manifest_digest("two"); }));
  EXPECT_FALSE(Changes("out/checkpoint", "written by the job"));
}

TEST_F(EnvKeyTest, VariablesSecretsAndTheText) {
  EXPECT_FALSE(Changes([&] { environment_["LR"] = "1e-4"; }));
  EXPECT_TRUE(Changes([&] { environment_["UV_INDEX_URL"] = "x"; }));
  EXPECT_FALSE(Changes([&] { environment_["UV_CACHE_DIR"] = "x"; }));
  EXPECT_FALSE(Changes([&] { environment_["PATH"] = "/bin:/usr/bin:/nowhere"; }));
  EXPECT_TRUE(Changes([&] { spec_.set_setup("make $EXTRA $TOKEN"); }));
  EXPECT_TRUE(Changes([&] { environment_["EXTRA"] = "cuda"; }));
  EXPECT_TRUE(Changes([&] { spec_.add_secret_names("TOKEN"); }));
  EXPECT_FALSE(Changes([&] { spec_.add_secret_names("OTHER"); }));
  dir_.Write("bin/python3", "#!/bin/sh\n");
  ASSERT_EQ(chmod(dir_.Sub("bin/python3").c_str(), 0755), 0);
  EXPECT_TRUE(Changes([&] { environment_["PATH"] = absl::StrCat(dir_.Sub("bin"), ":/bin"); }));
}

TEST_F(EnvKeyTest, WhatIsOddDoesNotHangOrLeadOut) {
  spec_.set_setup("x link dangling fifo secret dir huge loop");
  dir_.Write("outside/file", "one");
  ASSERT_EQ(symlink(dir_.Sub("outside/file").c_str(), dir_.Sub("work/link").c_str()), 0);
  ASSERT_EQ(symlink("nowhere", dir_.Sub("work/dangling").c_str()), 0);
  ASSERT_EQ(symlink("loop", dir_.Sub("work/loop").c_str()), 0);
  ASSERT_EQ(mkfifo(dir_.Sub("work/fifo").c_str(), 0600), 0);
  dir_.Write("work/dir/inner", "x");
  ASSERT_EQ(symlink("..", dir_.Sub("work/dir/up").c_str()), 0);
  // What is outside counts by its name.
  EXPECT_FALSE(Changes([&] { dir_.Write("outside/file", "two"); }));
  // A sparse file of 1 TiB is read at both ends.
  const std::string huge = dir_.Sub("work/huge");
  const UniqueFd fd(open(huge.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(fd.get(), off_t{1} << 40), 0);
  EXPECT_TRUE(Changes([&] { ASSERT_EQ(pwrite(fd.get(), "x", 1, (off_t{1} << 40) - 1), 1); }));
  // Inside, a link is followed.
  dir_.Write("work/real", "one");
  ASSERT_EQ(symlink("real", dir_.Sub("work/secret").c_str()), 0);
  EXPECT_TRUE(Changes("real", "two"));
}

TEST(PackagesTest, AreReadFromTheDirectoriesOfAnEnvironment) {
  TempDir dir;
  const std::string site = "env/lib/python3.12/site-packages/";
  dir.Write(site + "torch-2.4.0+cu121.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: torch\nVersion: 2.4.0+cu121\n\nName: no\n");
  dir.Write(site + "Foo_Bar-1.dist-info/RECORD", "");
  dir.Write(site + "old-3.egg-info/PKG-INFO", "Name: Old\nVersion: 3.0\n");
  dir.Write(site + "bad-1.dist-info/METADATA", "Name: bad\x1b[31m\nVersion: 1\n");
  dir.Write(site + "torch/__init__.py", "");
  EXPECT_THAT(PackagesIn(SitePackagesOf(dir.Sub("env"))),
              ElementsAre("Foo_Bar==1", "Old==3.0", "torch==2.4.0+cu121"));
  EXPECT_EQ(PythonVersionOf(dir.Sub("env")), "3.12");
  dir.Write("env/pyvenv.cfg", "home = /usr/bin\nversion_info = 3.12.4.final.0\n");
  EXPECT_EQ(PythonVersionOf(dir.Sub("env")), "3.12.4");
  EXPECT_THAT(PackagesIn({dir.Sub("nowhere")}), IsEmpty());
}

TEST(PackagesTest, AreThoseThatTheEnvironmentsPythonFinds) {
  TempDir dir;
  const auto give = [&](const std::string& site, const std::string& name) {
    dir.Write(site + "/" + name + ".dist-info/METADATA", "");
  };
  give("env/lib/python3.12/site-packages", "own-1");
  give("env/lib/python3.9/site-packages", "stale-1");  // of a Python that was here before
  give("sys/lib/python3/dist-packages", "debian-1");
  give("sys/lib/python3.12/site-packages", "own-0");
  give("sys/lib/python3.9/site-packages", "other-1");
  give("sys/local/lib/python3.12/dist-packages", "torch-2");
  const std::string config = "home = " + dir.Sub("sys/bin") + "\nversion = 3.12.4\n";
  dir.Write("env/pyvenv.cfg", config + "include-system-site-packages = false\n");
  const auto packages = [&] { return PackagesIn(SitePackagesSeenFrom(dir.Sub("env"))); };
  EXPECT_THAT(packages(), ElementsAre("own==1"));
  dir.Write("env/pyvenv.cfg", "include-system-site-packages = true\n" + config);
  EXPECT_THAT(packages(), ElementsAre("debian==1", "own==1", "torch==2"));
}

TEST(CacheSweepTest, RemovesTheLongestUnusedWhileNoJobIsThere) {
  TempDir dir;
  const RootPaths root(dir.path());
  bool used = false;
  const auto sweep = [&](int64_t want_free) {
    return *SweepCaches(root, want_free, [&used] { return used; });
  };
  constexpr int64_t kNever = int64_t{1} << 60;
  EXPECT_THAT(sweep(kNever), IsEmpty());
  for (const char* name : {"uv", "pip", "conda"}) {
    dir.Write(absl::StrCat("caches/", name, "/a/b"), "x");
    const time_t when = name == std::string("pip") ? 1000 : 2000;
    const timespec times[2] = {{when, 0}, {when, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, dir.Sub(absl::StrCat("caches/", name, "/a")).c_str(), times, 0),
              0);
    ASSERT_EQ(utimensat(AT_FDCWD, dir.Sub(absl::StrCat("caches/", name)).c_str(), times, 0), 0);
  }
  dir.Write("caches/.gone-old/x", "x");
  used = true;
  EXPECT_THAT(sweep(kNever), IsEmpty());
  EXPECT_FALSE(PathExists(dir.Sub("caches/.gone-old")));
  used = false;
  EXPECT_THAT(sweep(0), IsEmpty());
  // One job comes while the first one is removed.
  int asked = 0;
  EXPECT_THAT(*SweepCaches(root, kNever, [&] { return asked++ > 0; }), ElementsAre("pip"));
  EXPECT_FALSE(PathExists(dir.Sub("caches/pip")));
  EXPECT_TRUE(PathExists(dir.Sub("caches/uv/a/b")));
  EXPECT_THAT(sweep(kNever), UnorderedElementsAre("conda", "uv"));
  EXPECT_THAT(*ListDirectory(root.caches), IsEmpty());
}

class EnvSweepTest : public ::testing::Test {
 protected:
  EnvPaths Make(const std::string& name, absl::Duration unused, const std::string& bound_to = "") {
    EnvPaths env(root_, name);
    EXPECT_OK(MakeDirectories(env.prefix));
    EnvMarker marker;
    marker.digest = name;
    marker.bound_to = bound_to;
    EXPECT_OK(WriteEnvMarker(env, marker));
    EXPECT_OK(UseEnv(env));
    const timespec when = absl::ToTimespec(clock_.Now() - unused);
    const timespec times[2] = {when, when};
    EXPECT_EQ(utimensat(AT_FDCWD, env.used.c_str(), times, 0), 0);
    return env;
  }
  std::vector<std::string> Sweep(int64_t want_free = 0) {
    return SweepEnvs(root_, want_free, clock_).value();
  }
  TempDir dir_;
  RootPaths root_{dir_.path()};
  FakeClock clock_;
};

TEST_F(EnvSweepTest, RemovesWhatNobodyUsed) {
  EXPECT_THAT(Sweep(), IsEmpty());
  Make("new", absl::Hours(24));
  Make("old", absl::Hours(15 * 24));
  const EnvPaths used = Make("used", absl::Hours(0));
  const absl::StatusOr<UniqueFd> in_use = WaitForSharedLock(used.used);
  const timespec old = absl::ToTimespec(clock_.Now() - absl::Hours(20 * 24));
  const timespec times[2] = {old, old};
  ASSERT_EQ(utimensat(AT_FDCWD, used.used.c_str(), times, 0), 0);
  dir_.Write("envs/torn/env/file", "x");
  dir_.Write("envs/making/env/file", "x");
  const absl::StatusOr<UniqueFd> making = LockEnv(EnvPaths(root_, "making"));
  EXPECT_THAT(Sweep(), UnorderedElementsAre("old", "torn"));
  EXPECT_THAT(*ListDirectory(root_.envs), UnorderedElementsAre("making", "new", "used"));
}

TEST_F(EnvSweepTest, OneOfAJobGoesADayAfterIt) {
  dir_.Write("jobs/j-live/spec.json", "{}");
  const std::string live = dir_.Sub("jobs/j-live");
  const std::string gone = dir_.Sub("jobs/j-gone");
  Make("a", absl::Hours(30), live);
  Make("b", absl::Hours(30), gone);
  Make("c", absl::Hours(3), gone);
  EXPECT_THAT(Sweep(), ElementsAre("b"));
}

TEST_F(EnvSweepTest, MakesRoomOnAFullDisk) {
  Make("a", absl::Hours(30));
  Make("b", absl::Hours(20));
  Make("c", absl::Minutes(10));
  EXPECT_THAT(Sweep(int64_t{1} << 60), ElementsAre("a", "b"));
}

TEST_F(EnvSweepTest, AMarkerOfAnotherInputIsNone) {
  const EnvPaths env = Make("digest-1", absl::Hours(0));
  EXPECT_TRUE(ReadEnvMarker(env, "digest-1").has_value());
  EXPECT_FALSE(ReadEnvMarker(env, "digest-2").has_value());
  ASSERT_OK(WriteFileAtomic(env.complete, "{\"digest\":"));
  EXPECT_FALSE(ReadEnvMarker(env, "digest-1").has_value());
}

}  // namespace
}  // namespace gpuctl
