#include "agent/ssh/serve_ssh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ServeSshTest, ASessionHasTheGpusAndVariablesOfItsAllocation) {
  EXPECT_EQ(SessionOptions({"HOME=/home/ada", "PATH=/usr/bin", "SSH_CONNECTION=x"}), "");
  EXPECT_EQ(SessionOptions({"SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0,1",
                            "GPUCTL_HELD_ROOT=/tmp/gpuctl-1000/7-0", "TMPDIRS=no"}),
            "environment=\"GPUCTL_HELD_ROOT=/tmp/gpuctl-1000/7-0\","
            "environment=\"CUDA_VISIBLE_DEVICES=0,1\",environment=\"SLURM_JOB_ID=7\"");
}

TEST(ServeSshTest, WhatTheFileCannotHoldIsLeftOut) {
  const std::string options =
      SessionOptions({"SLURM_A=a\" command=\"x", "SLURM_B=two\nlines", "SLURM_C=back\\slash",
                      absl::StrCat("SLURM_D=", std::string(7000, 'x')), "SLURM_E=fits, too"});
  EXPECT_EQ(options, "environment=\"SLURM_E=fits, too\"");
}

TEST(ServeSshTest, TheMoreImportantOnesFitFirst) {
  std::vector<std::string> many;
  for (int i = 0; i < 500; ++i) many.push_back(absl::StrCat("SLURM_SOMETHING_", i, "=value"));
  many.push_back("CUDA_VISIBLE_DEVICES=3");
  const std::string options = SessionOptions(many);
  EXPECT_THAT(options, StartsWith("environment=\"CUDA_VISIBLE_DEVICES=3\","));
  EXPECT_THAT(options, HasSubstr("SLURM_SOMETHING_0=value"));
  EXPECT_THAT(options, Not(HasSubstr("SLURM_SOMETHING_499=value")));
  EXPECT_LE(options.size(), 8000u);
}

}  // namespace
}  // namespace gpuctl
