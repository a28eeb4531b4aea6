#include "client/batch/entry_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuctl {
namespace {

using ::testing::ElementsAre;

TEST(EntrySpec, PlaceholdersAreFilledOnceAndOtherBracesStay) {
  const Parameters parameters = {{"lr", "{rank}"}, {"rank", "8"}};
  EXPECT_EQ(FillIn("a {lr} {rank}{rank} {other} ${HOME} {", parameters),
            "a {rank} 88 {other} ${HOME} {");
  EXPECT_EQ(FillIn("", parameters), "");
  EXPECT_EQ(FillIn("{lr", parameters), "{lr");
}

TEST(EntrySpec, ParametersReachCommandEnvironmentAndPatterns) {
  LaunchRecord record;
  record.spec.command = {"train.py", "--lr={lr}"};
  record.spec.env = {{"OUT", "out/{lr}"}, {"LR", "of the run file"}};
  record.spec.artifacts = {"out/{lr}/*.json"};
  const auto filled = WithParameters(record, "sweep-1", {{"lr", "1e-4"}});
  ASSERT_TRUE(filled.ok()) << filled.status();
  EXPECT_THAT(filled->spec.command, ElementsAre("train.py", "--lr=1e-4"));
  EXPECT_EQ(filled->spec.env.at("OUT"), "out/1e-4");
  EXPECT_EQ(filled->spec.env.at("LR"), "1e-4");
  EXPECT_THAT(filled->spec.artifacts, ElementsAre("out/1e-4/*.json"));
  EXPECT_EQ(filled->spec.name, "sweep-1");
}

TEST(EntrySpec, NamesWithoutAValueAreFound) {
  RunSpec spec;
  spec.command = {"train.py", "--lr={lr}", "--rank={rnk}", "{rnk}",
                  "${HOME}",  "{ print }", "{1,2}"};
  spec.run = "echo {seed} ${lr}";
  EXPECT_THAT(NamesWithoutValue(spec, {{"lr", "1"}, {"rank", "8"}}), ElementsAre("rnk", "seed"));
  EXPECT_THAT(NamesWithoutValue(RunSpec(), {{"lr", "1"}}), ElementsAre());
}

TEST(EntrySpec, ParametersThatNothingUsesAreFound) {
  RunSpec spec;
  // As IPython leaves "--lr {lr}" where lr is a variable of the notebook.
  spec.command = {"train.py", "--lr", "0.5", "--rank={rank}"};
  const Parameters parameters = {{"lr", "1"}, {"rank", "8"}, {"OFFSET", "3"}};
  EXPECT_THAT(NamesWithoutUse(spec, parameters), ElementsAre("lr"));
  spec.run = "python3 train.py --lr $LR";
  EXPECT_THAT(NamesWithoutUse(spec, parameters), ElementsAre());
  spec.run.clear();
  spec.env = {{"RATE", "{lr}"}};
  EXPECT_THAT(NamesWithoutUse(spec, parameters), ElementsAre());
  spec.env.clear();
  spec.artifacts = {"out-{lr}/*"};
  EXPECT_THAT(NamesWithoutUse(spec, parameters), ElementsAre());
  EXPECT_THAT(NamesWithoutUse(RunSpec(), {{"trainer.optimizer.lr", "1"}}), ElementsAre());
}

TEST(EntrySpec, SettingsOfTheTrainerAreCheckedByIt) {
  LaunchRecord record;
  record.spec.trainer_json = R"({"model":{"init":"m"},"data":{"paths":"d"}})";
  const auto filled = WithParameters(record, "s-1", {{"trainer.optimizer.lr", "1e-4"}});
  ASSERT_TRUE(filled.ok()) << filled.status();
  EXPECT_NE(filled->spec.trainer_json.find("0.0001"), std::string::npos)
      << filled->spec.trainer_json;
  EXPECT_FALSE(WithParameters(record, "s-1", {{"trainer.optimizer.nothing", "1"}}).ok());
  record.spec.trainer_json.clear();
  record.spec.run = "true";
  EXPECT_FALSE(WithParameters(record, "s-1", {{"trainer.optimizer.lr", "1e-4"}}).ok());
}

TEST(EntrySpec, TheDigestChangesWithEachLaunchAndWithTheirOrder) {
  EXPECT_EQ(BatchDigest({"a", "b"}), BatchDigest({"a", "b"}));
  EXPECT_NE(BatchDigest({"a", "b"}), BatchDigest({"b", "a"}));
  EXPECT_NE(BatchDigest({"a", "b"}), BatchDigest({"ab"}));
  EXPECT_EQ(BatchDigest({}).size(), 64u);
}

}  // namespace
}  // namespace gpuctl
