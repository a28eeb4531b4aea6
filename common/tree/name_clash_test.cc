#include "common/tree/name_clash.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "common/base/unique_fd.h"
#include "common/files/sha256.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

Manifest Of(const std::vector<std::string>& paths) {
  Manifest manifest;
  for (const std::string& path : paths) {
    FileEntry entry;
    entry.set_path(path);
    entry.set_kind(FileEntry::KIND_FILE);
    entry.set_sha256(Sha256Of(""));
    manifest.Append(entry);
  }
  return manifest;
}

constexpr NameFolding kCase = {true, false};
constexpr NameFolding kForm = {false, true};
constexpr NameFolding kBoth = {true, true};

bool Clash(const std::string& a, const std::string& b, const NameFolding& folding) {
  return !CheckNameClashes(Of({"dir/" + a, "dir/" + b}), folding).ok();
}

TEST(NameClash, NamesBothSides) {
  EXPECT_THAT(CheckNameClashes(Of({"dir/README", "dir/Readme.md", "dir/readme"}), kCase),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::AllOf(::testing::HasSubstr("dir/README"),
                                        ::testing::HasSubstr("dir/readme "))));
}

// Both names look the same, so the message shows their bytes.
TEST(NameClash, NamesFormsByTheirBytes) {
  EXPECT_THAT(CheckNameClashes(Of({"caf\xC3\xA9", "cafe\xCC\x81"}), kForm),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::AllOf(::testing::HasSubstr("caf\\xc3\\xa9"),
                                        ::testing::HasSubstr("cafe\\xcc\\x81"))));
}

TEST(NameClash, OtherNamesAreFine) {
  EXPECT_THAT(CheckNameClashes(Of({"A/x", "B/x", "a", "b", "b1"}), kBoth), IsOk());
  EXPECT_THAT(CheckNameClashes(Of({"é", "è", "e", "日本", "日木"}), kBoth), IsOk());
  EXPECT_THAT(CheckNameClashes(Manifest(), kBoth), IsOk());
}

TEST(NameClash, OnlyWhatTheFileSystemFolds) {
  EXPECT_TRUE(Clash("a", "A", kCase));
  EXPECT_FALSE(Clash("a", "A", kForm));
  EXPECT_TRUE(Clash("é", "e\xCC\x81", kForm));
  EXPECT_FALSE(Clash("é", "e\xCC\x81", kCase));
  EXPECT_TRUE(Clash("É", "e\xCC\x81", kBoth));
  EXPECT_FALSE(Clash("É", "e\xCC\x81", kCase));
  EXPECT_FALSE(Clash("É", "e\xCC\x81", kForm));
  EXPECT_FALSE(Clash("a", "A", NameFolding()));
}

TEST(NameClash, CaseIsFoldedInFull) {
  EXPECT_TRUE(Clash("É", "é", kCase));
  EXPECT_TRUE(Clash("Привет", "ПРИВЕТ", kCase));
  EXPECT_TRUE(Clash("Straße", "STRASSE", kCase));
  EXPECT_TRUE(Clash("Straße",
                    "STRA\xE1\xBA\x9E"
                    "E",
                    kCase));  // ẞ
  EXPECT_TRUE(Clash("ﬁn", "FIN", kCase));
  // Final, medial and capital sigma.
  EXPECT_TRUE(Clash("ὀδυσσεύς", "ὀδυσσεύσ", kCase));
  EXPECT_TRUE(Clash("ὀδυσσεύς", "ὈΔΥΣΣΕΎΣ", kCase));
  EXPECT_TRUE(Clash("5\xE2\x84\xAA", "5k", kCase));  // the Kelvin sign
}

// The folding is that of CaseFolding.txt without its lines of status T.
TEST(NameClash, NoLanguagesOwnRules) {
  EXPECT_FALSE(Clash("ı", "i", kBoth));
  EXPECT_FALSE(Clash("ı", "I", kBoth));
  EXPECT_FALSE(Clash("İ", "i", kBoth));
  EXPECT_TRUE(Clash("İ", "i\xCC\x87", kCase));  // a dot above
  EXPECT_TRUE(Clash("I\xCC\x87", "İ", kForm));
}

// The pairs are equivalent according to NormalizationTest.txt.
TEST(NameClash, FormsAreFoldedInFull) {
  EXPECT_TRUE(
      Clash("\xE1\xB8\x8B\xCC\xA3", "d\xCC\xA3\xCC\x87", kForm));  // two marks, either order
  EXPECT_TRUE(Clash("\xE1\xB8\x8D\xCC\x87", "d\xCC\x87\xCC\xA3", kForm));
  EXPECT_TRUE(Clash("\xE2\x84\xAB", "\xC3\x85", kForm));                    // Ångström sign, Å
  EXPECT_TRUE(Clash("각", "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", kForm));  // Hangul, its letters
  EXPECT_FALSE(Clash("ﬁ", "fi", kForm));                                 // no more than compatible
  EXPECT_FALSE(Clash("d\xCC\x87\xCC\x81", "d\xCC\x81\xCC\x87", kForm));  // order matters here
  // The mark U+0345 folds to a letter. Before folding, its place does not matter.
  EXPECT_TRUE(Clash("\xCE\xB1\xCD\x85\xCC\x81", "\xCE\xB1\xCC\x81\xCD\x85", kBoth));
  EXPECT_TRUE(Clash("\xE1\xBE\xB4", "\xCE\x91\xCC\x81\xCE\x99", kBoth));  // ᾴ
}

TEST(NameClash, BytesThatAreNoTextStayAsTheyAre) {
  EXPECT_FALSE(Clash("\xC3", "\xE3", kBoth));
  EXPECT_FALSE(Clash("\xFF", "\xFE", kBoth));
  EXPECT_FALSE(Clash("\xC3\xA9", "\xC3", kBoth));
  EXPECT_FALSE(Clash("a\xC3", "a\xC3\xA9", kBoth));
  EXPECT_FALSE(Clash("\xED\xA0\x80", "\xED\xA0\x81", kBoth));  // surrogates
  EXPECT_FALSE(Clash("\xC1\x81", "A", kBoth));                 // A, too long
  // The text beside such bytes is folded.
  EXPECT_TRUE(
      Clash("\xFF"
            "A\xC3\x89",
            "\xFF"
            "a\xC3\xA9",
            kCase));
  EXPECT_TRUE(Clash("\xC3\xA9\xC3", "e\xCC\x81\xC3", kForm));
  EXPECT_FALSE(Clash("e\xFF\xCC\x81", "\xC3\xA9\xFF", kForm));
  EXPECT_EQ(FoldedName("\xC3\xA9\xFF\xCC", kForm), "e\xCC\x81\xFF\xCC");
}

TEST(NameClash, TheProbeLeavesNothing) {
  TempDir dir;
  const UniqueFd fd(open(dir.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
#if defined(__linux__)
  EXPECT_FALSE(ProbeNameFolding(fd.get()).any());
#else
  (void)ProbeNameFolding(fd.get());
#endif
  EXPECT_TRUE(dir.Names().empty());
}

}  // namespace
}  // namespace gpuctl
