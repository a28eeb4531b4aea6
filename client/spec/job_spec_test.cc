#include "client/spec/job_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/base/exit_codes.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Argv(const gpuctl::v1::JobSpec& job) {
  return {job.argv().begin(), job.argv().end()};
}

TEST(MakeJobSpecTest, RunsCommandsAsTheyAreAndScriptsByBash) {
  NodeTarget local;
  local.provider = "local";
  RunSpec spec;
  spec.command = {"python", "train.py", "--name", "a b"};
  EXPECT_THAT(Argv(*MakeJobSpec(spec, local, {})),
              ElementsAre("python", "train.py", "--name", "a b"));
  EXPECT_EQ(CommandLine(spec), "python train.py --name 'a b'");
  spec.command.clear();
  spec.run = "\n  cd src\n./go\n";
  EXPECT_THAT(Argv(*MakeJobSpec(spec, local, {})),
              ElementsAre("bash", "-eo", "pipefail", "-c", spec.run));
  EXPECT_EQ(CommandLine(spec), "cd src");
}

TEST(MakeJobSpecTest, CarriesLimitsRetriesAndNames) {
  RunSpec spec;
  spec.command = {"true"};
  spec.time_limit = absl::Milliseconds(1500);
  spec.grace = absl::ZeroDuration();
  spec.max_retries = 2;
  spec.retry_on = {"exit:75", "preempted"};
  spec.env = {{"A", "b"}};
  spec.secrets = {"TOKEN"};
  spec.output_limit_bytes = 8 << 20;
  const auto job = MakeJobSpec(spec, NodeTarget{}, {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->limits().time_s(), 2);  // never less than requested
  EXPECT_EQ(job->grace_ms(), 1);         // 0 means the default
  EXPECT_EQ(job->retry().max_retries(), 2);
  // The laptop handles preemption, the node the other conditions.
  ASSERT_EQ(job->retry().on_size(), 2);
  EXPECT_EQ(job->retry().on(0), "exit:75");
  EXPECT_EQ(job->retry().on(1), "preempted");
  EXPECT_EQ(job->output_limit_bytes(), 8 << 20);
  EXPECT_EQ(job->output_segment_bytes(), 1 << 20);  // whole segments are dropped
  EXPECT_EQ(job->env().at("A"), "b");
  EXPECT_EQ(job->secret_names(0), "TOKEN");
}

TEST(MakeJobSpecTest, RefusesWhatNoProgramCanGet) {
  const auto refusal = [](const RunSpec& spec) {
    const absl::Status status = MakeJobSpec(spec, NodeTarget{}, {}).status();
    EXPECT_EQ(ExitCodeOf(status), kExitUsage);
    return std::string(status.message());
  };
  RunSpec spec;
  spec.command = {"echo", "caf\xe9"};
  EXPECT_THAT(refusal(spec), HasSubstr("argument 2 is not UTF-8"));
  spec.command = {"echo", std::string(128 << 10, 'x')};
  EXPECT_THAT(refusal(spec), HasSubstr("argument 2 has 131072 bytes"));
  spec.command = {"echo", std::string((128 << 10) - 1, 'x'), "caf\xc3\xa9"};
  EXPECT_TRUE(MakeJobSpec(spec, NodeTarget{}, {}).ok());
  spec.env = {{"A", std::string((128 << 10) - 2, 'x')}};
  EXPECT_THAT(refusal(spec), HasSubstr("env: A has 131072 bytes"));
  spec.env.clear();
  spec.command.clear();
  spec.run = std::string(200'000, 'x');
  EXPECT_THAT(refusal(spec), HasSubstr("run: has 200000 bytes"));
}

TEST(MakeJobSpecTest, StartsTheTrainerOfThisMachineOrTheOneThatIsSent) {
  RunSpec spec;
  spec.trainer_json = R"({"train":{"steps":2}})";
  using Way = TrainerStart::Way;
  NodeTarget target;
  target.provider = "local";
  const auto job = MakeJobSpec(spec, target, {Way::kProgram, "/bin/gpuctl-trainer"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->argv(3), "/bin/gpuctl-trainer");
  EXPECT_EQ(job->argv_size(), 4);
  EXPECT_EQ(job->env().at("GPUCTL_TRAINER_CONFIG"), spec.trainer_json);
  EXPECT_FALSE(MakeJobSpec(spec, target, {Way::kProgram, ""}).ok());
  target.provider = "ssh";
  auto sent = MakeJobSpec(spec, target, {Way::kKit, "lib/ld-linux-x86-64.so.2"});
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->argv(3), "lib/ld-linux-x86-64.so.2");
  EXPECT_EQ(sent->argv(4), ".gpuctl/trainer-kit");
  EXPECT_THAT(sent->argv(2), HasSubstr("--library-path \"$kit/lib:"));
  EXPECT_EQ(sent->env().at("GPUCTL_TRAINER_CONFIG"), spec.trainer_json);
  EXPECT_FALSE(MakeJobSpec(spec, target, {Way::kKit, ""}).ok());
  // The same job with sources instead.
  SetTrainerStart({Way::kSources, ""}, *sent);
  const auto compiled = MakeJobSpec(spec, target, {Way::kSources, ""});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(sent->SerializeAsString(), compiled->SerializeAsString());
  EXPECT_EQ(sent->argv(3), ".gpuctl/trainer-kit");
  EXPECT_EQ(sent->argv_size(), 4);
  EXPECT_THAT(sent->argv(2), HasSubstr("\"$0/build.sh\" train"));
}

TEST(CheckNodeSatisfiesTest, ComparesGpusAndDisk) {
  gpuctl::v1::HelloReply node;
  node.set_disk_free_bytes(50'000'000'000);
  RunSpec spec;
  EXPECT_TRUE(CheckNodeSatisfies(spec, node, "local").ok());
  spec.gpu = {*ParseGpuRequirement("H100:2"), *ParseGpuRequirement("A100-80GB:1")};
  const absl::Status none = CheckNodeSatisfies(spec, node, "local");
  EXPECT_EQ(none.message(), "local has no GPU; the run asks for H100:2 or A100-80GB:1");
  EXPECT_EQ(ExitCodeOf(none), kExitCapacity);
  for (int i = 0; i < 2; ++i) {
    gpuctl::v1::Gpu& gpu = *node.add_gpus();
    gpu.set_name("NVIDIA H100 80GB HBM3");
    gpu.set_memory_bytes(81'559LL << 20);
    EXPECT_EQ(CheckNodeSatisfies(spec, node, "local").ok(), i == 1);
  }
  spec.disk_bytes = 60'000'000'000;
  EXPECT_THAT(CheckNodeSatisfies(spec, node, "local").message(), HasSubstr("of disk free"));
}

}  // namespace
}  // namespace gpuctl
