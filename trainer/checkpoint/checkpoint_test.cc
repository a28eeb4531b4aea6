#include "trainer/checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "trainer/base/files.h"
#include "trainer/base/sha256.h"
#include "trainer/checkpoint/checkpointer.h"
#include "trainer/checkpoint/describe_folder.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"
#include "trainer/tests/tensors.h"

namespace gpuctl::trainer {
namespace {

Snapshot SomeSnapshot(int64_t step, double held_out_loss = 1.0) {
  Snapshot snapshot;
  snapshot.step = step;
  snapshot.model_config = {{"model_type", "llama"}};
  snapshot.state = {{"step", step}, {"held_out_loss", held_out_loss}};
  const auto sub = static_cast<uint64_t>(step);
  snapshot.weights = {{"w", RandomTensor({3, 4}, at::kFloat, sub)},
                      {"h", RandomTensor({5}, at::kBFloat16, sub + 1)}};
  snapshot.optimizer = {{"exp_avg.w", RandomTensor({3, 4}, at::kFloat, sub + 2)}};
  return snapshot;
}

void FlipByte(const std::string& path, uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 1));
}

class CheckpointTest : public testing::Test {
 protected:
  ~CheckpointTest() override { SetFaultHook({}); }
  std::string Path(int64_t step) const { return root_ + "/" + CheckpointName(step); }

  TempDir directory_;
  const std::string root_ = directory_.path() + "/ckpt";
};

TEST_F(CheckpointTest, ReadsWhatItWrote) {
  const Snapshot snapshot = SomeSnapshot(20);
  EXPECT_EQ(WriteCheckpoint(root_, snapshot), Path(20));
  EXPECT_EQ(ListDirectory(root_), std::vector<std::string>{"step-00000020"});
  const LoadedCheckpoint loaded = LoadCheckpoint(Path(20));
  EXPECT_EQ(loaded.step, 20);
  EXPECT_EQ(loaded.state, snapshot.state);
  EXPECT_TRUE(at::equal(loaded.weights.at("w"), snapshot.weights[0].second));
  EXPECT_TRUE(at::equal(loaded.weights.at("h"), snapshot.weights[1].second));
  EXPECT_TRUE(at::equal(loaded.optimizer.at("exp_avg.w"), snapshot.optimizer[0].second));
}

// Returns the bytes that this process has read so far, of files and everything else.
uint64_t BytesRead() {
  std::ifstream file("/proc/self/io");
  std::string key;
  uint64_t bytes = 0;
  while (file >> key >> bytes) {
    if (key == "rchar:") return bytes;
  }
  return 0;
}

TEST_F(CheckpointTest, EachFileIsReadOnce) {
  if (BytesRead() == 0) GTEST_SKIP() << "this system does not count what a process reads";
  Snapshot snapshot = SomeSnapshot(20);
  snapshot.weights.emplace_back("large", RandomTensor({1000, 700}, at::kFloat, 1));
  snapshot.optimizer.emplace_back("exp_avg.large", RandomTensor({1000, 500}, at::kFloat, 2));
  WriteCheckpoint(root_, snapshot);
  std::vector<std::string> skipped;
  const uint64_t before = BytesRead();
  const auto loaded = LoadNewestCheckpoint(root_, &skipped);
  const uint64_t read = BytesRead() - before;
  ASSERT_TRUE(loaded) << skipped[0];
  EXPECT_GT(read, 4u * 1'200'000);
  EXPECT_LT(read, 4u * 1'200'000 + 40'000);  // the headers twice, and the counter itself
  EXPECT_EQ(TensorBytes(*loaded), 4 * (1'200'000 + 12 + 12) + 2 * 5);
  EXPECT_TRUE(at::equal(loaded->weights.at("large"), snapshot.weights.back().second));
}

TEST_F(CheckpointTest, ADigestTakesWhatIsReadAndReadsTheRest) {
  const std::string path = directory_.path() + "/some.safetensors";
  const at::Tensor large = RandomTensor({1000, 700}, at::kFloat, 1);
  WriteSafetensors(path, {{"a", large}, {"b", large}, {"d", at::empty({0, 4})}, {"c", large}}, {});
  const std::string expected = Sha256HexOfFile(path);
  const StoredFile file(path);
  const at::Tensor same = at::empty_like(large), none = at::empty({0, 4});
  const at::Tensor other = at::empty({1000, 700}, at::kBFloat16);
  for (const std::vector<size_t>& read :
       std::vector<std::vector<size_t>>{{}, {0}, {1}, {2}, {3}, {0, 3}, {1, 2}, {0, 1, 2, 3}}) {
    const uint64_t before = BytesRead();
    FileDigest digest(file);
    for (const size_t i : read) {
      const at::Tensor& target = i == 1 ? other : same;  // which converts
      ReadInto(file, file.tensors()[i], i == 2 ? none : target, &digest);
    }
    EXPECT_EQ(digest.Hex(), expected);
    EXPECT_LT(BytesRead() - before, 3u * 4 * 700'000 + 20'000);
    if (read == std::vector<size_t>{0, 3}) {
      EXPECT_TRUE(at::equal(same, large));
    }
  }
}

TEST_F(CheckpointTest, AllButTensorsIsVerified) {
  WriteCheckpoint(root_, SomeSnapshot(20));
  const std::string path = Path(20);
  const ManifestEntry weights = VerifyButTensors(path);
  EXPECT_EQ(weights.path, "model.safetensors");
  CheckDigest(path, weights, Sha256HexOfFile(path + "/" + weights.path));
  FlipByte(path + "/optimizer.safetensors", 100);
  FlipByte(path + "/model.safetensors", 100);
  VerifyButTensors(path);
  EXPECT_ERROR(CheckDigest(path, weights, Sha256HexOfFile(path + "/" + weights.path)),
               ExitCode::kBadData, "model.safetensors has another digest");
  FlipByte(path + "/state.json", 1);
  EXPECT_ERROR(VerifyButTensors(path), ExitCode::kBadData, "state.json has another digest");
}

TEST_F(CheckpointTest, AFileThatFitsTheManifestAndIsWrongIsRefusedAndNotPassedOver) {
  WriteCheckpoint(root_, SomeSnapshot(20));
  const std::string path = WriteCheckpoint(root_, SomeSnapshot(30));
  for (const char* name : {"optimizer.safetensors", "model.safetensors", "state.json"}) {
    const std::string file = path + "/" + name, good = ReadWholeFile(file);
    WriteFileDurably(file, "{}");
    auto manifest = nlohmann::json::parse(ReadWholeFile(path + "/manifest.json"));
    const nlohmann::json kept = manifest;
    for (auto& entry : manifest["files"]) {
      if (entry["path"] != name) continue;
      entry["size"] = 2;
      entry["sha256"] = Sha256Hex("{}");
    }
    WriteFileDurably(path + "/manifest.json", manifest.dump());
    std::vector<std::string> skipped;
    EXPECT_ERROR(LoadNewestCheckpoint(root_, &skipped), ExitCode::kBadData, name);
    EXPECT_TRUE(skipped.empty());
    WriteFileDurably(file, good);
    WriteFileDurably(path + "/manifest.json", kept.dump());
  }
  std::vector<std::string> skipped;
  EXPECT_EQ(LoadNewestCheckpoint(root_, &skipped)->step, 30);
}

TEST_F(CheckpointTest, ManifestIsAsAgreed) {
  WriteCheckpoint(root_, SomeSnapshot(20));
  const auto manifest = nlohmann::json::parse(ReadWholeFile(Path(20) + "/manifest.json"));
  EXPECT_EQ(manifest["format"], 1);
  EXPECT_EQ(manifest["step"], 20);
  std::vector<std::string> paths;
  for (const auto& file : manifest["files"]) {
    paths.push_back(file["path"]);
    EXPECT_EQ(file["sha256"], Sha256HexOfFile(Path(20) + "/" + paths.back()));
    EXPECT_EQ(file["size"], FileSize(Path(20) + "/" + paths.back()));
  }
  EXPECT_EQ(paths, (std::vector<std::string>{"config.json", "model.safetensors",
                                             "optimizer.safetensors", "state.json"}));
}

TEST_F(CheckpointTest, AdaptersHaveFilesOfTheirOwn) {
  Snapshot snapshot = SomeSnapshot(3);
  snapshot.adapter = true;
  const std::string path = WriteCheckpoint(root_, snapshot);
  EXPECT_TRUE(HoldsAdapter(path));
  EXPECT_FALSE(Exists(path + "/config.json") || Exists(path + "/model.safetensors"));
  const LoadedCheckpoint loaded = LoadCheckpoint(path);
  EXPECT_TRUE(loaded.adapter);
  EXPECT_EQ(loaded.model_config, snapshot.model_config);
  EXPECT_TRUE(at::equal(loaded.weights.at("w"), snapshot.weights[0].second));
  FlipByte(path + "/adapter_model.safetensors", 200);
  EXPECT_ERROR(VerifyCheckpoint(path), ExitCode::kBadData, "adapter_model.safetensors");
  RemoveTree(path + "/adapter_config.json");
  EXPECT_ERROR(VerifyCheckpoint(path), ExitCode::kBadData, "adapter_config.json is missing");
}

TEST_F(CheckpointTest, AFolderIsDescribed) {
  Snapshot snapshot = SomeSnapshot(7);
  snapshot.adapter = true;
  const std::string path = WriteCheckpoint(root_, snapshot);
  const FolderContent content = DescribeFolder(path);
  EXPECT_TRUE(content.adapter);
  EXPECT_EQ(content.step, 7);
  EXPECT_EQ(content.files.size(), 4u);
  ASSERT_EQ(content.tensors.size(), snapshot.weights.size());
  EXPECT_EQ(content.tensors[0].name, "h");
  EXPECT_EQ(content.elements, 3u * 4 + 5);
  EXPECT_EQ(content.bytes, 3u * 4 * 4 + 5 * 2);
  EXPECT_NE(FolderText(content).find("step 7, every file matches"), std::string::npos);
  // Without its manifest it is an adapter, and nothing is compared.
  FlipByte(path + "/adapter_model.safetensors", FileSize(path + "/adapter_model.safetensors") - 1);
  EXPECT_ERROR(DescribeFolder(path), ExitCode::kBadData, "another digest");
  RemoveTree(path + "/manifest.json");
  EXPECT_FALSE(DescribeFolder(path).step.has_value());
  RemoveTree(path + "/adapter_config.json");
  EXPECT_ERROR(DescribeFolder(path), ExitCode::kBadData, "no checkpoint and no model folder");
  EXPECT_ERROR(DescribeFolder(path + "/absent"), ExitCode::kBadData, "no such directory");
}

TEST_F(CheckpointTest, NamesAreStrict) {
  EXPECT_EQ(CheckpointName(20), "step-00000020");
  EXPECT_EQ(StepOfCheckpointName("step-00000020"), 20);
  EXPECT_EQ(StepOfCheckpointName("step-123456789"), 123456789);
  for (const char* name :
       {"step-20", "step-00000020x", ".tmp-step-00000020", "step--0000020", ""}) {
    EXPECT_EQ(StepOfCheckpointName(name), -1) << name;
  }
}

// The main loop: whatever operation fails, a directory with a checkpoint's name is complete.
TEST_F(CheckpointTest, NoFailingOperationLeavesATornCheckpoint) {
  for (const int error : {ENOSPC, EIO}) {
    for (const bool replaces : {false, true}) {
      int failed = 0;
      bool succeeded = false;
      for (int n = 0; !succeeded && n < 1000; ++n) {
        SetFaultHook({});
        RemoveTree(root_);
        MakeDirectories(root_);
        if (replaces) WriteCheckpoint(root_, SomeSnapshot(20));
        int count = 0;
        std::string operation;
        SetFaultHook([&](const char* name, const std::string&) {
          if (count++ != n) return 0;
          operation = name;
          return error;
        });
        try {
          WriteCheckpoint(root_, SomeSnapshot(20, 2.0));
          succeeded = operation.empty();
        } catch (const Error& caught) {
          EXPECT_EQ(caught.code(), ExitCode::kIo);
          ++failed;
        }
        SetFaultHook({});
        RemoveLeftovers(root_);
        for (const std::string& name : ListDirectory(root_)) {
          EXPECT_NO_THROW(LoadCheckpoint(root_ + "/" + name)) << operation << " number " << n;
        }
        EXPECT_TRUE(!replaces || IsDirectory(Path(20))) << operation << " number " << n;
      }
      EXPECT_TRUE(succeeded);
      EXPECT_GT(failed, 15);
    }
  }
}

// The disk stays full: the clean-up fails as well.
TEST_F(CheckpointTest, EverythingFailingFromSomePointOnLeavesNoTornCheckpoint) {
  for (int n = 0; n < 40; ++n) {
    RemoveTree(root_);
    MakeDirectories(root_);
    int count = 0;
    SetFaultHook([&](const char*, const std::string&) { return count++ >= n ? ENOSPC : 0; });
    try {
      WriteCheckpoint(root_, SomeSnapshot(20));
    } catch (const Error&) {
    }
    SetFaultHook({});
    std::vector<std::string> skipped;
    const auto newest = LoadNewestCheckpoint(root_, &skipped);
    EXPECT_TRUE(skipped.empty()) << skipped[0];
    EXPECT_EQ(newest != nullptr, !ListCheckpoints(root_).empty());
    RemoveLeftovers(root_);
    for (const std::string& name : ListDirectory(root_)) {
      EXPECT_EQ(StepOfCheckpointName(name), 20);
    }
  }
}

TEST_F(CheckpointTest, DamageOfAnyKindIsFoundAndPassedOver) {
  const std::vector<std::function<void()>> damages = {
      [&] { ASSERT_EQ(truncate((Path(30) + "/model.safetensors").c_str(), 100), 0); },
      [&] { FlipByte(Path(30) + "/optimizer.safetensors", 150); },
      [&] { FlipByte(Path(30) + "/state.json", 3); },
      [&] { RemoveTree(Path(30) + "/state.json"); },
      [&] { RemoveTree(Path(30) + "/manifest.json"); },
      [&] {
        RemoveTree(Path(30) + "/state.json");
        ASSERT_EQ(symlink("/nowhere/x", (Path(30) + "/state.json").c_str()), 0);
      },
      [&] {
        RemoveTree(Path(30) + "/manifest.json");
        ASSERT_EQ(symlink("manifest.json", (Path(30) + "/manifest.json").c_str()), 0);
      },
      [&] { ASSERT_EQ(truncate((Path(30) + "/manifest.json").c_str(), 40), 0); },
      [&] { WriteFileDurably(Path(30) + "/model.safetensors.index.json", "{}"); },
      [&] { WriteFileDurably(Path(30) + "/tokenizer.json", "{}"); },
      [&] {
        WriteFileDurably(Path(30) + "/manifest.json", R"({"format":1,"step":30,"files":[]})");
      },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    RemoveTree(root_);
    WriteCheckpoint(root_, SomeSnapshot(20));
    WriteCheckpoint(root_, SomeSnapshot(30));
    damages[i]();
    EXPECT_ERROR(LoadCheckpoint(Path(30)), ExitCode::kBadData, Path(30));
    std::vector<std::string> skipped;
    const auto newest = LoadNewestCheckpoint(root_, &skipped);
    ASSERT_TRUE(newest) << "damage " << i;
    EXPECT_EQ(newest->path, Path(20)) << "damage " << i;
    EXPECT_EQ(newest->step, 20);
    EXPECT_EQ(skipped.size(), 1u);
  }
}

// Else a run from step 0 would replace them.
TEST_F(CheckpointTest, WhereNoneVerifiesThereIsNotNone) {
  std::vector<std::string> skipped;
  EXPECT_EQ(LoadNewestCheckpoint(root_, &skipped), nullptr);
  WriteCheckpoint(root_, SomeSnapshot(20));
  WriteCheckpoint(root_, SomeSnapshot(30));
  FlipByte(Path(20) + "/state.json", 3);
  RemoveTree(Path(30) + "/manifest.json");
  EXPECT_ERROR(
      LoadNewestCheckpoint(root_, &skipped), ExitCode::kBadData,
      "no checkpoint in it verifies; verify checkpoint " + Path(30) + ": no manifest.json");
  EXPECT_EQ(skipped.size(), 2u);
}

TEST_F(CheckpointTest, WhatCannotBeReadIsNotPassedOver) {
  WriteCheckpoint(root_, SomeSnapshot(20));
  WriteCheckpoint(root_, SomeSnapshot(30));
  const std::string file = Path(30) + "/state.json";
  ASSERT_EQ(chmod(directory_.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod(file.c_str(), 0), 0);
  const bool root = geteuid() == 0;  // root may read it all the same
  if (root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  std::vector<std::string> skipped;
  EXPECT_ERROR(LoadNewestCheckpoint(root_, &skipped), ExitCode::kIo, "resume from " + Path(30));
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  EXPECT_EQ(LoadNewestCheckpoint(root_, &skipped)->step, 30);
  EXPECT_TRUE(skipped.empty());
}

TEST_F(CheckpointTest, FilesThatNobodyReadsArePassedOver) {
  WriteCheckpoint(root_, SomeSnapshot(20));
  for (const char* name : {"model.gguf", "README.md", "pytorch_model.bin", ".DS_Store"}) {
    WriteFileDurably(Path(20) + "/" + name, "?");
  }
  EXPECT_EQ(LoadCheckpoint(Path(20)).step, 20);
}

TEST_F(CheckpointTest, ManifestCannotPointOutside) {
  WriteCheckpoint(root_, SomeSnapshot(20));
  for (const char* path : {"../x", "/etc/passwd", "", "..", ".hidden"}) {
    const nlohmann::json manifest = {{"format", 1},
                                     {"files", {{{"path", path}, {"size", 1}, {"sha256", "0"}}}}};
    WriteFileDurably(Path(20) + "/manifest.json", manifest.dump());
    EXPECT_ERROR(VerifyCheckpoint(Path(20)), ExitCode::kBadData, "the manifest names");
  }
}

TEST_F(CheckpointTest, LeftoversGoAndAReplacedOneComesBack) {
  WriteCheckpoint(root_, SomeSnapshot(20));
  MakeDirectories(root_ + "/.tmp-step-00000030-1");
  Rename(Path(20), root_ + "/.old-step-00000020");
  RemoveLeftovers(root_);
  EXPECT_EQ(ListDirectory(root_), std::vector<std::string>{"step-00000020"});
  EXPECT_NO_THROW(LoadCheckpoint(Path(20)));
}

TEST_F(CheckpointTest, PruningKeepsTheNewestAndTheBest) {
  const double losses[] = {3.0, 1.0, 2.0, 1.5, 4.0};
  for (int64_t i = 0; i < 5; ++i) WriteCheckpoint(root_, SomeSnapshot(10 * (i + 1), losses[i]));
  WriteCheckpoint(root_, SomeSnapshot(90));  // of another run, later than the one just written
  EXPECT_TRUE(PruneCheckpoints(root_, 50, 2, 1).empty());
  EXPECT_EQ(ListCheckpoints(root_), (std::vector<int64_t>{20, 40, 50, 90}));
  EXPECT_TRUE(PruneCheckpoints(root_, 50, 1, 0).empty());
  EXPECT_EQ(ListCheckpoints(root_), (std::vector<int64_t>{50, 90}));
}

TEST_F(CheckpointTest, TheMemoryOfTheLastSnapshotComesBack) {
  Checkpointer checkpointer(root_, 5, 0);
  const void* first = nullptr;
  checkpointer.Save([&](const Snapshot& written) {
    EXPECT_TRUE(written.weights.empty());
    Snapshot snapshot = SomeSnapshot(1);
    first = snapshot.weights[0].second.data_ptr();
    return snapshot;
  });
  checkpointer.Save([&](Snapshot written) {
    EXPECT_EQ(written.step, 1);
    EXPECT_EQ(written.weights.at(0).second.data_ptr(), first);
    return SomeSnapshot(2);
  });
  checkpointer.Wait();
  checkpointer.SaveNow(SomeSnapshot(3));
  EXPECT_EQ(ListCheckpoints(root_), (std::vector<int64_t>{1, 2, 3}));
  for (int64_t step = 1; step <= 3; ++step) {
    const auto report = checkpointer.TakeReport();
    ASSERT_TRUE(report);
    EXPECT_EQ(report->step, step);
    EXPECT_EQ(report->failure, "");
  }
  EXPECT_EQ(LoadCheckpoint(root_ + "/" + CheckpointName(3)).step, 3);
}

TEST_F(CheckpointTest, CheckpointerWritesInOrderAndReportsFailures) {
  Checkpointer checkpointer(root_, 2, 0);
  for (const int64_t step : {10, 20, 30}) {
    checkpointer.Save([&](const Snapshot&) { return SomeSnapshot(step); });
  }
  checkpointer.Wait();
  for (const int64_t step : {10, 20, 30}) {
    const auto report = checkpointer.TakeReport();
    ASSERT_TRUE(report);
    EXPECT_EQ(report->step, step);
    EXPECT_EQ(report->failure, "");
    EXPECT_EQ(report->path, Path(step));
  }
  EXPECT_FALSE(checkpointer.TakeReport());
  EXPECT_EQ(ListCheckpoints(root_), (std::vector<int64_t>{20, 30}));
  SetFaultHook([](const char* operation, const std::string&) {
    return std::string(operation) == "write" ? ENOSPC : 0;
  });
  checkpointer.Save([&](const Snapshot&) { return SomeSnapshot(40); });
  checkpointer.Wait();
  SetFaultHook({});
  const auto report = checkpointer.TakeReport();
  ASSERT_TRUE(report);
  EXPECT_NE(report->failure.find("No space left"), std::string::npos) << report->failure;
  EXPECT_EQ(report->code, ExitCode::kIo);
  EXPECT_EQ(ListCheckpoints(root_), (std::vector<int64_t>{20, 30}));
}

TEST_F(CheckpointTest, TooLittleMemoryForACheckpointIsToldApart) {
  Checkpointer checkpointer(root_, 2, 0);
  SetFaultHook([](const char* operation, const std::string&) -> int {
    if (std::string(operation) == "write") throw std::bad_alloc();
    return 0;
  });
  checkpointer.SaveNow(SomeSnapshot(10));
  // A copy that finds no memory is none.
  EXPECT_THROW(checkpointer.Save([](const Snapshot&) -> Snapshot { throw std::bad_alloc(); }),
               std::bad_alloc);
  SetFaultHook({});
  const auto report = checkpointer.TakeReport();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->code, ExitCode::kTryAgain);
  EXPECT_NE(report->failure.find("out of memory"), std::string::npos) << report->failure;
  EXPECT_EQ(ListDirectory(root_), std::vector<std::string>{});
  checkpointer.SaveNow(SomeSnapshot(20));
  EXPECT_EQ(ListCheckpoints(root_), std::vector<int64_t>{20});
}

TEST_F(CheckpointTest, ADirectoryThatTakesNoCheckpointsIsFoundOut) {
  MakeDirectories(root_);
  EXPECT_NO_THROW(CheckTakesCheckpoints(root_));
  EXPECT_EQ(ListDirectory(root_), std::vector<std::string>{});
  EXPECT_ERROR(CheckTakesCheckpoints(root_ + "/none"), ExitCode::kIo, root_ + "/none");
  WriteFileDurably(root_ + "/file", "x");
  EXPECT_ERROR(CheckTakesCheckpoints(root_ + "/file"), ExitCode::kIo, root_ + "/file");
}

TEST_F(CheckpointTest, EveryDtypeSurvives) {
  MakeDirectories(root_);
  NamedTensors tensors;
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                    at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
    tensors.emplace_back(c10::toString(type), RandomIntegers({2, 3}, 0, 2, 1).to(type));
  }
  tensors.emplace_back("empty", at::empty({0, 4}));
  tensors.emplace_back("scalar", at::full({}, 2.5f));
  std::string digest;
  WriteSafetensors(root_ + "/t", tensors, {}, &digest);
  EXPECT_EQ(digest, Sha256HexOfFile(root_ + "/t"));
  const auto read = ReadSafetensors(root_ + "/t");
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(read.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(read.at(name), tensor)) << name;
  }
}

}  // namespace
}  // namespace gpuctl::trainer
