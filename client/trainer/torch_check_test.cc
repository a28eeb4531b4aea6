#include "client/trainer/torch_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

TEST(ParseTorchAnswerTest, FindsTheAnswerBehindAGreeting) {
  const auto yes = ParseTorchAnswer(
      "Welcome to gpu7\nno torch here\n"
      "gpuctl-trainer-check\tyes\tcuda\ttorch 2.9.1 in /opt/a, g++ 12.2.0\r\nbye\n");
  ASSERT_OK(yes);
  EXPECT_TRUE(yes->can_build);
  EXPECT_TRUE(yes->has_cuda);
  EXPECT_EQ(yes->text, "torch 2.9.1 in /opt/a, g++ 12.2.0");
  const auto of_cpu = ParseTorchAnswer("gpuctl-trainer-check\tyes\tcpu\ttorch\n");
  ASSERT_OK(of_cpu);
  EXPECT_FALSE(of_cpu->has_cuda);
  const auto no =
      ParseTorchAnswer("gpuctl-trainer-check\tno\tcompiler\tthere is no g++\tinstall one\n");
  ASSERT_OK(no);
  EXPECT_FALSE(no->can_build);
  EXPECT_EQ(no->text, "there is no g++");
  EXPECT_EQ(no->fix, "install one");
}

TEST(ParseTorchAnswerTest, NothingElseIsAnAnswer) {
  for (const char* printed :
       {"", "\n", "gpuctl-trainer-check\n", "gpuctl-trainer-check\tyes\tcuda\n",
        "gpuctl-trainer-check\tperhaps\tcpu\ttorch\n",
        " gpuctl-trainer-check\tyes\tcpu\ttorch\n"}) {
    EXPECT_FALSE(ParseTorchAnswer(printed).ok()) << printed;
  }
}

}  // namespace
}  // namespace gpuctl
