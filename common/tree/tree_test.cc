#include "common/tree/tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/fake_clock.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/tree/manifest.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Paths(const Manifest& manifest) {
  std::vector<std::string> paths;
  for (const FileEntry& entry : manifest) paths.push_back(entry.path());
  return paths;
}

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

void MakeSampleTree(const TempDir& dir) {
  dir.Write("a/run.sh", "#!/bin/sh\n", 0755);
  dir.Write("a-b", "x");
  dir.Write("empty", "");
  dir.Write("a/deep/er/f", std::string(700'000, 'z'), 0600);
  ASSERT_EQ(symlink("../a-b", dir.Sub("a/link").c_str()), 0);
  ASSERT_EQ(symlink("/nowhere", dir.Sub("dangling").c_str()), 0);
  ASSERT_THAT(MakeDirectories(dir.Sub("void"), 0750), IsOk());
}

TEST(ScanTree, FindsEverythingSorted) {
  TempDir dir;
  MakeSampleTree(dir);
  const auto manifest = ScanTree(dir.path());
  ASSERT_THAT(manifest, IsOk());
  EXPECT_THAT(Paths(*manifest), ElementsAre("a", "a/deep", "a/deep/er", "a/deep/er/f", "a/link",
                                            "a/run.sh", "a-b", "dangling", "empty", "void"));
  EXPECT_THAT(ValidateManifest(*manifest), IsOk());
  const FileEntry script = (*manifest)[5];
  EXPECT_EQ(script.kind(), FileEntry::KIND_FILE);
  EXPECT_EQ(script.mode(), 0755u);
  EXPECT_EQ(script.size(), 10);
  EXPECT_EQ(script.sha256(), Sha256Of("#!/bin/sh\n"));
  EXPECT_EQ((*manifest)[4].symlink_target(), "../a-b");
  EXPECT_EQ((*manifest)[9].mode(), 0750u);
}

TEST(ScanTree, LeavesOutWhatItIsToldAndWhatIsNoFile) {
  TempDir dir;
  dir.Write("keep/f", "x");
  dir.Write("drop/f", "x");
  dir.Write("keep/drop", "x");
  ASSERT_EQ(mkfifo(dir.Sub("keep/fifo").c_str(), 0600), 0);
  std::vector<std::string> skipped;
  ScanOptions options;
  options.skip = [](const std::string& path, const struct stat& info) {
    return S_ISDIR(info.st_mode) && BaseName(path) == "drop";
  };
  options.skipped = &skipped;
  const auto manifest = ScanTree(dir.path(), options);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_THAT(Paths(*manifest), ElementsAre("keep", "keep/drop", "keep/f"));
  EXPECT_THAT(skipped, ElementsAre("keep/fifo"));
  EXPECT_THAT(ScanTree(dir.Sub("missing")), StatusIs(absl::StatusCode::kNotFound));
}

TEST(ScanTree, ReadsAFileThatChangedOnceAgain) {
  TempDir dir;
  const std::string path = dir.Write("f", "first");
  int changes = 0;
  ScanOptions options;
  options.progress = [&](int64_t) {
    if (changes++ == 0) {
      ASSERT_EQ(truncate(path.c_str(), 2), 0);
    }
  };
  const auto manifest = ScanTree(dir.path(), options);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ((*manifest)[0].size(), 2);
  EXPECT_EQ((*manifest)[0].sha256(), Sha256Of("fi"));
  EXPECT_EQ(changes, 2);
}

TEST(ScanTree, GivesUpOnAFileThatKeepsChanging) {
  TempDir dir;
  const std::string path = dir.Write("dir/busy.log", "0123456789");
  int size = 10;
  ScanOptions options;
  options.progress = [&](int64_t) { ASSERT_EQ(truncate(path.c_str(), --size), 0); };
  EXPECT_THAT(ScanTree(dir.path(), options),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("dir/busy.log")));
}

void AppendTo(const std::string& path, absl::string_view content) {
  const UniqueFd fd(file_ops::Open(path, O_WRONLY | O_APPEND));
  ASSERT_THAT(WriteAll(fd.get(), content, path), IsOk());
}

TEST(ScanTree, TakesTheBeginningOfAFileThatGrows) {
  for (const size_t size : {size_t{10}, static_cast<size_t>(kPartBytes) + 10}) {
    TempDir dir;
    const std::string content = RandomBytes(size, 1);
    const std::string path = dir.Write("busy.log", content);
    dir.Write("calm", "x");
    ScanOptions options;
    ScanNotes notes;
    options.notes = &notes;
    options.progress = [&](int64_t) { AppendTo(path, "more"); };
    const auto manifest = ScanTree(dir.path(), options);
    ASSERT_THAT(manifest, IsOk());
    ASSERT_EQ(manifest->size(), 2);
    const FileEntry entry = (*manifest)[0];
    const std::string now = ReadFileToString(path).value();
    EXPECT_GE(entry.size(), static_cast<int64_t>(size));
    EXPECT_LT(entry.size(), static_cast<int64_t>(now.size()));
    EXPECT_EQ(entry.sha256(),
              FileOf("busy.log", now.substr(0, static_cast<size_t>(entry.size()))).sha256());
    EXPECT_THAT(notes.grown, ElementsAre("busy.log"));
    // Nobody who cannot tell it gets a part of a file.
    options.notes = nullptr;
    EXPECT_THAT(ScanTree(dir.path(), options), StatusIs(absl::StatusCode::kAborted));
  }
}

TEST(ScanTree, LeavesOutAFileThatKeepsChangingWhereThatIsWanted) {
  TempDir dir;
  const std::string path = dir.Write("busy", "0123456789");
  dir.Write("calm", "x");
  int size = 10;
  ScanOptions options;
  ScanNotes notes;
  options.notes = &notes;
  options.progress = [&](int64_t) { ASSERT_EQ(truncate(path.c_str(), --size), 0); };
  EXPECT_THAT(ScanTree(dir.path(), options),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("busy")));
  options.leave_changed = true;
  const auto manifest = ScanTree(dir.path(), options);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_THAT(Paths(*manifest), ElementsAre("calm"));
  EXPECT_THAT(notes.changed, ElementsAre("busy"));
  EXPECT_TRUE(notes.grown.empty());
}

TEST(ScanTree, NamesFilesWithSetuidAndGivesTimes) {
  TempDir dir;
  const std::string path = dir.Write("tool", "x");
  dir.Write("plain", "x");
  ASSERT_EQ(chmod(path.c_str(), 04755), 0);
  const struct timespec times[2] = {{0, UTIME_OMIT}, {1'000'000'000, 5}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  ScanOptions options;
  ScanNotes notes;
  options.notes = &notes;
  options.times = true;
  const auto manifest = ScanTree(dir.path(), options);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_THAT(notes.set_id, ElementsAre("tool"));
  EXPECT_EQ((*manifest)[1].mode(), 0755u);
  EXPECT_EQ((*manifest)[1].modified_ns(), 1'000'000'000'000'000'005);
  EXPECT_EQ(ScanTree(dir.path()).value()[1].modified_ns(), 0);
}

// The change happens after the scan saw a name and before it opens it.
TEST(ScanTree, ToleratesWhatGoesAndNamesWhatBecomesSomethingElse) {
  const std::vector<std::string> kKinds = {"directory", "file", "link", ""};
  for (const std::string& before : kKinds) {
    if (before.empty()) continue;
    for (const std::string& after : kKinds) {
      TempDir dir;
      const auto make = [&](const std::string& kind) {
        if (kind == "directory") {
          EXPECT_OK(MakeDirectories(dir.Sub("x")));
        }
        if (kind == "file") dir.Write("x", "1");
        if (kind == "link") {
          EXPECT_EQ(symlink("y", dir.Sub("x").c_str()), 0);
        }
      };
      make(before);
      ScanOptions options;
      options.skip = [&](const std::string& path, const struct stat&) {
        if (path != "x" || before == after) return false;
        EXPECT_OK(RemoveTree(dir.Sub("x")));
        make(after);
        return false;
      };
      const absl::StatusOr<Manifest> manifest = ScanTree(dir.path(), options);
      const std::string shown = absl::StrCat(before, " to ", after);
      if (before == after || after.empty()) {
        ASSERT_OK(manifest) << shown;
        EXPECT_EQ(manifest->empty(), after.empty()) << shown;
      } else {
        EXPECT_TRUE(absl::IsAborted(manifest.status())) << shown << manifest.status();
      }
    }
  }
}

TEST(ScanTree, WithACacheReadsOnlyWhatChanged) {
  TempDir dir;
  TempDir cache_dir;
  FakeClock clock(absl::FromUnixSeconds(4'000'000'000));  // long after the last change
  dir.Write("a", "aaaa");
  const std::string b = dir.Write("b", "bb");
  int64_t bytes_read = 0;
  ScanOptions options;
  options.progress = [&](int64_t bytes) { bytes_read = bytes; };
  const auto scan = [&] {
    HashCache cache(cache_dir.Sub("cache"), clock);
    options.cache = &cache;
    bytes_read = 0;
    auto manifest = ScanTree(dir.path(), options);
    EXPECT_THAT(cache.Save(), IsOk());
    return manifest.value().Digest();
  };
  const std::string first = scan();
  EXPECT_EQ(bytes_read, 6);
  EXPECT_EQ(scan(), first);
  EXPECT_EQ(bytes_read, 0);
  dir.Write("b", "BB");  // same size, another inode and time
  EXPECT_NE(scan(), first);
  EXPECT_EQ(bytes_read, 2);
}

TEST(ScanTree, HashesLargeFilesInParts) {
  TempDir dir;
  TempDir cache_dir;
  FakeClock clock(absl::FromUnixSeconds(4'000'000'000));
  std::string content = RandomBytes(static_cast<size_t>(2 * kPartBytes + 5), 1);
  dir.Write("large", content);
  dir.Write("part", content.substr(0, static_cast<size_t>(kPartBytes)));
  std::string first;
  for (int round = 0; round < 2; ++round) {  // read, then from the cache
    HashCache cache(cache_dir.Sub("cache"), clock);
    int64_t bytes_read = 0;
    ScanOptions options;
    options.cache = &cache;
    options.progress = [&](int64_t bytes) { bytes_read = bytes; };
    const auto manifest = ScanTree(dir.path(), options);
    ASSERT_THAT(manifest, IsOk());
    ASSERT_THAT(cache.Save(), IsOk());
    EXPECT_EQ(bytes_read, round == 0 ? 3 * kPartBytes + 5 : 0);
    EXPECT_EQ((*manifest)[0].SerializeAsString(),
              FileOf("large", content, 0644).SerializeAsString());
    EXPECT_EQ((*manifest)[1].sha256(), PartHash((*manifest)[0], 0));
    EXPECT_EQ((*manifest)[1].part_sha256(), "");
  }
}

TEST(ScanFilesAt, TakesWhatIsThereAndNoDirectory) {
  TempDir dir;
  MakeSampleTree(dir);
  const UniqueFd fd(file_ops::Open(dir.path(), O_RDONLY | O_DIRECTORY));
  const auto manifest = ScanFilesAt(
      fd.get(), dir.path(),
      {"a/deep", "a/link", "a/none", "a/run.sh", "a-b", "dangling/x", "empty/below", "none/f"});
  ASSERT_THAT(manifest, IsOk());
  EXPECT_THAT(Paths(*manifest), ElementsAre("a/link", "a/run.sh", "a-b"));
}

TEST(ScanFileAt, TakesOneFileAndFollowsNoSymlink) {
  TempDir dir;
  MakeSampleTree(dir);
  ASSERT_EQ(symlink("a-b", dir.Sub("link").c_str()), 0);
  const UniqueFd fd(file_ops::Open(dir.path(), O_RDONLY | O_DIRECTORY));
  const auto manifest = ScanFileAt(fd.get(), "a-b");
  ASSERT_THAT(manifest, IsOk());
  EXPECT_THAT(Paths(*manifest), ElementsAre("a-b"));
  for (const char* name : {"link", "a", "none"}) {
    EXPECT_THAT(ScanFileAt(fd.get(), name), StatusIs(absl::StatusCode::kNotFound)) << name;
  }
}

TEST(CopyTree, MakesAnEqualTreeOfItsOwn) {
  TempDir dir;
  MakeSampleTree(dir);
  TempDir target;
  const Manifest manifest = ScanTree(dir.path()).value();
  ASSERT_THAT(CopyTree(dir.path(), target.Sub("copy"), manifest), IsOk());
  EXPECT_EQ(ScanTree(target.Sub("copy")).value().Digest(), manifest.Digest());
  EXPECT_EQ(ModeOf(target.Sub("copy/a/run.sh")), 0755u);
  EXPECT_THAT(SyncTree(target.Sub("copy"), manifest), IsOk());
  // The copy may be written to without the original noticing.
  dir.Write("unrelated", "");
  UniqueFd fd(file_ops::Open(target.Sub("copy/a-b"), O_WRONLY));
  ASSERT_THAT(WriteAll(fd.get(), "y", "copy"), IsOk());
  EXPECT_EQ(ReadFileToString(dir.Sub("a-b")).value(), "x");
}

TEST(CopyTree, KeepsDirectoriesThatMayNotBeWritten) {
  TempDir dir;
  dir.Write("ro/f", "x", 0444);
  ASSERT_EQ(chmod(dir.Sub("ro").c_str(), 0555), 0);
  TempDir target;
  const Manifest manifest = ScanTree(dir.path()).value();
  ASSERT_THAT(CopyTree(dir.path(), target.Sub("copy"), manifest), IsOk());
  EXPECT_EQ(ModeOf(target.Sub("copy/ro")), 0555u);
  EXPECT_EQ(ModeOf(target.Sub("copy/ro/f")), 0444u);
}

TEST(CopyTree, LeavesNothingWhenItFails) {
  TempDir dir;
  dir.Write("a", "aaaa");
  dir.Write("b", "bbbb");
  const Manifest manifest = ScanTree(dir.path()).value();
  TempDir target;
  dir.Write("b", "bbb");
  EXPECT_THAT(CopyTree(dir.path(), target.Sub("copy"), manifest),
              StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_THAT(RemoveTree(dir.Sub("b")), IsOk());
  EXPECT_THAT(CopyTree(dir.path(), target.Sub("copy"), manifest),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_TRUE(target.Names().empty());
  target.Write("copy", "mine");
  EXPECT_THAT(CopyTree(dir.path(), target.Sub("copy"), manifest),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(ReadFileToString(target.Sub("copy")).value(), "mine");
}

TEST(CopyTree, DoesNotFollowASymlinkThatTookADirectorysPlace) {
  TempDir dir;
  dir.Write("d/secret", "tree");
  const Manifest manifest = ScanTree(dir.path()).value();
  TempDir elsewhere;
  elsewhere.Write("secret", "else");
  ASSERT_THAT(RemoveTree(dir.Sub("d")), IsOk());
  ASSERT_EQ(symlink(elsewhere.path().c_str(), dir.Sub("d").c_str()), 0);
  TempDir target;
  EXPECT_FALSE(CopyTree(dir.path(), target.Sub("copy"), manifest).ok());
  EXPECT_TRUE(target.Names().empty());
}

TEST(SyncTree, SyncsLargeTreesAsOne) {
  TempDir dir;
  for (int i = 0; i < 40; ++i) dir.Write(absl::StrCat("f", i), "x");
  const Manifest manifest = ScanTree(dir.path()).value();
  int syncs = 0;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string&) {
    if (op == file_ops::Op::kSync) ++syncs;
    return 0;
  });
  EXPECT_THAT(SyncTree(dir.path(), manifest), IsOk());
  file_ops::SetFaultHook(nullptr);
#if defined(__linux__)
  EXPECT_EQ(syncs, 1);
#else
  EXPECT_EQ(syncs, 42);  // the hook's call, each file, the directory
#endif
}

}  // namespace
}  // namespace gpuctl
