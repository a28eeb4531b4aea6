#include "client/base/flag_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/base/exit_codes.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Parsed {
  explicit Parsed(const std::vector<std::string>& args) {
    FlagSet flags("launch [RUN.yaml] [FLAGS] [-- CMD...]", "Launches.", "");
    flags.Switch("-p,--pull", pull, "Bring checkpoints; --pull=N keeps N");
    flags.Option("RUN", files, "A run file");
    status = flags.Read(args).status();
  }
  std::string pull;
  std::vector<std::string> files;
  absl::Status status;
};

TEST(FlagSetTest, ANumberBehindAFlagWithAnOptionalValueIsNoArgument) {
  for (const char* flag : {"--pull", "-p"}) {
    const Parsed parsed({flag, "2"});
    EXPECT_EQ(ExitCodeOf(parsed.status), kExitUsage) << parsed.status;
    EXPECT_THAT(HintOf(parsed.status), HasSubstr("--pull=2"));
  }
  EXPECT_EQ(Parsed({"--pull=2", "run.yaml"}).pull, "2");
  const Parsed run({"--pull", "run.yaml"});
  EXPECT_EQ(run.pull, "true");
  EXPECT_THAT(run.files, ElementsAre("run.yaml"));
  EXPECT_TRUE(Parsed({"run.yaml", "2"}).status.ok());
  EXPECT_TRUE(Parsed({"--", "--pull", "2"}).status.ok());
}

}  // namespace
}  // namespace gpuctl
