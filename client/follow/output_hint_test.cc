#include "client/follow/output_hint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

TEST(OutputHint, NamesAnEnvironmentWherePipLeavesTheSystemsPythonAlone) {
  EXPECT_THAT(HintOfOutput("Collecting torch\nerror: externally-managed-environment\n\n"
                           "\xc3\x97 This environment is externally managed\n"),
              HasSubstr("python3 -m venv $GPUCTL_ENV_DIR && pip install"));
}

TEST(OutputHint, NamesThePackageThatVenvLacks) {
  EXPECT_THAT(HintOfOutput("The virtual environment was not created successfully because "
                           "ensurepip is not available.  On Debian/Ubuntu systems, ...\n"),
              HasSubstr("python3-venv"));
}

TEST(OutputHint, NamesTheModuleThatPythonLacks) {
  EXPECT_THAT(HintOfOutput("Traceback (most recent call last):\n"
                           "ModuleNotFoundError: No module named 'torch.nn'\n"),
              HasSubstr("no module torch.nn; --setup"));
}

TEST(OutputHint, NamesPython3WhereAShellFoundNoPython) {
  EXPECT_EQ(HintOfOutput("bash: line 1: python: command not found\n"), kNoPythonHint);
  EXPECT_EQ(HintOfOutput("/bin/sh: 1: exec: python: not found\n"), kNoPythonHint);
  EXPECT_EQ(HintOfOutput("bash: line 1: ipython: command not found\n"), "");
}

TEST(OutputHint, SaysWhatToDoWithAnExportedNotebooksMagics) {
  EXPECT_THAT(HintOfOutput("Traceback (most recent call last):\n"
                           "NameError: name 'get_ipython' is not defined\n"),
              HasSubstr("what %pip installed goes to --setup"));
}

TEST(OutputHint, SaysWhatMayKeepAFileAtHome) {
  constexpr char kError[] = "FileNotFoundError: [Errno 2] No such file or directory: '";
  EXPECT_THAT(HintOfOutput(absl::StrCat("Traceback\n", kError, "data/big set.csv'\n")),
              HasSubstr("gpuctl sync --explain 'data/big set.csv' names the rule"));
  for (const char* other : {"/data/a", "../a", "-a", "a;b", ""}) {
    EXPECT_EQ(HintOfOutput(absl::StrCat(kError, other, "'\n")), "") << other;
  }
}

TEST(OutputHint, SaysNothingAboutOtherErrors) {
  EXPECT_EQ(HintOfOutput(""), "");
  EXPECT_EQ(HintOfOutput("ValueError: 3\n"), "");
  EXPECT_EQ(HintOfOutput("ModuleNotFoundError: No module named 'a b'; rm -rf\n"), "");
}

}  // namespace
}  // namespace gpuctl
