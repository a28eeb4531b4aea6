#include "trainer/data/bytes_of_text.h"

#include <gtest/gtest.h>

#include <fstream>

#include "trainer/base/files.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

class BytesOfTextTest : public ::testing::Test {
 protected:
  void Write(const std::string& name) { std::ofstream(dir_.path() + "/" + name) << "{}"; }
  // Checks that the data `path`, in the directory, may be trained as bytes.
  void Check(const std::string& path) {
    data_.paths = {dir_.path() + "/" + path};
    CheckBytesAreMeant(dir_.path(), data_);
  }

  const TempDir dir_;
  DataConfig data_;
};

TEST_F(BytesOfTextTest, AModelWithoutATokenizerReadsTheBytesOfText) {
  Write("config.json");
  Write("book.txt");
  EXPECT_NO_THROW(Check("book.txt"));
  EXPECT_FALSE(HasTokenizer(dir_.path()));
}

TEST_F(BytesOfTextTest, ItReadsNoRows) {
  Write("rows.jsonl");
  EXPECT_ERROR(Check("rows.jsonl"), ExitCode::kBadConfig, "make tokens of");
  // Of a directory only the files count that would be read.
  MakeDirectory(dir_.path() + "/deep");
  Write("deep/more.jsonl");
  EXPECT_NO_THROW(Check(""));
  data_.extensions = {".jsonl"};
  EXPECT_ERROR(Check(""), ExitCode::kBadConfig, "more.jsonl");
  data_.exclude = {"deep"};
  EXPECT_ERROR(Check(""), ExitCode::kBadConfig, "/rows.jsonl");
  data_.exclude = {"deep", "rows.jsonl"};
  EXPECT_NO_THROW(Check(""));
  data_.extensions.clear();
  EXPECT_NO_THROW(Check(""));
  data_.tokens = "bytes";
  EXPECT_NO_THROW(Check("rows.jsonl"));
}

TEST_F(BytesOfTextTest, ATokenizerIsNotPassedOver) {
  for (const char* part : {"vocab.json", "merges.txt", "tokenizer_config.json", "vocab.txt"}) {
    Write(part);
    EXPECT_ERROR(Check("book.txt"), ExitCode::kBadConfig, part);
    RemoveTree(dir_.path() + "/" + part);
  }
  for (const char* whole : {"tokenizer.json", "tokenizer.model"}) {
    Write(whole);
    EXPECT_TRUE(HasTokenizer(dir_.path()));
    EXPECT_ERROR(Check("book.txt"), ExitCode::kBadConfig, "has a tokenizer");
    RemoveTree(dir_.path() + "/" + whole);
  }
  Write("tokenizer.json");
  data_.tokens = "bytes";
  EXPECT_NO_THROW(Check("book.txt"));
}

}  // namespace
}  // namespace gpuctl::trainer
