#include "common/job/job_layout.h"

#include "common/files/files.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

gpuctl::v1::JobSpec Spec() {
  gpuctl::v1::JobSpec spec;
  spec.set_job_id("j-1");
  spec.add_argv("bash");
  spec.add_argv("-c");
  spec.add_argv("echo \"\xc3\xa9\" \n\t\x01");
  (*spec.mutable_env())["B"] = "2";
  (*spec.mutable_env())["A"] = "1";
  spec.set_output_limit_bytes(int64_t{1} << 53);
  spec.mutable_retry()->add_on("lost");
  return spec;
}

TEST(StoredSpecTest, ComesBackAsItWas) {
  const StoredSpec stored{"d1", Spec()};
  const auto back = ParseStoredSpec(FormatStoredSpec(stored));
  ASSERT_OK(back);
  EXPECT_EQ(back->spec_digest, "d1");
  EXPECT_EQ(SpecDigest(back->spec), SpecDigest(stored.spec));
}

TEST(StoredSpecTest, UsesTheProtosOwnFieldNames) {
  EXPECT_NE(FormatStoredSpec({"d", Spec()}).find("\"job_id\":\"j-1\""), std::string::npos);
}

TEST(StoredSpecTest, FieldsOfANewerBuildAreIgnored) {
  EXPECT_OK(ParseStoredSpec(
      R"({"spec_digest":"d","later":1,"spec":{"job_id":"j","unheard_of":{"x":[1]}}})"));
}

TEST(StoredSpecTest, AnythingElseIsDataLoss) {
  for (const char* json :
       {"", "{", "[]", "{}", R"({"spec_digest":1,"spec":{}})", R"({"spec_digest":"d"})",
        R"({"spec_digest":"d","spec":[]})", R"({"spec_digest":"d","spec":{"argv":5}})",
        R"({"spec_digest":"d","spec":{"grace_ms":"x"}})"}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseStoredSpec(json).status())) << json;
  }
}

TEST(StoredSpecTest, ReadsTheJobsFile) {
  TempDir dir;
  const JobPaths paths(dir.path());
  EXPECT_TRUE(absl::IsNotFound(ReadStoredSpec(paths).status()));
  ASSERT_OK(WriteFileAtomic(paths.spec, FormatStoredSpec({"d", Spec()})));
  EXPECT_OK(ReadStoredSpec(paths));
}

TEST(SpecDigestTest, DependsOnContentAndNotOnTheOrderOfMaps) {
  gpuctl::v1::JobSpec other;
  (*other.mutable_env())["A"] = "1";
  (*other.mutable_env())["B"] = "2";
  gpuctl::v1::JobSpec spec = Spec();
  spec.clear_env();
  EXPECT_NE(SpecDigest(spec), SpecDigest(Spec()));
  *spec.mutable_env() = other.env();
  EXPECT_EQ(SpecDigest(spec), SpecDigest(Spec()));
  EXPECT_EQ(SpecDigest(spec).size(), 64u);
}

TEST(LayoutTest, DefaultsOfTheOutput) {
  gpuctl::v1::JobSpec spec;
  EXPECT_EQ(OutputShape(spec).segment_bytes, kDefaultSegmentBytes);
  EXPECT_EQ(OutputLimit(spec), kDefaultOutputLimitBytes);
  spec.set_output_segment_bytes(4096);
  spec.set_output_limit_bytes(8192);
  EXPECT_EQ(OutputShape(spec).segment_bytes, 4096);
  EXPECT_EQ(OutputLimit(spec), 8192);
}

TEST(LayoutTest, JobsLieBelowTheRoot) {
  const RootPaths root("/r");
  EXPECT_EQ(root.Job("j-1").lifecycle, "/r/jobs/j-1/lifecycle.jsonl");
  EXPECT_EQ(root.socket, "/r/agent.sock");
}

}  // namespace
}  // namespace gpuctl
