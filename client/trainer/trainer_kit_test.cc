#include "client/trainer/trainer_kit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Names(const std::vector<NeededLibrary>& libraries) {
  std::vector<std::string> names;
  for (const NeededLibrary& library : libraries) {
    names.push_back(absl::StrCat(library.name, "=", library.path));
  }
  return names;
}

template <typename T>
void Put(std::string& bytes, size_t offset, T value) {
  bytes.replace(offset, sizeof(value), reinterpret_cast<const char*>(&value), sizeof(value));
}

// Returns a program with two program headers; the second names `loader`.
std::string Program(const std::string& loader) {
  std::string bytes(64 + 2 * 56, '\0');
  bytes.replace(0, 6, "\177ELF\002\001");
  Put<uint64_t>(bytes, 32, 64);
  Put<uint16_t>(bytes, 54, 56);
  Put<uint16_t>(bytes, 56, 2);
  Put<uint32_t>(bytes, 64, 6);
  Put<uint32_t>(bytes, 64 + 56, 3);
  Put<uint64_t>(bytes, 64 + 56 + 8, bytes.size());
  Put<uint64_t>(bytes, 64 + 56 + 32, loader.size() + 1);
  return bytes + loader + '\0';
}

TEST(InterpreterOfTest, FindsTheLoader) {
  const std::string program = Program("/lib64/ld-linux-x86-64.so.2");
  const absl::StatusOr<std::string> loader = InterpreterOf(program);
  ASSERT_OK(loader);
  EXPECT_EQ(*loader, "/lib64/ld-linux-x86-64.so.2");
  // A program cut anywhere is invalid, and nothing is read beyond its end.
  for (size_t size = 0; size < program.size(); ++size) {
    EXPECT_FALSE(InterpreterOf(program.substr(0, size)).ok()) << size;
  }
  std::string far = program;
  Put<uint64_t>(far, 64 + 56 + 8, ~uint64_t{0});
  EXPECT_FALSE(InterpreterOf(far).ok());
  far = program;
  Put<uint64_t>(far, 32, ~uint64_t{0});
  EXPECT_FALSE(InterpreterOf(far).ok());
  EXPECT_FALSE(InterpreterOf("#!/bin/sh\n").ok());
}

TEST(ParseLibraryListTest, TakesWhatIsFoundAndLeavesTheDriverOut) {
  const auto libraries = ParseLibraryList(
      "\tlinux-vdso.so.1 (0x00007ffd)\n"
      "\tlibtorch.so.1.13 => /usr/lib/libtorch.so.1.13 (0x00007f01)\n"
      "\tlibodd.so => /opt/a (b) => c/libodd.so (0x00007f02)\n"
      "\tlibcuda.so.1 => not found\n"
      "\tlibnvidia-ml.so.1 => /usr/lib/libnvidia-ml.so.1 (0x00007f03)\n"
      "\t/lib64/ld-linux-x86-64.so.2 (0x00007f04)\n"
      "\tld-linux-x86-64.so.2 => /lib64/ld-linux-x86-64.so.2 (0x00007f04)\n");
  ASSERT_OK(libraries);
  EXPECT_THAT(Names(*libraries), ElementsAre("libtorch.so.1.13=/usr/lib/libtorch.so.1.13",
                                             "libodd.so=/opt/a (b) => c/libodd.so"));
}

TEST(ParseLibraryListTest, NamesWhatCannotGoAlong) {
  EXPECT_THAT(ParseLibraryList("\tlibfoo.so.1 => not found\n").status().message(),
              HasSubstr("libfoo.so.1, which is not here"));
  EXPECT_THAT(ParseLibraryList("\t/opt/libfoo.so (0x00007f01)\n").status().message(),
              HasSubstr("just this place: /opt/libfoo.so"));
}

TEST(IsOpenedLaterTest, KnowsCudasFamilies) {
  EXPECT_TRUE(IsOpenedLater("libtorch_cuda.so", "libcaffe2_nvrtc.so"));
  EXPECT_TRUE(IsOpenedLater("libcudnn.so.8", "libcudnn_ops_infer.so.8"));
  EXPECT_TRUE(IsOpenedLater("libnvrtc.so.12", "libnvrtc-builtins.so.12.1"));
  EXPECT_FALSE(IsOpenedLater("libcudnn.so.8", "libcudnn_static.a"));
  EXPECT_FALSE(IsOpenedLater("libtorch_cuda.so", "libsomething.so"));
  EXPECT_FALSE(IsOpenedLater("libtorch_cpu.so", "libcudnn.so.8"));
}

TEST(FindTrainerKitTest, TakesThePreparedDirectoryFirst) {
  TempDir dir;
  const std::string kit_dir = dir.path() + "/kit";
  dir.Write("kit/gpuctl-trainer", Program("/lib64/ld-linux-x86-64.so.2"));
  dir.Write("kit/lib/libtorch_cuda.so", "12345");
  BundlePaths paths;
  paths.trainer = "/nowhere/gpuctl-trainer";
  paths.trainer_kit = kit_dir;
  EXPECT_THAT(FindTrainerKit(paths).status().message(), HasSubstr("lacks lib/ld-linux-x86-64"));
  dir.Write("kit/lib/ld-linux-x86-64.so.2", "loader");
  const absl::StatusOr<TrainerKit> kit = FindTrainerKit(paths);
  ASSERT_OK(kit);
  EXPECT_EQ(kit->loader, "lib/ld-linux-x86-64.so.2");
  EXPECT_TRUE(kit->has_cuda);
  ASSERT_EQ(kit->files.size(), 3u);
  EXPECT_EQ(kit->files[1].path, "lib/ld-linux-x86-64.so.2");
  EXPECT_EQ(kit->shown, kit_dir);

  const std::string copy = dir.path() + "/copy";
  ASSERT_OK(WriteTrainerKit(*kit, copy));
  EXPECT_EQ(ReadFileToString(copy + "/lib/libtorch_cuda.so").value(), "12345");
  struct stat info {};
  ASSERT_EQ(stat((copy + "/lib/ld-linux-x86-64.so.2").c_str(), &info), 0);
  EXPECT_TRUE((info.st_mode & 0100) != 0);
  EXPECT_FALSE(WriteTrainerKit(*kit, copy).ok());
}

TEST(FindTrainerKitTest, SaysWhyThereIsNone) {
  BundlePaths paths;
  const absl::Status none = FindTrainerKit(paths).status();
  EXPECT_THAT(none.message(), HasSubstr("no gpuctl-trainer beside gpuctl"));
  EXPECT_THAT(HintOf(none), HasSubstr("gpuctl debug trainer-kit"));
  EXPECT_EQ(ExitCodeOf(none), kExitUsage);
  TempDir dir;
  dir.Write("gpuctl-trainer", "\xcf\xfa\xed\xfe a program for macOS");
  paths.trainer = dir.path() + "/gpuctl-trainer";
  EXPECT_THAT(FindTrainerKit(paths).status().message(), HasSubstr("no dynamically linked program"));
}

#ifdef __linux__
TEST(FindTrainerKitTest, FollowsAProgramsLibraries) {
  BundlePaths paths;
  paths.trainer = ExecutablePath();
  const absl::StatusOr<TrainerKit> kit = FindTrainerKit(paths);
  ASSERT_OK(kit);
  bool has_libc = false;
  for (const KitFile& file : kit->files) {
    has_libc = has_libc || file.path == "lib/libc.so.6";
    struct stat info {};
    ASSERT_EQ(lstat(file.source.c_str(), &info), 0) << file.source;
    EXPECT_TRUE(S_ISREG(info.st_mode)) << file.source;
  }
  EXPECT_TRUE(has_libc);
  EXPECT_TRUE(std::any_of(kit->files.begin(), kit->files.end(), [](const KitFile& file) {
    return file.path == "lib/libdl.so.2";
  })) << "the NVIDIA driver asks for it";
  EXPECT_FALSE(kit->has_cuda);
}
#endif

TEST(CheckTrainerUsesGpusTest, WantsConsentForTheCpu) {
  TrainerKit kit;
  EXPECT_EQ(TrainerDevice("{}"), "auto");
  EXPECT_EQ(TrainerDevice(R"({"train":{"device":"cpu"}})"), "cpu");
  EXPECT_EQ(TrainerDevice(R"({"train":[1]})"), "auto");
  const absl::Status idle = CheckTrainerUsesGpus(kit, "{}", "vast");
  EXPECT_THAT(idle.message(), HasSubstr("built without CUDA"));
  EXPECT_THAT(HintOf(idle), HasSubstr("--trainer train.device=cpu"));
  EXPECT_EQ(ExitCodeOf(idle), kExitUsage);
  EXPECT_FALSE(CheckTrainerUsesGpus(kit, R"({"train":{"device":"cuda"}})", "vast").ok());
  EXPECT_OK(CheckTrainerUsesGpus(kit, R"({"train":{"device":"cpu"}})", "vast"));
  kit.has_cuda = true;
  EXPECT_OK(CheckTrainerUsesGpus(kit, "{}", "vast"));
}

}  // namespace
}  // namespace gpuctl
