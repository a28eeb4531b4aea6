#include "trainer/train/model_source.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/base/files.h"
#include "trainer/checkpoint/base_digest.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/families.h"
#include "trainer/cpu/sgemm.h"
#include "trainer/linear/frozen_matrix.h"
#include "trainer/linear/matmul.h"
#include "trainer/model/finite.h"
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
  std::unique_ptr<BackgroundBaseDigest> digest;
  EXPECT_FALSE(StartWeights(config, source, Placement{}, &digest).empty());
  EXPECT_EQ(digest->Get(), BaseDigest(folder));
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

TEST(ModelSourceTest, FrozenMatricesAreInStripsWhereTheirProductsGain) {
  if (!cpu::HasSgemm()) GTEST_SKIP() << "strips are for processors with AVX2";
  struct Choice {
    explicit Choice(const char* library) { ChooseMatMul(library); }
    ~Choice() { ChooseMatMul("auto"); }
  };
  const TempDir directory;
  Config config = AdaptersFor(directory.path() + "/base");
  config.lora.modules_to_save = {"embed_tokens"};
  const ModelSource source = FindModel(config, "");
  config.model = source.model;
  config.lora = source.lora;
  const std::vector<ParameterSpec> specs = ParameterSpecs(config.model);
  std::vector<at::Tensor> dense, in_strips;
  {
    const Choice others("blas");
    dense = StartWeights(config, source, Placement{});
  }
  {
    const Choice own("avx2");
    in_strips = StartWeights(config, source, Placement{});
  }
  ASSERT_GE(dense.size(), specs.size());
  ASSERT_EQ(dense.size(), in_strips.size());
  size_t found = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    ASSERT_EQ(dense[i].sizes(), at::IntArrayRef(specs[i].shape));
    // Rows of the embedding are trained, and a norm is no matrix.
    if (i == 0 || specs[i].shape.size() != 2) {
      EXPECT_TRUE(at::equal(in_strips[i], dense[i])) << specs[i].slices[0].name;
      continue;
    }
    ++found;
    ASSERT_TRUE(FrozenMatrix::IsInStrips(in_strips[i])) << specs[i].slices[0].name;
    EXPECT_TRUE(at::equal(in_strips[i], FrozenMatrix::PutInStrips(dense[i].clone())));
    EXPECT_EQ(NameOfNotFinite(specs[i], in_strips[i]), "");
    in_strips[i][in_strips[i].numel() - 1] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(NameOfNotFinite(specs[i], in_strips[i]), specs[i].slices[0].name);
  }
  EXPECT_EQ(found, 4);
}

TEST(ModelSourceTest, ADigestInTheBackgroundIsThatOfTheFilesThatWereOpened) {
  const TempDir directory;
  const std::string folder = directory.path() + "/base";
  AdaptersFor(folder);
  const std::string weights = folder + "/model.safetensors";
  const std::string digest = BaseDigest(folder);
  {
    BackgroundBaseDigest background(folder);
    RemoveTree(folder);
    EXPECT_EQ(background.Get(), digest);
    EXPECT_EQ(background.Get(), digest);
    EXPECT_NO_THROW(background.Check());
  }
  AdaptersFor(folder);
  // So large that the digest is not there before the file changes. A hole needs no disk.
  const auto [header, data] = [] {
    std::string text = R"({"w":{"dtype":"F32","shape":[134217728],"data_offsets":[0,536870912]}})";
    const uint64_t size = text.size();
    std::string bytes(8, '\0');
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(size >> (8 * i));
    return std::pair(bytes + text, uint64_t{1} << 29);
  }();
  WriteFileDurably(weights, header);
  ASSERT_EQ(::truncate(weights.c_str(), static_cast<off_t>(header.size() + data)), 0);
  {
    const BackgroundBaseDigest given_up(folder);
    EXPECT_NO_THROW(given_up.Check());
  }
  BackgroundBaseDigest background(folder);
  const int fd = ::open(weights.c_str(), O_WRONLY);
  ASSERT_EQ(::pwrite(fd, "x", 1, static_cast<off_t>(header.size())), 1);
  ::close(fd);
  EXPECT_ERROR(background.Get(), ExitCode::kBadData, "its files changed while they were read");
  EXPECT_ERROR(background.Check(), ExitCode::kBadData, folder);
}

}  // namespace
}  // namespace gpuctl::trainer
