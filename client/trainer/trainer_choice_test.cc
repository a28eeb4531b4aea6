#include "client/trainer/trainer_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "client/base/exit_codes.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Way = TrainerStart::Way;

RunSpec Spec(TrainerBuild build, const std::string& device = "auto") {
  RunSpec spec;
  spec.trainer_json = R"({"train":{"device":")" + device + R"("}})";
  spec.trainer_build = build;
  return spec;
}

// A laptop with sources and a kit for x86-64.
TrainerWays Ways(bool sources, bool kit, bool cuda = false) {
  TrainerWays ways;
  if (sources) ways.sources = "/src";
  if (kit) {
    ways.kit.emplace().has_cuda = cuda;
    ways.kit_platform = NodePlatform::kLinuxX86_64;
  } else {
    ways.no_kit = absl::FailedPreconditionError("no gpuctl-trainer beside gpuctl");
  }
  return ways;
}

TrainerNode Node(int gpus, NodePlatform platform = NodePlatform::kLinuxX86_64) {
  return {"gpu7", false, gpus, platform};
}

TorchAnswer Yes(bool cuda) { return {true, cuda, "torch 2.9.1 in /t, g++ 12", ""}; }
TorchAnswer No() {
  return {false, false, "torch 2.9.1 is in /t, but there is no g++", "apt-get install g++"};
}

struct Decision {
  absl::StatusOr<Way> way;
  std::string why_kit;
};
Decision Decide(const RunSpec& spec, const TrainerWays& ways, const TrainerNode& node,
                const absl::StatusOr<TorchAnswer>& answer) {
  Decision decision{absl::UnknownError(""), ""};
  decision.way = DecideTrainer(spec, ways, node, answer, decision.why_kit);
  return decision;
}

TEST(DecideTrainerTest, TheNodesTorchComesFirst) {
  const RunSpec spec = Spec(TrainerBuild::kAuto);
  for (const TrainerNode& node : {Node(0), Node(1), Node(1, NodePlatform::kLinuxAarch64)}) {
    const Decision decision = Decide(spec, Ways(true, true, true), node, Yes(true));
    ASSERT_OK(decision.way);
    EXPECT_EQ(*decision.way, Way::kSources);
  }
}

TEST(DecideTrainerTest, TheKitGoesWhereTheTrainerCannotBeCompiled) {
  const RunSpec spec = Spec(TrainerBuild::kAuto);
  Decision decision = Decide(spec, Ways(true, true), Node(0), No());
  ASSERT_OK(decision.way);
  EXPECT_EQ(*decision.way, Way::kKit);
  EXPECT_EQ(decision.why_kit, No().text);
  // A torch without CUDA is of no use for GPUs.
  decision = Decide(spec, Ways(true, true, true), Node(1), Yes(false));
  ASSERT_OK(decision.way);
  EXPECT_EQ(*decision.way, Way::kKit);
  EXPECT_THAT(decision.why_kit, HasSubstr("has no CUDA"));
  // The run file wants the CPU.
  decision = Decide(Spec(TrainerBuild::kAuto, "cpu"), Ways(true, true), Node(1), Yes(false));
  ASSERT_OK(decision.way);
  EXPECT_EQ(*decision.way, Way::kSources);
  // A shell that gives no answer is no torch.
  decision = Decide(spec, Ways(true, true), Node(0), absl::FailedPreconditionError("a menu"));
  ASSERT_OK(decision.way);
  EXPECT_EQ(*decision.way, Way::kKit);
  EXPECT_EQ(decision.why_kit, "a menu");
}

TEST(DecideTrainerTest, NeitherNamesBothAndTheWayOut) {
  const RunSpec spec = Spec(TrainerBuild::kAuto);
  const auto arm = Decide(spec, Ways(true, true, true), Node(0, NodePlatform::kLinuxAarch64), No());
  EXPECT_THAT(arm.way.status().message(),
              AllOf(HasSubstr("train on gpu7"), HasSubstr("there is no g++"),
                    HasSubstr("it is linux-aarch64, and the trainer's kit is for linux-x86_64")));
  EXPECT_THAT(HintOf(arm.way.status()),
              AllOf(HasSubstr("apt-get install g++"), HasSubstr("gpuctl debug trainer-kit")));
  EXPECT_EQ(ExitCodeOf(arm.way.status()), kExitUsage);
  const auto without = Decide(spec, Ways(true, false), Node(0), No());
  EXPECT_THAT(without.way.status().message(), HasSubstr("no gpuctl-trainer beside gpuctl"));
  const auto gpus = Decide(spec, Ways(true, true, false), Node(1), Yes(false));
  EXPECT_THAT(gpus.way.status().message(),
              AllOf(HasSubstr("has no CUDA"), HasSubstr("built without CUDA")));
}

TEST(DecideTrainerTest, WhatTheRunFileNamesIsTakenOrRefused) {
  const auto node = Decide(Spec(TrainerBuild::kNode), Ways(true, false), Node(0), No());
  EXPECT_THAT(node.way.status().message(),
              AllOf(HasSubstr("compile the trainer on gpu7"), HasSubstr("there is no g++")));
  EXPECT_THAT(HintOf(node.way.status()),
              AllOf(HasSubstr("apt-get install g++"), HasSubstr("trainer.build: kit")));
  auto kit = Decide(Spec(TrainerBuild::kKit), Ways(false, true), Node(0), Yes(true));
  ASSERT_OK(kit.way);
  EXPECT_EQ(*kit.way, Way::kKit);
  kit = Decide(Spec(TrainerBuild::kKit), Ways(false, true, true),
               Node(0, NodePlatform::kLinuxAarch64), Yes(true));
  EXPECT_THAT(kit.way.status().message(), HasSubstr("it is linux-aarch64"));
  EXPECT_THAT(HintOf(kit.way.status()), HasSubstr("trainer.build: node"));
  kit = Decide(Spec(TrainerBuild::kKit), Ways(false, true, false), Node(2), Yes(true));
  EXPECT_THAT(kit.way.status().message(), HasSubstr("built without CUDA"));
}

TEST(FindTrainerWaysTest, GpusThatNoProcessUsesAreRefused) {
  RunSpec spec = Spec(TrainerBuild::kAuto);
  BundlePaths paths;
  paths.trainer_sources = "/src";
  spec.gpu.push_back({"H100", 0, 0, 1, "H100"});
  EXPECT_OK(FindTrainerWays(spec, false, paths));
  spec.gpu.push_back({"A100-80GB", 0, 0, 8, "A100-80GB:8"});
  const auto ways = FindTrainerWays(spec, false, paths);
  EXPECT_THAT(ways.status().message(),
              HasSubstr("of A100-80GB:8 the other 7 would bill and do nothing"));
  EXPECT_THAT(HintOf(ways.status()), HasSubstr("processes: gpus"));
  EXPECT_EQ(ExitCodeOf(ways.status()), kExitUsage);
  spec.processes = 4;
  EXPECT_THAT(FindTrainerWays(spec, false, paths).status().message(),
              HasSubstr("its 4 processes use 4 GPUs; of A100-80GB:8 the other 4 would"));
  // Each process uses one.
  for (const int processes : {8, kOneForEachGpu}) {
    spec.processes = processes;
    EXPECT_OK(FindTrainerWays(spec, false, paths));
  }
}

TEST(FindTrainerWaysTest, TakesWhatIsThere) {
  BundlePaths paths;
  // Nothing.
  for (const bool local : {true, false}) {
    for (const TrainerBuild build :
         {TrainerBuild::kAuto, TrainerBuild::kNode, TrainerBuild::kKit}) {
      EXPECT_FALSE(FindTrainerWays(Spec(build), local, paths).ok());
    }
  }
  // Sources: everywhere but for a kit.
  paths.trainer_sources = "/src";
  for (const bool local : {true, false}) {
    const auto ways = FindTrainerWays(Spec(TrainerBuild::kAuto), local, paths);
    ASSERT_OK(ways);
    EXPECT_EQ(FirstStart(*ways).way, Way::kSources);
    EXPECT_OK(FindTrainerWays(Spec(TrainerBuild::kNode), local, paths));
    EXPECT_FALSE(FindTrainerWays(Spec(TrainerBuild::kKit), local, paths).ok());
  }
  // The program beside gpuctl runs here, unless the node's torch is asked for.
  paths.trainer = "/bin/gpuctl-trainer";
  auto ways = FindTrainerWays(Spec(TrainerBuild::kAuto), true, paths);
  ASSERT_OK(ways);
  EXPECT_EQ(FirstStart(*ways).way, Way::kProgram);
  EXPECT_EQ(FirstStart(*ways).path, "/bin/gpuctl-trainer");
  ways = FindTrainerWays(Spec(TrainerBuild::kNode), true, paths);
  ASSERT_OK(ways);
  EXPECT_EQ(FirstStart(*ways).way, Way::kSources);
}

}  // namespace
}  // namespace gpuctl
