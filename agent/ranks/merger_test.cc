#include "agent/ranks/merger.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/rank_mark.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gpuctl {
namespace {

// What an output is taken apart into, piece by piece of at most `piece` bytes.
std::map<int, std::string> TakenApart(absl::string_view output, size_t piece = 1 << 20) {
  std::map<int, std::string> texts;
  RankReader reader;
  const auto sink = [&texts](int rank, absl::string_view text) {
    texts[rank].append(text.data(), text.size());
  };
  for (; !output.empty(); output.remove_prefix(std::min(piece, output.size()))) {
    reader.Read(output.substr(0, piece), sink);
  }
  reader.End(sink);
  return texts;
}

TEST(RankMergerTest, RankZeroIsAsItIsAndOthersHaveMarks) {
  RankMerger merger(0, 3);
  std::string out;
  merger.Add(0, "one\nhal", out);
  merger.Add(2, "two\n", out);
  merger.Add(0, "f\n", out);
  merger.Add(1, "three", out);
  merger.Add(1, "\r\n", out);
  EXPECT_EQ(out, "one\n2| two\nhalf\n1| three\r\n");
}

TEST(RankMergerTest, WhatLooksLikeAMarkIsNotTakenForOne) {
  for (const std::string line : {"1| x\n", "0| x\n", "gpuctl| x\n", "12>| x\n", "7+ x\n"}) {
    RankMerger merger(0, 2);
    std::string out;
    merger.Add(0, line, out);
    merger.Add(1, line, out);
    EXPECT_EQ(out, absl::StrCat("0| ", line, "1| ", line));
    EXPECT_EQ(TakenApart(out), (std::map<int, std::string>{{0, line}, {1, line}}));
  }
  // These are none, and stay as they are.
  for (const std::string line : {"1: x\n", "1|x\n", "01| x\n", "123456| x\n", "gpu| x\n", "|\n"}) {
    RankMerger merger(0, 2);
    std::string out;
    merger.Add(0, line, out);
    EXPECT_EQ(out, line);
  }
}

TEST(RankMergerTest, ALineWithinRankZerosIsToldFromOneBehindIt) {
  RankMerger merger(0, 2);
  std::string out;
  merger.Add(0, "abc", out);
  EXPECT_TRUE(merger.holds());
  EXPECT_EQ(out, "");
  merger.Flush(out);
  merger.Add(1, "x\n", out);
  merger.Add(1, "y\n", out);
  merger.Add(0, "1| def\n", out);
  merger.Say("end", out);
  EXPECT_EQ(out, "abc\n1>| x\n1| y\n0| 1| def\ngpuctl| end\n");
  EXPECT_EQ(TakenApart(out),
            (std::map<int, std::string>{{-1, "end\n"}, {0, "abc1| def\n"}, {1, "x\ny\n"}}));
}

TEST(RankMergerTest, OfTheBarsOfOthersTheLastDrawingComes) {
  RankMerger merger(0, 2);
  std::string out;
  merger.Add(0, "\r 1/3", out);
  merger.Add(0, "\r 2/3", out);
  merger.Add(1, "\r 1/3\r", out);
  merger.Add(1, " 2/3\r 3/3\n", out);
  merger.Add(0, "\r 3/3\n", out);
  EXPECT_EQ(out, "\r 1/3\n1>|  3/3\n\r 2/3\r 3/3\n");
}

TEST(RankMergerTest, AMachineFurtherOnHasMarksOnAllLines) {
  RankMerger merger(8, 2);
  std::string out;
  merger.Add(0, "a\n", out);
  merger.Add(1, "b\n", out);
  EXPECT_EQ(out, "8| a\n9| b\n");
}

TEST(RankMergerTest, ALineWithoutEndComesInPieces) {
  RankMerger merger(0, 2);
  std::string out;
  const std::string line(3 * RankMerger::kLongestPiece, 'x');
  for (size_t at = 0; at < line.size(); at += 4096) {
    merger.Add(1, absl::string_view(line).substr(at, 4096), out);
  }
  merger.Add(1, "y", out);
  EXPECT_EQ(TakenApart(out).at(1), line);
  merger.End(1, out);
  EXPECT_EQ(TakenApart(out).at(1), line + "y");
}

// What a process printed, without what its lines write over: written anew for this test.
std::string Visible(const std::string& text) {
  std::string seen;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    std::string line = text.substr(begin, end == text.npos ? end : end - begin);
    size_t body = line.size();
    while (body > 0 && line[body - 1] == '\r') --body;
    for (size_t i = body; i > 0; --i) {
      if (line[i - 1] != '\r') continue;
      line = line.substr(i);
      break;
    }
    seen += line;
    if (end == text.npos) break;
    seen += '\n';
    begin = end + 1;
  }
  return seen;
}

// Random lines of all lengths, with NUL bytes, marks, bars and no last newline, in random pieces.
TEST(RankMergerTest, NoByteIsLostOrTakenForAnothers) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&random](int most) {
      return static_cast<int>(random() % static_cast<unsigned>(most));
    };
    const int processes = 1 + below(9);
    std::vector<std::string> texts(static_cast<size_t>(processes));
    for (std::string& text : texts) {
      for (int line = below(30); line > 0; --line) {
        switch (below(8)) {
          case 0:
            text += absl::StrCat(below(12), below(2) == 0 ? ">" : "", below(2) == 0 ? "| " : "+ ");
            break;
          case 1:
            text += below(2) == 0 ? "gpuctl| " : "gpuctl>| ";
            break;
          case 2:
            text.append(static_cast<size_t>(below(100'000)), 'z');
            break;
          case 3:
            text += absl::StrCat("\r", below(100), "%", below(2) == 0 ? "\r" : "");
            break;
          case 4:
            text += std::string("\0\x1b[A\xff", 5);
            break;
          default:
            for (int i = below(40); i > 0; --i) text += static_cast<char>(below(256));
        }
        if (below(3) > 0) text += below(5) == 0 ? "\r\n" : "\n";
      }
    }
    RankMerger merger(0, processes);
    std::string out;
    std::vector<size_t> at(texts.size());
    for (int quiet = 0; quiet < 3 * processes;) {
      const size_t local = static_cast<size_t>(below(processes));
      const size_t size = std::min(texts[local].size() - at[local],
                                   static_cast<size_t>(below(4) == 0 ? below(200'000) : below(12)));
      merger.Add(static_cast<int>(local), absl::string_view(texts[local]).substr(at[local], size),
                 out);
      at[local] += size;
      if (below(4) == 0) merger.Flush(out);
      if (below(200) == 0) merger.Say("says", out);
      quiet = size == 0 ? quiet + 1 : 0;
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      merger.Add(static_cast<int>(i), absl::string_view(texts[i]).substr(at[i]), out);
      merger.End(static_cast<int>(i), out);
    }
    for (const size_t piece : {size_t{1} << 20, size_t{1} + seed % 7}) {
      std::map<int, std::string> apart = TakenApart(out, piece);
      EXPECT_EQ(apart[0], texts[0]) << "seed " << seed;
      for (int rank = 1; rank < processes; ++rank) {
        EXPECT_EQ(apart[rank], Visible(texts[static_cast<size_t>(rank)]))
            << "seed " << seed << " rank " << rank;
      }
      if (out.size() > 1 << 20) break;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace gpuctl
