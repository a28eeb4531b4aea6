#include "client/programs/node_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/matchers.h"
#include "tests/support/node_programs_dir.h"
#include "tests/support/tar_file.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

std::string Names(const std::map<std::string, ArchiveFile>& files) {
  std::string names;
  for (const auto& [name, file] : files) names += name + " ";
  return names;
}

TEST(NodeArchiveTest, TakesTheProgramsOfAPlatform) {
  TarFile tar;
  tar.Add("linux-aarch64/", "", '5');
  tar.Add("linux-aarch64/gpuctl-agent", ProgramText(kArm, std::string(2000, 'a')));
  tar.Add("linux-aarch64/gpuctl-shim", ProgramText(kArm, "s"), '0', 1790000000);
  tar.Add("linux-aarch64/gpuctl-cuda-check", ProgramText(kArm, "c"));
  tar.Add("roots.pem", "roots");
  tar.Add("manifest.json", "{}");
  const auto files = ReadNodeArchive(tar.Text(), kArm);
  ASSERT_OK(files);
  EXPECT_EQ(Names(*files), "gpuctl-agent gpuctl-cuda-check gpuctl-shim roots.pem ");
  EXPECT_EQ(files->at("gpuctl-agent").content, ProgramText(kArm, std::string(2000, 'a')));
  EXPECT_EQ(files->at("gpuctl-shim").modified_s, 1790000000);
}

TEST(NodeArchiveTest, TakesThemFromTheFoldersOfARelease) {
  for (const char* folder :
       {"", "./", "./linux-aarch64/", "node/linux-aarch64/", "gpuctl-node-0.1.0-linux-aarch64/"}) {
    TarFile tar;
    tar.Add("pax_global_header", "52 comment=0\n", 'g');
    tar.Add(std::string(folder) + "gpuctl-agent", ProgramText(kArm));
    tar.Add(std::string(folder) + "gpuctl-shim", ProgramText(kArm));
    const auto files = ReadNodeArchive(tar.Text(), kArm);
    ASSERT_OK(files);
    EXPECT_EQ(Names(*files), "gpuctl-agent gpuctl-shim ") << folder;
  }
}

TEST(NodeArchiveTest, TakesNothingElse) {
  TarFile tar;
  tar.Add("gpuctl-agent", ProgramText(kArm));
  tar.Add("gpuctl-shim", ProgramText(kArm));
  for (const char* path : {"../roots.pem", "/etc/roots.pem", "linux-x86_64/gpuctl-agent",
                           "a/b/gpuctl-shim", "../../gpuctl-agent", ".ssh/authorized_keys"}) {
    tar.Add(path, "evil");
  }
  tar.Add("link", "", '2');
  tar.Add("device", "", '3');
  const auto files = ReadNodeArchive(tar.Text(), kArm);
  ASSERT_OK(files);
  EXPECT_EQ(Names(*files), "gpuctl-agent gpuctl-shim ");
  EXPECT_EQ(files->at("gpuctl-agent").content, ProgramText(kArm));
}

TEST(NodeArchiveTest, RefusesWhatIsNotPlain) {
  for (const char type : {'1', '2', '3', '4', '5', '6', '7', 'L', 'x'}) {
    TarFile tar;
    tar.Add("gpuctl-agent", ProgramText(kArm));
    tar.Add("gpuctl-shim", "", type);
    EXPECT_THAT(ReadNodeArchive(tar.Text(), kArm),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no plain file")))
        << type;
  }
  TarFile twice;
  twice.Add("gpuctl-agent", ProgramText(kArm));
  twice.Add("linux-aarch64/gpuctl-agent", ProgramText(kArm));
  EXPECT_THAT(ReadNodeArchive(twice.Text(), kArm),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("twice")));
}

TEST(NodeArchiveTest, RefusesProgramsOfAnotherMachine) {
  TarFile tar;
  tar.Add("gpuctl-agent", ProgramText(kArm));
  tar.Add("gpuctl-shim", ProgramText(kX86));
  EXPECT_THAT(ReadNodeArchive(tar.Text(), kArm),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("gpuctl-shim in it is a program for linux-x86_64")));
  TarFile script;
  script.Add("gpuctl-agent", "#!/bin/sh\n");
  script.Add("gpuctl-shim", ProgramText(kArm));
  EXPECT_THAT(ReadNodeArchive(script.Text(), kArm), StatusIs(absl::StatusCode::kDataLoss));
  TarFile half;
  half.Add("gpuctl-agent", ProgramText(kArm));
  EXPECT_THAT(ReadNodeArchive(half.Text(), kArm),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("there is no gpuctl-shim")));
}

TEST(NodeArchiveTest, RefusesWhatIsCutOrDamaged) {
  TarFile tar;
  tar.Add("gpuctl-agent", ProgramText(kArm, std::string(3000, 'a')));
  tar.Add("gpuctl-shim", ProgramText(kArm));
  const std::string whole = tar.Text();
  ASSERT_OK(ReadNodeArchive(whole, kArm));
  for (size_t size = 0; size < whole.size() - 1024; size += 100) {
    EXPECT_THAT(ReadNodeArchive(absl::string_view(whole).substr(0, size), kArm),
                StatusIs(absl::StatusCode::kDataLoss))
        << size;
  }
  for (const size_t at : {size_t{0}, size_t{124}, size_t{150}, size_t{156}}) {
    std::string damaged = whole;
    damaged[at] ^= 1;
    EXPECT_THAT(ReadNodeArchive(damaged, kArm), StatusIs(absl::StatusCode::kDataLoss)) << at;
  }
}

}  // namespace
}  // namespace gpuctl
