#include "trainer/train/model_source.h"

#include <gtest/gtest.h>

#include "trainer/base/files.h"
#include "trainer/checkpoint/base_digest.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/families.h"
#include "trainer/model/parameters.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

// Writes the folder of a small model. Returns the configuration of adapters for it.
Config AdaptersFor(const std::string& folder) {
  Config config;
  config.model = {1, 16, 2, 1, 32, 8, 257, 1e4, 1e-5};
  MakeDirectories(folder);
  NamedTensors named;
  AppendSlices(ParameterSpecs(config.model), InitializeWeights(config.model, 1), "", &named);
  WriteSafetensors(folder + "/model.safetensors", named, {}, nullptr);
  WriteFileDurably(folder + "/config.json", ModelToHuggingFace(config.model).dump());
  config.model.init = folder;
  config.lora.rank = 2;
  config.checkpoint.dir = folder + "-checkpoints";
  return config;
}

TEST(ModelSourceTest, TheDigestIsThatOfTheFilesThatWereRead) {
  const TempDir directory;
  const std::string folder = directory.path() + "/base";
  Config config = AdaptersFor(folder);
  const ModelSource source = FindModel(config, "");
  config.model = source.model;
  config.lora = source.lora;
  std::string digest;
  EXPECT_FALSE(StartWeights(config, source, Placement{}, &digest).empty());
  EXPECT_EQ(digest, BaseDigest(folder));
  // Another program writes the same bytes, or others: nobody knows which were read.
  for (const char* name : {"/config.json", "/model.safetensors"}) {
    const ModelSource before = FindModel(config, "");
    WriteFileDurably(folder + "/new", ReadWholeFile(folder + name));
    Rename(folder + "/new", folder + name);
    EXPECT_ERROR(StartWeights(config, before, Placement{}), ExitCode::kBadData,
                 "its files changed while they were read");
    EXPECT_ERROR(CheckUnchanged(folder, before.base_stamp), ExitCode::kBadData, folder);
  }
}

}  // namespace
}  // namespace gpuctl::trainer
