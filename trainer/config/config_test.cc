#include "trainer/config/config.h"

#include <gtest/gtest.h>

#include "trainer/base/files.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

TEST(ConfigTest, KeysLeftOutKeepTheirDefaults) {
  const Config config = ParseConfig(json{{"train", {{"steps", 7}}}});
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.train.batch, TrainConfig().batch);
  EXPECT_EQ(config.model.layers, ModelConfig().layers);
}

TEST(ConfigTest, WritingAndReadingGivesTheSame) {
  Config config;
  config.model.layers = 9;
  config.data.paths = {"a", "b"};
  config.optimizer.schedule = "linear";
  config.sample.prompt = "x";
  const json written = ConfigToJson(config);
  EXPECT_EQ(ConfigToJson(ParseConfig(written)), written);
}

TEST(ConfigTest, UnknownKeysAreRefusedWithASuggestion) {
  EXPECT_ERROR(ParseConfig(json{{"train", {{"stepss", 7}}}}), ExitCode::kBadConfig,
               "unknown key \"train.stepss\"; did you mean \"steps\"?");
  EXPECT_ERROR(ParseConfig(json{{"optimiser", json::object()}}), ExitCode::kBadConfig,
               "did you mean \"optimizer\"?");
}

TEST(ConfigTest, WrongTypesAndRangesNameTheKey) {
  EXPECT_ERROR(ParseConfig(json{{"train", {{"steps", "many"}}}}), ExitCode::kBadConfig,
               "train.steps: must be a whole number");
  EXPECT_ERROR(ParseConfig(json{{"train", {{"steps", 1.5}}}}), ExitCode::kBadConfig, "train.steps");
  EXPECT_ERROR(ParseConfig(json{{"train", {{"steps", 0}}}}), ExitCode::kBadConfig, "train.steps");
  EXPECT_ERROR(ParseConfig(json{{"data", {{"paths", {1, 2}}}}}), ExitCode::kBadConfig,
               "data.paths: must be a list of texts");
  EXPECT_ERROR(ParseConfig(json{{"optimizer", {{"schedule", "cosin"}}}}), ExitCode::kBadConfig,
               "did you mean \"cosine\"?");
}

TEST(ConfigTest, AdaptersNeedAModelAndFreezeTheRest) {
  const auto with = [](json lora, json more = json::object()) {
    more["lora"] = std::move(lora);
    if (!more.contains("model")) more["model"] = {{"init", "folder"}};
    return ParseConfig(more);
  };
  const LoraConfig lora = with({{"rank", 8}, {"alpha", 4}, {"dora", true}}).lora;
  EXPECT_EQ(lora.Scale(), 0.5);
  EXPECT_TRUE(lora.dora);
  EXPECT_EQ(with({{"rank", 16}, {"alpha", 4}, {"rank_scaled", true}}).lora.Scale(), 1);
  EXPECT_EQ(with({{"rank", 8}, {"targets", "q_proj"}}).lora.targets,
            std::vector<std::string>{"q_proj"});
  EXPECT_NO_THROW(with({{"rank", 0}}, {{"model", json::object()}}));
  EXPECT_NO_THROW(with({{"init", "adapter"}}));
  const auto refused = [&](const json& given, const json& more, const std::string& part) {
    EXPECT_ERROR(with(given, more), ExitCode::kBadConfig, part);
  };
  refused({{"rank", 8}}, {{"model", json::object()}}, "model.init is not set");
  refused({{"init", "adapter"}}, {{"model", json::object()}}, "model.init is not set");
  refused({{"rank", 8}}, {{"train", {{"freeze", "*"}}}}, "train.freeze and adapters");
  refused({{"alpha", 8}}, json::object(), "lora.alpha is given, but lora.rank is 0");
  refused({{"alpha", 8}, {"init", "adapter"}}, json::object(), "lora.alpha is given");
  refused({{"rank", 8}, {"init", "adapter"}}, json::object(), "the adapter decides");
  refused({{"rank", 8}, {"targets", json::array()}}, json::object(), "lora.targets is empty");
  refused({{"rank", -1}}, json::object(), "lora.rank");
  refused({{"rank", 5000}}, json::object(), "lora.rank");
  refused({{"rank", 8}, {"dropout", 1}}, json::object(), "lora.dropout");
  refused({{"rank", 8}, {"dora", "yes"}}, json::object(), "lora.dora: must be true or false");
  refused({{"rank", 8}, {"dora", 1}}, json::object(), "lora.dora: must be true or false");
}

TEST(ConfigTest, ModelsThatCannotBeBuiltAreRefused) {
  EXPECT_ERROR(ParseConfig(json{{"model", {{"d_model", 10}, {"heads", 4}}}}), ExitCode::kBadConfig,
               "heads must divide");
  EXPECT_ERROR(ParseConfig(json{{"model", {{"heads", 6}, {"kv_heads", 4}}}}), ExitCode::kBadConfig,
               "kv_heads must divide");
  EXPECT_ERROR(ParseConfig(json{{"model", {{"d_model", 6}, {"heads", 2}, {"kv_heads", 1}}}}),
               ExitCode::kBadConfig, "even");
}

TEST(ConfigTest, OverridesApplyInOrder) {
  const TempDir directory;
  const std::string path = directory.path() + "/c.json";
  WriteFileDurably(path, R"({"train": {"steps": 5}} // a comment)");
  const Config config =
      LoadConfig(path, {"train.steps=6", "train.steps=8", "data.paths=docs", "optimizer.lr=0.5"});
  EXPECT_EQ(config.train.steps, 8);
  EXPECT_EQ(config.data.paths, std::vector<std::string>{"docs"});
  EXPECT_EQ(config.optimizer.lr, 0.5);
  EXPECT_ERROR(LoadConfig(path, {"steps=6"}), ExitCode::kBadConfig, "section.key=value");
  EXPECT_ERROR(LoadConfig(path, {"train.stesp=6"}), ExitCode::kBadConfig, "train.stesp");
}

TEST(ConfigTest, UnreadableFilesAreRefused) {
  const TempDir directory;
  WriteFileDurably(directory.path() + "/c.json", "{");
  EXPECT_ERROR(LoadConfig(directory.path() + "/c.json", {}), ExitCode::kBadConfig, "valid JSON");
  EXPECT_ERROR(LoadConfig(directory.path() + "/d.json", {}), ExitCode::kBadConfig, "no such file");
}

TEST(ConfigTest, AModelFolderExcludesTheOtherKeysOfTheModel) {
  const Config config = ParseConfig(json{{"model", {{"init", "folder"}, {"context", 64}}}});
  EXPECT_EQ(config.model.init, "folder");
  ModelConfig folder;
  for (const auto& [takes, has] : {std::pair(512, 512), std::pair(32768, 1024)}) {
    folder.context = takes;
    EXPECT_EQ(ContextOf(config.model, folder), 64);
    EXPECT_EQ(ContextOf(ParseConfig(json{{"model", {{"init", "folder"}}}}).model, folder), has);
  }
  EXPECT_EQ(ParseConfig(json::object()).model.context, 256);
  EXPECT_ERROR(ParseConfig(json{{"model", {{"init", "folder"}, {"ffn", 64}}}}),
               ExitCode::kBadConfig, "model.ffn and model.init are both given");
  EXPECT_EQ(ParseConfig(json{{"model", {{"init", ""}, {"ffn", 64}}}}).model.ffn, 64);
}

TEST(ConfigTest, HelpNamesEveryKey) {
  const std::string help = DescribeConfig();
  Config config;
  for (const Section& section : Sections(config)) {
    for (const Field& field : section.fields) {
      EXPECT_NE(help.find(section.key + "." + field.key), std::string::npos) << field.key;
      EXPECT_FALSE(field.help.empty()) << field.key;
    }
  }
}

}  // namespace
}  // namespace gpuctl::trainer
