#include "client/workdir/named_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "common/files/files.h"

namespace gpuctl {
namespace {

class NamedResultsTest : public testing::Test {
 protected:
  NamedResultsTest() : root_(JoinPath(testing::TempDir(), "named_results_test")) {
    EXPECT_TRUE(MakeDirectories(JoinPath(root_, "tools")).ok());
    std::ofstream(JoinPath(root_, "tools/saves.py")) << "d = os.environ['GPUCTL_CHECKPOINT_DIR']\n";
    std::ofstream(JoinPath(root_, "plain.py")) << "print(1)\n";
    mkfifo(JoinPath(root_, "pipe").c_str(), 0600);
  }

  bool Command(std::vector<std::string> command) {
    RunSpec spec;
    spec.command = std::move(command);
    return NamesResults(spec, root_);
  }

  const std::string root_;
};

TEST_F(NamedResultsTest, PatternsAndTheTrainerNameThem) {
  RunSpec spec;
  EXPECT_FALSE(NamesResults(spec, ""));
  spec.checkpoints = {"out/*"};
  EXPECT_TRUE(NamesResults(spec, ""));
  spec.checkpoints.clear();
  spec.artifacts = {"out/*"};
  EXPECT_TRUE(NamesResults(spec, ""));
  spec.artifacts.clear();
  spec.trainer_json = "{}";
  EXPECT_TRUE(NamesResults(spec, ""));
}

TEST_F(NamedResultsTest, ACommandOrItsScriptMentionsTheDirectory) {
  RunSpec spec;
  spec.run = "./train --out $GPUCTL_CHECKPOINT_DIR";
  EXPECT_TRUE(NamesResults(spec, ""));
  spec.run = "cd /; (python3 tools/saves.py)";
  EXPECT_TRUE(NamesResults(spec, root_));
  EXPECT_FALSE(NamesResults(spec, ""));
  EXPECT_TRUE(Command({"python3", "tools/saves.py", "--lr", "1e-4"}));
  EXPECT_TRUE(Command({"python3", "-m", "tools.saves"}));
  EXPECT_TRUE(Command({"bash", "-c", "exec python3 './tools/saves.py'"}));
  // A pipe is not waited for, and neither a directory nor what is missing is an error.
  EXPECT_FALSE(Command({"python3", "plain.py", "pipe", "tools", "gone.py", "", "."}));
}

TEST_F(NamedResultsTest, OptionsOfSbatchAreThoseOfTheScriptsThatTheCommandNames) {
  std::ofstream(JoinPath(root_, "job.sh")) << "#!/bin/bash\n#SBATCH --array=0-5\n"
                                              "#SBATCH -t 60   # minutes\n#SBATCHED --x\n"
                                              "##SBATCH --mem=1G\necho '#SBATCH --qos=x'\n";
  RunSpec spec;
  spec.command = {"bash", "job.sh"};
  EXPECT_THAT(SbatchOptions(spec, root_), testing::ElementsAre("--array=0-5", "-t 60"));
  EXPECT_THAT(SbatchOptions(spec, ""), testing::IsEmpty());
  spec.command.clear();
  spec.run = "cd x; bash ./job.sh";
  EXPECT_THAT(SbatchOptions(spec, root_), testing::SizeIs(2));
  spec.run = "python3 plain.py";
  EXPECT_THAT(SbatchOptions(spec, root_), testing::IsEmpty());
}

}  // namespace
}  // namespace gpuctl
