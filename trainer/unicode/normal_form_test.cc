#include "trainer/unicode/normal_form.h"

#include <gtest/gtest.h>

namespace gpuctl::trainer {
namespace {

TEST(NormalFormTest, GivesTheFourForms) {
  const std::string text = "e\xcc\x81 \xc3\xa9 \xef\xac\x81 \xe2\x84\xab";  // e´ é ﬁ Å (Angstrom)
  EXPECT_EQ(Normalize(text, NormalForm::kNfc), "é é \xef\xac\x81 Å");
  EXPECT_EQ(Normalize(text, NormalForm::kNfd), "e\xcc\x81 e\xcc\x81 \xef\xac\x81 A\xcc\x8a");
  EXPECT_EQ(Normalize(text, NormalForm::kNfkc), "é é fi Å");
  EXPECT_EQ(Normalize(text, NormalForm::kNfkd), "e\xcc\x81 e\xcc\x81 fi A\xcc\x8a");
}

TEST(NormalFormTest, SortsMarksAndComposesHangul) {
  // U+0301 and U+0323 change places; the letter takes both.
  EXPECT_EQ(Normalize("xe\xcc\x81\xcc\xa3y", NormalForm::kNfc), "x\xe1\xba\xb9\xcc\x81y");
  EXPECT_EQ(Normalize("é\xcc\xa3", NormalForm::kNfc), "\xe1\xba\xb9\xcc\x81");
  EXPECT_EQ(Normalize("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", NormalForm::kNfc), "각");
  EXPECT_EQ(Normalize("가\xe1\x86\xa8", NormalForm::kNfc), "각");
  EXPECT_EQ(Normalize("", NormalForm::kNfc), "");
  EXPECT_EQ(Normalize("\xcc\x81", NormalForm::kNfc), "\xcc\x81");
}

TEST(NormalFormTest, CodePointsSinceUnicode10StayWhereTheyAre) {
  // U+11935 with U+11930 is U+11938 since Unicode 13; U+08D3 is a mark below since 11.
  EXPECT_EQ(Normalize("\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0", NormalForm::kNfc),
            "\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0");
  EXPECT_EQ(Normalize("a\xcc\x81\xe0\xa3\x93", NormalForm::kNfc), "á\xe0\xa3\x93");
}

TEST(NormalFormTest, AMillionMarksAreSortedInNoTime) {
  std::string text = "a";
  for (int i = 0; i < 500'000; ++i) text += "\xcc\x81\xcc\xa3";
  const std::string form = Normalize(text, NormalForm::kNfc);
  // U+1EA1 has the first mark below; the others follow, and then those above.
  EXPECT_EQ(form.substr(0, 5), "\xe1\xba\xa1\xcc\xa3");
  EXPECT_EQ(form.size(), text.size());
  EXPECT_EQ(form.substr(form.size() - 2), "\xcc\x81");
}

TEST(NormalFormTest, LowerCase) {
  EXPECT_EQ(Lowercase("STRASSE Ä Σ \xc4\xb0"), "strasse ä σ i\xcc\x87");
}

}  // namespace
}  // namespace gpuctl::trainer
