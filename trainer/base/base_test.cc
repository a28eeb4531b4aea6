#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <stdexcept>
#include <vector>

#include "trainer/base/background_sha256.h"
#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_object.h"
#include "trainer/base/parallel.h"
#include "trainer/base/philox.h"
#include "trainer/base/sha256.h"
#include "trainer/base/text.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

// The known answers published with the Random123 library.
TEST(PhiloxTest, GivesThePublishedAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, NormalNumbersHaveTheRightMoments) {
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double x = RandomNormal(7, RandomStream::kInit, 3, static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.02);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
}

TEST(PhiloxTest, StreamsAndSeedsDiffer) {
  const std::set<uint64_t> draws = {
      Random64(1, RandomStream::kInit, 0, 0), Random64(2, RandomStream::kInit, 0, 0),
      Random64(1, RandomStream::kOrder, 0, 0), Random64(1, RandomStream::kInit, 1, 0),
      Random64(1, RandomStream::kInit, 0, 1)};
  EXPECT_EQ(draws.size(), 5u);
}

TEST(Sha256Test, GivesThePublishedAnswer) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// Lengths around the ends of blocks, given in pieces. The answer is the digest of all digests, from
// Python's hashlib.
TEST(Sha256Test, EveryLengthInEveryWay) {
  for (const bool instructions : {true, false}) {
    Sha256 of_all(instructions);
    std::string bytes;
    for (int n = 0; n < 300; ++n) {
      Sha256 digest(instructions);
      for (size_t i = 0; i < bytes.size();) {
        const size_t count = std::min<size_t>(bytes.size() - i, 1 + (7 * i + n) % 97);
        digest.Update(bytes.data() + i, count);
        i += count;
      }
      const std::string hex = digest.Hex();
      of_all.Update(hex.data(), hex.size());
      bytes += static_cast<char>(37 * n);
    }
    EXPECT_EQ(of_all.Hex(), "5198ff2bef3ca60cb40e424fffa768806f7df9ed5d6c903fdd6d2fea8bba680f")
        << instructions;
  }
}

TEST(Sha256Test, FileAndBytesAgree) {
  const TempDir directory;
  const std::string bytes(3 << 20, 'x');
  WriteFileDurably(directory.path() + "/f", bytes);
  EXPECT_EQ(Sha256HexOfFile(directory.path() + "/f"), Sha256Hex(bytes));
  struct Enough {};
  int pieces = 0;
  const auto check = [&pieces] {
    if (++pieces == 2) throw Enough();
  };
  EXPECT_THROW(Sha256HexOfFile(directory.path() + "/f", check), Enough);
  EXPECT_EQ(pieces, 2);
}

TEST(Sha256Test, BesideOtherWorkItIsTheSame) {
  std::string bytes(40 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 7);
  for (const size_t piece : {size_t{1000003}, size_t{1} << 20, size_t{5} << 20}) {
    for (const size_t size : {size_t{0}, size_t{17}, size_t{1} << 20, bytes.size() - 1}) {
      BackgroundSha256 digest;
      for (size_t at = 0; at < size; at += piece) {
        digest.Update(bytes.data() + at, std::min(piece, size - at));
      }
      EXPECT_EQ(digest.Hex(), Sha256Hex(bytes.substr(0, size)));
    }
  }
  BackgroundSha256 given_up;
  given_up.Update(bytes.data(), bytes.size());
}

TEST(TextTest, SuggestsOnlyWhatIsNear) {
  const std::vector<std::string> known = {"warmup_steps", "weight_decay", "lr"};
  EXPECT_EQ(NearestWord("warmup_step", known), "warmup_steps");
  EXPECT_EQ(NearestWord("wieght_decay", known), "weight_decay");
  EXPECT_EQ(NearestWord("completely_else", known), "");
  EXPECT_EQ(DidYouMean("zzz", known), "");
}

TEST(TextTest, PrintableHidesControlBytes) { EXPECT_EQ(Printable("a\x1b[2Jb\n"), "a\\x1b[2Jb\n"); }

TEST(TextTest, PrintableHidesControlCharactersOfLatin1) {
  EXPECT_EQ(Printable("a\xc2\x9b"
                      "2Jé\xc2\xa0\xc2"),
            "a\\x9b2Jé\xc2\xa0\xc2");
}

TEST(TextTest, JsonIsMeasuredOutsideOfTexts) {
  EXPECT_EQ(MeasureJson("1").depth, 0);
  const JsonExtent extent = MeasureJson(R"([{"a":[]},{"[[[\"[[:":1,"b":{"c":{},"d":{},"e":2}}])");
  EXPECT_EQ(extent.depth, 4);
  EXPECT_EQ(extent.keys, 3u);
  EXPECT_EQ(MeasureJson("]]:::[").keys, 3u);
  EXPECT_EQ(MeasureJson(std::string(100000, '[')).depth, 1000);
}

TEST(FilesTest, MakesNestedDirectoriesAndListsThemSorted) {
  const TempDir directory;
  MakeDirectories(directory.path() + "/b/c");
  WriteFileDurably(directory.path() + "/a", "1");
  EXPECT_EQ(ListDirectory(directory.path()), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(ReadWholeFile(directory.path() + "/a"), "1");
  WriteFileDurably(directory.path() + "/b/c/file", "1");
  ASSERT_EQ(::chmod((directory.path() + "/b/c").c_str(), 0500), 0);
  // Root may write to any directory.
  constexpr uid_t kNobody = 65534;
  const bool root = ::geteuid() == 0;
  for (const char* part : {"", "/b", "/b/c", "/b/c/file"}) {
    ASSERT_EQ(root ? ::chown((directory.path() + part).c_str(), kNobody, kNobody) : 0, 0);
  }
  ASSERT_EQ(root ? ::seteuid(kNobody) : 0, 0);
  EXPECT_NO_THROW(RemoveTree(directory.path() + "/b"));
  ASSERT_EQ(root ? ::seteuid(0) : 0, 0);
  EXPECT_FALSE(Exists(directory.path() + "/b"));
}

TEST(FilesTest, MissingFileIsAnIoError) {
  try {
    ReadWholeFile("/nonexistent/file");
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_NE(std::string(error.what()).find("/nonexistent/file"), std::string::npos);
  }
}

TEST(TextTest, PatternsMatchWholeTexts) {
  struct Case {
    const char* text;
    const char* pattern;
    bool expected;
  };
  for (const Case& c : std::vector<Case>{{"", "", true},
                                         {"", "*", true},
                                         {"a", "", false},
                                         {"a.b", "a.b", true},
                                         {"a.b", "a", false},
                                         {"a.b", "*", true},
                                         {"a.b.c", "a*c", true},
                                         {"a.b.c", "a*b", false},
                                         {"aab", "a*ab", true},
                                         {"abab", "*ab", true},
                                         {"ab", "ab*", true},
                                         {"ab", "a*b*c", false},
                                         {"a*b", "a.b", false},
                                         {"mississippi", "m*iss*i", true}}) {
    EXPECT_EQ(MatchesPattern(c.text, c.pattern), c.expected) << c.text << " and " << c.pattern;
  }
}

TEST(ErrorTest, MessagesAreFitToPrint) {
  EXPECT_STREQ(DataError("read a\x1b[31m\nb").what(), "read a\\x1b[31m\nb");
  std::string many;
  while (many.size() < 1'000'000) many += "é";
  const std::string message = DataError("x: " + many + ": wrong").what();
  EXPECT_LT(message.size(), 9000u);
  EXPECT_EQ(message.substr(0, 5), "x: é");
  EXPECT_EQ(message.substr(message.size() - 9), "é: wrong");
}

TEST(FilesTest, WhatIsNoRegularFileIsRefusedAtOnce) {
  const TempDir directory;
  const std::string fifo = directory.path() + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, std::string("/dev/zero"), directory.path()}) {
    EXPECT_ERROR(ReadWholeFile(path), ExitCode::kBadData, path + ": no regular file");
    EXPECT_ERROR(Sha256HexOfFile(path), ExitCode::kBadData, path);
  }
  EXPECT_ERROR(ReadGivenFile("/dev/zero", 1000), ExitCode::kBadData, "more than 1000 bytes");
  EXPECT_EQ(ReadGivenFile("/dev/null"), "");
  WriteFileDurably(directory.path() + "/file", "12345");
  EXPECT_EQ(ReadWholeFile(directory.path() + "/file", 5), "12345");
  EXPECT_ERROR(ReadWholeFile(directory.path() + "/file", 4), ExitCode::kBadData, "more than 4");
}

TEST(JsonObjectTest, ADocumentThatIsTooDeepIsNotReadToItsEnd) {
  // All of it would need gigabytes.
  EXPECT_ERROR(ParseJsonObject("{\"a\":" + std::string(100'000'000, '['), "read x"),
               ExitCode::kBadData, "read x: nested too deeply");
}

TEST(ParallelTest, RangesCoverAllAndTheirFailureIsPassedOn) {
  std::vector<std::atomic<int>> calls(1000);
  ForRangesOnCores(1000, 7, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++calls[static_cast<size_t>(i)];
  });
  for (const std::atomic<int>& count : calls) ASSERT_EQ(count, 1);
  std::atomic<int> ended{0};
  EXPECT_THROW(ForRangesOnCores(100, 1,
                                [&](int64_t, int64_t) {
                                  ++ended;
                                  throw std::runtime_error("no");
                                }),
               std::runtime_error);
  EXPECT_EQ(ended, std::min(100, UsableCores()));
}

}  // namespace
}  // namespace gpuctl::trainer
