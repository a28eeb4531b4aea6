#include "client/verbs/complete_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/runs/context.h"
#include "client/verbs/describe_verbs.h"
#include "client/verbs/verb.h"
#include "common/base/fake_clock.h"

namespace gpuctl {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

VerbText Describe(const std::string& name) {
  static FakeClock clock;
  CommandContext context(clock);
  return DescribeVerb(context, name);
}

Completions Found(const std::vector<std::string>& words) {
  CompletionSource source;
  for (const Verb& verb : Verbs()) source.verbs.push_back({verb.name, verb.summary});
  source.describe = Describe;
  source.runs = [](bool live_only, const std::string& /*prefix*/) {
    std::vector<Completion> runs = {{"fox-2", "live: sh"}};
    if (!live_only) runs.push_back({"fox-1", "ended: sh"});
    if (!live_only) runs.push_back({"elk-1", "ended: sh"});
    return runs;
  };
  source.batches = [] { return std::vector<Completion>{{"sweep", "batch"}, {"other", "batch"}}; };
  return CompleteWords(words, source);
}

std::vector<std::string> Words(const std::vector<std::string>& words) {
  std::vector<std::string> found;
  for (const Completion& completion : Found(words).words) found.push_back(completion.word);
  return found;
}

TEST(CompleteWordsTest, Verbs) {
  EXPECT_THAT(Words({"me"}), ElementsAre("metrics", "merge"));
  EXPECT_THAT(Words({"help", "metr"}), ElementsAre("metrics"));
  EXPECT_THAT(Words({"-o", "json", "att"}), ElementsAre("attach"));
  EXPECT_THAT(Words({"-o", "j"}), ElementsAre("json", "jsonl"));
  EXPECT_THAT(Words({"nothing", ""}), IsEmpty());
  EXPECT_GT(Words({}).size(), 30u);
}

TEST(CompleteWordsTest, Batches) {
  EXPECT_THAT(Words({"queue", "s"}), ElementsAre("sweep"));
  EXPECT_THAT(Words({"cancel", "sweep", ""}), ElementsAre("other"));
  EXPECT_THAT(Words({"wait", "--batch", ""}), ElementsAre("sweep", "other"));
}

TEST(CompleteWordsTest, FlagsAndTheirValues) {
  EXPECT_THAT(Words({"metrics", "--p"}), ElementsAre("--plot"));
  EXPECT_THAT(Words({"metrics", "-"}), IsSupersetOf({"--csv", "--tensorboard", "--json"}));
  EXPECT_THAT(Words({"launch", "--provider", "r"}), ElementsAre("runpod"));
  EXPECT_THAT(Words({"launch", "--provider=v"}), ElementsAre("--provider=vast"));
  EXPECT_THAT(Words({"launch", "--provider=vast,l"}),
              ElementsAre("--provider=vast,local", "--provider=vast,lambda"));
  EXPECT_THAT(Words({"launch", "--gpu", "H100"}), Contains("H100-SXM"));
  EXPECT_THAT(Words({"metrics", "-o", "w"}), ElementsAre("wide"));
  EXPECT_THAT(Words({"export", "fox-1", "--to", "gguf"}), ElementsAre("gguf", "gguf-lora"));
  EXPECT_TRUE(Found({"metrics", "--plot", ""}).files);
  EXPECT_TRUE(Found({"metrics", "--plot=a"}).files);
  EXPECT_FALSE(Found({"metrics", "--csv", ""}).files);
}

TEST(CompleteWordsTest, Runs) {
  EXPECT_THAT(Words({"logs", ""}), ElementsAre("fox-2", "fox-1", "elk-1"));
  EXPECT_THAT(Words({"logs", "-n", "5", "e"}), ElementsAre("elk-1"));
  EXPECT_THAT(Words({"metrics", "fox-1", "fox"}), ElementsAre("fox-2"));
  EXPECT_THAT(Words({"metrics", "--csv", "fox-1", "--plot", "a.svg", "e"}), ElementsAre("elk-1"));
  // Where an ended run is no use, it comes only when nothing else fits.
  EXPECT_THAT(Words({"stop", ""}), ElementsAre("fox-2"));
  EXPECT_THAT(Words({"attach", "e"}), ElementsAre("elk-1"));
  EXPECT_THAT(Words({"attach", "fox-2", ""}), IsEmpty());
  EXPECT_THAT(Words({"launch", "--on", "f"}), ElementsAre("fox-2", "fox-1"));
  EXPECT_THAT(Words({"cp", "f"}), ElementsAre("fox-2:", "fox-1:"));
  EXPECT_TRUE(Found({"cp", "fox-1:a", ""}).files);
  EXPECT_THAT(Words({"generate", "e"}), ElementsAre("elk-1"));
  EXPECT_TRUE(Found({"generate", "e"}).files);
}

TEST(CompleteWordsTest, ArgumentsThatAreNoRuns) {
  EXPECT_THAT(Words({"completion", ""}), ElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(Words({"login", "r"}), ElementsAre("runpod"));
  EXPECT_THAT(Words({"debug", "re"}), ElementsAre("replay"));
  EXPECT_THAT(Words({"debug", "replay", "elk"}), ElementsAre("elk-1"));
  EXPECT_THAT(Words({"node", ""}), ElementsAre("fetch"));
  EXPECT_TRUE(Found({"launch", ""}).files);
  EXPECT_TRUE(Found({"launch", "--", ""}).files);
  EXPECT_THAT(Words({"exec", "fox-2", "--", "lo"}), IsEmpty());
}

TEST(CompleteWordsTest, EveryVerbSaysWhatItTakes) {
  std::vector<std::string> all;
  for (const Verb& verb : Verbs()) {
    const VerbText text = Describe(verb.name);
    EXPECT_EQ(text.usage.substr(0, text.usage.find(' ')), verb.name);
    EXPECT_FALSE(text.description.empty()) << verb.name;
    for (const VerbText::Flag& flag : text.flags) all.push_back(flag.names.back());
    EXPECT_THAT(Words({verb.name, "--no-c"}), ElementsAre("--no-color"));
    EXPECT_THAT(Words({verb.name, "--qui"}), ElementsAre("--quiet"));
    EXPECT_NO_FATAL_FAILURE(Words({verb.name, ""}));
  }
  EXPECT_THAT(all, IsSupersetOf(CompletedFlags()));
}

TEST(CompleteWordsTest, UsageLines) {
  const UsageWords words = ReadUsage("generate RUN|FOLDER --chat MESSAGE|--prompt TEXT [FLAGS]");
  ASSERT_EQ(words.arguments.size(), 1u);
  EXPECT_THAT(words.arguments[0].alternatives, ElementsAre("RUN", "FOLDER"));
  ASSERT_EQ(words.flags.size(), 2u);
  EXPECT_EQ(words.flags[1].first, "--prompt");
  EXPECT_THAT(words.flags[1].second.alternatives, ElementsAre("TEXT"));
  EXPECT_TRUE(ReadUsage("down RUN|INSTANCE... | --all [FLAGS]").arguments[0].repeated);
  EXPECT_TRUE(ReadUsage("exec RUN [FLAGS] -- CMD...").flags.empty());
}

}  // namespace
}  // namespace gpuctl
