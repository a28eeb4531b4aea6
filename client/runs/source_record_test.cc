#include "client/runs/source_record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gpuctl {
namespace {

TEST(SourceRecordTest, ComesBackAsItWas) {
  SourceRecord record;
  record.commit = "0123456789abcdef0123";
  record.branch = "main";
  record.changed = 3;
  record.diff_bytes = 17;
  record.diff_cut = true;
  record.left_out = {".env", "data \"x\""};
  record.left_out_count = 2;
  record.diff_missing = "git diff failed";
  const SourceRecord back = ParseSourceRecord(FormatSourceRecord(record));
  EXPECT_EQ(FormatSourceRecord(back), FormatSourceRecord(record));
  EXPECT_EQ(back.left_out, record.left_out);
  EXPECT_FALSE(back.clean());
  EXPECT_EQ(DescribeSource(back), "0123456789ab on main, 3 files changed");
  const nlohmann::ordered_json json = SourceToJson(back);
  EXPECT_EQ(json["clean"], false);
  EXPECT_EQ(json["why"], "git diff failed");
}

TEST(SourceRecordTest, WhatCannotBeReadIsNotKnown) {
  for (const char* text : {"", "{", "[]", "{\"changed\":\"three\"}", "{\"left_out\":[1]}"}) {
    const SourceRecord record = ParseSourceRecord(text);
    EXPECT_EQ(DescribeSource(record), "not recorded") << text;
    EXPECT_FALSE(record.clean()) << text;
    EXPECT_TRUE(SourceToJson(record)["clean"].is_null()) << text;
  }
}

TEST(SourceRecordTest, IsDescribedInAFewWords) {
  SourceRecord record;
  record.commit = "0123456789abcdef0123";
  EXPECT_EQ(DescribeSource(record), "0123456789ab, no branch, clean");
  record.commit.clear();
  record.branch = "main";
  record.changed = 1;
  EXPECT_EQ(DescribeSource(record), "no commit yet on main, 1 file changed");
}

}  // namespace
}  // namespace gpuctl
