#include "trainer/prepare/row_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "trainer/base/files.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

std::vector<RawRow> RowsOfFile(const std::string& name, const std::string& bytes) {
  const TempDir dir;
  WriteFileDurably(dir.path() + "/" + name, bytes);
  RowSource source(FindDataFiles({dir.path() + "/" + name}, false));
  std::vector<RawRow> rows;
  for (RowBatch batch; source.Next(&batch);) {
    for (RawRow& row : batch.rows) rows.push_back(std::move(row));
  }
  return rows;
}

TEST(RowSourceTest, LinesComeWithoutBomAndLineEnds) {
  const std::vector<RawRow> rows = RowsOfFile("a.jsonl", "\xef\xbb\xbf{}\r\n\n \t\n [1] \n{\"a\"}");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].bytes, "{}");
  EXPECT_EQ(rows[1].bytes, "[1]");
  EXPECT_EQ(rows[2].bytes, "{\"a\"}");
  EXPECT_EQ(rows[1].line, 4);
  EXPECT_EQ(rows[2].line, 5);
  EXPECT_TRUE(RowsOfFile("a.jsonl", "").empty());
  EXPECT_TRUE(RowsOfFile("a.jsonl", "\n\r\n").empty());
}

TEST(RowSourceTest, LongLinesAndManyLinesComeWhole) {
  std::string bytes;
  std::vector<std::string> lines;
  for (size_t size = 1; size < 3000000; size = size * 3 / 2 + 1) {
    lines.emplace_back(size, 'x');
    bytes += lines.back() + "\n";
  }
  const std::vector<RawRow> rows = RowsOfFile("a.jsonl", bytes);
  ASSERT_EQ(rows.size(), lines.size());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].bytes, lines[i]) << i;
}

TEST(RowSourceTest, ATooLongLineIsLeftOut) {
  for (const size_t more : {size_t{1}, size_t{1000000}}) {
    const std::vector<RawRow> rows =
        RowsOfFile("a.jsonl", "a\n" + std::string(kMaxLineBytes + more, 'x') + "\nb\n" +
                                  std::string(kMaxLineBytes + more, 'x'));
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_EQ(rows[1].fault, "the line has more than 16 MiB");
    EXPECT_EQ(rows[1].bytes, "");
    EXPECT_EQ(rows[2].bytes, "b");
    EXPECT_EQ(rows[2].line, 3);
    EXPECT_EQ(rows[3].fault, rows[1].fault);
  }
  EXPECT_EQ(RowsOfFile("a.jsonl", std::string(kMaxLineBytes, 'x')).at(0).fault, "");
}

TEST(RowSourceTest, ADocumentIsOneRowOrComesInPieces) {
  std::vector<RawRow> rows = RowsOfFile("a.txt",
                                        "\xef\xbb\xbf"
                                        "a\r\n\rb\n");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].bytes, "a\n\rb\n");
  EXPECT_TRUE(rows[0].is_document && !rows[0].continues && rows[0].ends);
  EXPECT_EQ(RowsOfFile("a.txt", "").size(), 1u);
  std::string text;
  while (text.size() < 3 * kDocumentPieceBytes) text += "some words é\n\n  more\n";
  rows = RowsOfFile("a.txt", text);
  ASSERT_EQ(rows.size(), 4u);
  std::string joined;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].continues, i > 0);
    EXPECT_EQ(rows[i].ends, i == 3);
    EXPECT_LE(rows[i].bytes.size(), kDocumentPieceBytes);
    if (i > 0) {
      EXPECT_EQ(rows[i].bytes.substr(0, 4), "some");
    }
    joined += rows[i].bytes;
  }
  EXPECT_EQ(joined, text);
}

TEST(RowSourceTest, ADocumentWithoutPlacesForACutIsCutBetweenCharacters) {
  std::string text;
  while (text.size() < 2 * kDocumentPieceBytes) text += "日";
  const std::vector<RawRow> rows = RowsOfFile("a.txt", text);
  ASSERT_EQ(rows.size(), 3u);
  for (const RawRow& row : rows) EXPECT_EQ(row.bytes.size() % 3, 0u);
  text.assign(2 * kDocumentPieceBytes, '\x80');  // no UTF-8 at all
  EXPECT_GE(RowsOfFile("a.txt", text).size(), 2u);
}

TEST(RowSourceTest, FilesAreRefusedByName) {
  const ExitCode bad = ExitCode::kBadData;
  EXPECT_ERROR(RowsOfFile("a.jsonl", "\x1f\x8b\x08"), bad, "a.jsonl: is compressed (gzip)");
  EXPECT_ERROR(RowsOfFile("a.txt", "PAR1"), bad, "Parquet");
  EXPECT_ERROR(FindDataFiles({"/nonexistent"}, false), bad, "/nonexistent: no such file");
  const TempDir dir;
  EXPECT_ERROR(FindDataFiles({dir.path()}, false), bad, "no file *.jsonl");
  WriteFileDurably(dir.path() + "/b.jsonl", "");
  WriteFileDurably(dir.path() + "/a.jsonl", "");
  WriteFileDurably(dir.path() + "/c.json", "");
  const std::vector<DataFile> files = FindDataFiles({dir.path()}, true);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].path, dir.path() + "/a.jsonl");
  EXPECT_TRUE(files[0].held_out);
  ASSERT_EQ(symlink("/nonexistent", (dir.path() + "/d.jsonl").c_str()), 0);
  EXPECT_ERROR(FindDataFiles({dir.path()}, true), bad, "d.jsonl: no regular file");
}

}  // namespace
}  // namespace gpuctl::trainer
