#include "trainer/prepare/folder_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "trainer/prepare/test_model.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

using Names = std::vector<std::string>;
using Moved = std::vector<std::pair<int64_t, int64_t>>;

void AddRow(FolderWriter* writer, Part part, const std::string& text) {
  std::vector<uint32_t> words;
  for (const char c : text) words.push_back(static_cast<uint32_t>(c) | kLearnedBit);
  words[0] &= ~kLearnedBit;
  writer->part(part).Add(words.data(), words.size());
}

void WriteFolder(const std::string& folder, const std::string& text) {
  FolderWriter writer(folder);
  AddRow(&writer, kTrain, text);
  AddRow(&writer, kTrain, "second");
  AddRow(&writer, kHeldOut, "held");
  writer.Finish(kTrain, {});
  writer.Publish({{"tokenizer_sha256", "00"}, {"id_end", 256}, {"odd", "\xff"}});
}

std::string RowOf(const TokenRows& rows, int64_t row) {
  return ShownWords(rows.Words(row), static_cast<size_t>(rows.Size(row)));
}

TEST(FolderWriterTest, TheReaderReadsWhatItWrites) {
  const TempDir dir;
  WriteFolder(dir.path() + "/a/b/", "first");
  const PreparedData data = OpenPrepared(dir.path() + "/a/b");
  EXPECT_EQ(data.train.rows(), 2);
  EXPECT_EQ(RowOf(data.train, 0), "f[irst]");
  EXPECT_EQ(RowOf(data.held_out, 0), "h[eld]");
  EXPECT_EQ(data.id_end, 256);
  EXPECT_EQ(data.description["parts"]["train"].dump(),
            R"({"learned":9,"longest":6,"rows":2,"tokens":11})");
  EXPECT_EQ(ListDirectory(dir.path() + "/a"), Names{"b"});
  WriteFolder(dir.path() + "/c", "first");
  EXPECT_EQ(OpenPrepared(dir.path() + "/c").digest, data.digest);
  WriteFolder(dir.path() + "/c", "other");
  EXPECT_NE(OpenPrepared(dir.path() + "/c").digest, data.digest);
}

TEST(FolderWriterTest, RowsMoveToAnEmptyPart) {
  const TempDir dir;
  for (const Part from : {kTrain, kHeldOut}) {
    FolderWriter writer(dir.path() + "/f");
    for (const char* text : {"r0", "r1", "r2", "r3", "r4"}) AddRow(&writer, from, text);
    writer.Finish(from, Moved{{1, 2}, {3, 5}});
    writer.Publish({{"tokenizer_sha256", "00"}, {"id_end", 256}});
    const PreparedData data = OpenPrepared(dir.path() + "/f");
    const TokenRows& stayed = from == kTrain ? data.train : data.held_out;
    const TokenRows& moved = from == kTrain ? data.held_out : data.train;
    ASSERT_EQ(stayed.rows(), 2);
    ASSERT_EQ(moved.rows(), 3);
    EXPECT_EQ(RowOf(stayed, 0) + RowOf(stayed, 1), "r[0]r[2]");
    EXPECT_EQ(RowOf(moved, 0) + RowOf(moved, 1) + RowOf(moved, 2), "r[1]r[3]r[4]");
  }
}

TEST(FolderWriterTest, OnlyItsOwnFoldersAreReplaced) {
  const TempDir dir;
  const std::string folder = dir.path() + "/f";
  const ExitCode bad = ExitCode::kBadConfig;
  MakeDirectory(folder);
  EXPECT_ERROR(FolderWriter{folder}, bad, "is not what prepare makes");
  WriteFileDurably(folder + "/dataset.json", "{}");
  WriteFileDurably(folder + "/thesis.doc", "");
  EXPECT_ERROR(FolderWriter{folder}, bad, "is not what prepare makes");
  EXPECT_ERROR(FolderWriter{folder + "/thesis.doc"}, bad, "is not what prepare makes");
  EXPECT_EQ(ListDirectory(dir.path()), Names{"f"});
}

TEST(FolderWriterTest, OneAtATime) {
  const TempDir dir;
  {
    const FolderWriter writer(dir.path() + "/f");
    EXPECT_ERROR(FolderWriter{dir.path() + "/f"}, ExitCode::kBadConfig, "another process");
  }
  EXPECT_EQ(ListDirectory(dir.path()), Names{});
  // What was left by one that was killed.
  MakeDirectories(dir.path() + "/.f.unfinished/sub");
  WriteFileDurably(dir.path() + "/.f.unfinished/train.tokens", "x");
  WriteFolder(dir.path() + "/f", "first");
  EXPECT_EQ(OpenPrepared(dir.path() + "/f").train.rows(), 2);
  EXPECT_EQ(ListDirectory(dir.path()), Names{"f"});
  // A link there is not followed.
  MakeDirectories(dir.path() + "/mine/sub");
  ASSERT_EQ(symlink("mine", (dir.path() + "/.g.unfinished").c_str()), 0);
  EXPECT_ERROR(FolderWriter{dir.path() + "/g"}, ExitCode::kIo, ".g.unfinished");
  EXPECT_TRUE(IsDirectory(dir.path() + "/mine/sub"));
}

// Whichever operation fails, the old folder or the new one is there, and nothing else.
TEST(FolderWriterTest, AnyFailureLeavesAWholeFolder) {
  for (const bool replaces : {false, true}) {
    bool failed = true;
    for (int n = 0; failed; ++n) {
      const TempDir dir;
      const std::string folder = dir.path() + "/f";
      if (replaces) WriteFolder(folder, "old");
      int calls = 0;
      failed = false;
      SetFaultHook([&](const char*, const std::string&) {
        if (calls++ != n) return 0;
        failed = true;
        return ENOSPC;
      });
      try {
        WriteFolder(folder, "newer");
        EXPECT_FALSE(failed) << n;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kIo);
      }
      SetFaultHook({});
      const Names left = ListDirectory(dir.path());
      if (!replaces && left.empty()) continue;
      ASSERT_EQ(left, Names{"f"}) << n;
      const std::string first = RowOf(OpenPrepared(folder).train, 0);
      EXPECT_TRUE(first == "n[ewer]" || (replaces && failed && first == "o[ld]")) << n << first;
    }
  }
}

}  // namespace
}  // namespace gpuctl::trainer
