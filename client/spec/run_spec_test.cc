#include "client/spec/run_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/words/foreign_words.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string ErrorOf(absl::string_view yaml) {
  const absl::StatusOr<RunSpec> spec = ParseRunSpec(yaml, "run.yaml");
  return spec.ok() ? "" : std::string(spec.status().message());
}

TEST(ParseRunSpecTest, ReadsEveryField) {
  const auto spec = ParseRunSpec(R"(
name: qwen-math-sft
resources:
  gpu: [H100:1, A100-80GB:2]
  provider: ssh
  disk: 100GB
workdir: src
env: { WANDB_MODE: offline, N: 3 }
secrets: [HF_TOKEN]
run: |
  echo hello
  python train.py
checkpoints: outputs/checkpoint-*
artifacts: [outputs/**/*.json, logs]
ports: [6006, 8888:9999]
limits: { time: 6h }
grace: 90s
output_limit: 2GiB
retry: { max: 3, on: [lost, "exit:75"], backoff: 5s }
)",
                                 "run.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name, "qwen-math-sft");
  ASSERT_EQ(spec->gpu.size(), 2u);
  EXPECT_EQ(spec->gpu[1].name, "A100-80GB");
  EXPECT_EQ(spec->gpu[1].count, 2);
  EXPECT_THAT(spec->providers, ElementsAre("ssh"));
  EXPECT_FALSE(NamesMarket(*spec));
  EXPECT_EQ(spec->disk_bytes, 100'000'000'000);
  EXPECT_EQ(spec->workdir, "src");
  EXPECT_THAT(spec->env, ElementsAre(Pair("N", "3"), Pair("WANDB_MODE", "offline")));
  EXPECT_THAT(spec->secrets, ElementsAre("HF_TOKEN"));
  EXPECT_EQ(spec->run, "echo hello\npython train.py\n");
  EXPECT_THAT(spec->checkpoints, ElementsAre("outputs/checkpoint-*"));
  EXPECT_THAT(spec->artifacts, ElementsAre("outputs/**/*.json", "logs"));
  EXPECT_THAT(spec->ports, ElementsAre("6006", "8888:9999"));
  EXPECT_EQ(spec->time_limit, absl::Hours(6));
  EXPECT_EQ(spec->grace, absl::Seconds(90));
  EXPECT_EQ(spec->output_limit_bytes, int64_t{2} << 30);
  EXPECT_EQ(spec->max_retries, 3);
  EXPECT_THAT(spec->retry_on, ElementsAre("lost", "exit:75"));
  EXPECT_EQ(spec->retry_backoff, absl::Seconds(5));
  EXPECT_TRUE(CheckRunSpec(*spec).ok()) << CheckRunSpec(*spec);
}

TEST(ParseRunSpecTest, ReadsTheNumberOfProcesses) {
  EXPECT_EQ(ParseRunSpec("run: x", "run.yaml")->processes, 0);
  EXPECT_EQ(ParseRunSpec("run: x\nprocesses: 8", "run.yaml")->processes, 8);
  EXPECT_EQ(ParseRunSpec("run: x\nprocesses: gpus", "run.yaml")->processes, kOneForEachGpu);
  for (const char* wrong : {"0", "-1", "513", "all", "8x", "[1]"}) {
    EXPECT_THAT(ErrorOf(absl::StrCat("run: x\nprocesses: ", wrong)), HasSubstr("processes"))
        << wrong;
  }
  auto none = ParseRunSpec("run: x\nprocesses: gpus\nresources: {gpus: 0}", "run.yaml");
  ASSERT_TRUE(none.ok());
  EXPECT_THAT(CheckRunSpec(*none).message(), HasSubstr("processes: gpus"));
  none->processes = 2;
  EXPECT_TRUE(CheckRunSpec(*none).ok());
}

TEST(ParseRunSpecTest, RefusesWhatIsNoPort) {
  EXPECT_EQ(ErrorOf("run: x\nports: [6006, high]\n"),
            "run.yaml:2:8: \"high\" is no port; write PORT or PORT:LOCALPORT, each 1 to 65535");
  EXPECT_THAT(ErrorOf("ports: [1:8080, 2:8080]"), HasSubstr("cannot lead to two ports"));
}

TEST(ParseRunSpecTest, TurnsTheTrainerIntoJson) {
  const auto spec = ParseRunSpec(R"(
trainer:
  model: {layers: 2, norm_eps: 1e-5}
  data: {paths: [a.txt, b.txt]}
  train: {steps: 200}
  sample: {prompt: "007"}
)",
                                 "run.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(nlohmann::json::parse(spec->trainer_json),
            nlohmann::json::parse(R"({"data":{"paths":["a.txt","b.txt"]},"model":{"layers":2,
              "norm_eps":1e-5},"sample":{"prompt":"007"},"train":{"steps":200}})"));
  EXPECT_TRUE(CheckRunSpec(*spec).ok()) << CheckRunSpec(*spec);
}

TEST(ParseRunSpecTest, TakesTheTrainersBuildOutOfItsSettings) {
  const auto spec = ParseRunSpec("trainer: {build: kit, data: {paths: a}}", "run.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->trainer_build, TrainerBuild::kKit);
  EXPECT_EQ(spec->trainer_json, R"({"data":{"paths":"a"}})");
  EXPECT_EQ(ErrorOf("trainer:\n  build: there\n"),
            "run.yaml:2:10: trainer: build: \"there\" is none of auto, node, kit");
  EXPECT_THAT(ErrorOf("trainer: {build: [kit]}"), HasSubstr("is none of auto, node, kit"));
}

TEST(ParseRunSpecTest, PointsAtSettingsThatTheTrainerWouldRefuse) {
  EXPECT_EQ(ErrorOf("trainer:\n  modle: {layers: 2}\n"),
            "run.yaml:2:3: trainer: unknown key \"modle\"; did you mean \"model\"?");
  EXPECT_EQ(ErrorOf("trainer:\n  train:\n    steps: 5\n    devcie: cpu\n"),
            "run.yaml:4:5: trainer: unknown key \"train.devcie\"; did you mean \"device\"?");
  EXPECT_THAT(ErrorOf("trainer: {train: {steps: 0}}"),
              HasSubstr("run.yaml:1:19: trainer: train.steps: 0 is outside 1 .. "));
  EXPECT_THAT(ErrorOf("trainer: {train: {steps: many}}"),
              HasSubstr("run.yaml:1:19: trainer: train.steps: must be a whole number"));
  EXPECT_THAT(ErrorOf("trainer: {train: {device: gpu}}"), HasSubstr("is none of auto, cpu, cuda"));
  EXPECT_EQ(ErrorOf("trainer:\n  data:\n    paths: a\n    mask: most\n"),
            "run.yaml:4:5: trainer: data.mask: \"most\" is none of assistant, last, all");
  EXPECT_THAT(ErrorOf("trainer: {data: {template: [a]}}"),
              HasSubstr("run.yaml:1:18: trainer: data.template: must be text, not [\"a\"]"));
  EXPECT_THAT(ErrorOf("trainer: {model: }"), HasSubstr("model: must be an object, not null"));
  // JSON cannot hold bytes that are not UTF-8.
  EXPECT_THAT(ErrorOf("trainer: {train: {steps: \"\xff\"}}"),
              HasSubstr("run.yaml:1:19: trainer: "));
}

TEST(ParseRunSpecTest, PointsAtUnknownFields) {
  EXPECT_EQ(ErrorOf("nmae: x\nrun: echo"),
            "run.yaml:1:1: unknown field \"nmae\" (did you mean \"name\"?)");
  EXPECT_EQ(ErrorOf("run: echo\nresources:\n  gpux: H100\n"),
            "run.yaml:3:3: unknown field \"resources.gpux\" (did you mean \"gpu\"?)");
  EXPECT_EQ(ErrorOf("retry: {maximum: 3}"),
            "run.yaml:1:9: unknown field \"retry.maximum\" (did "
            "you mean \"max\"?)");
}

TEST(ParseRunSpecTest, PointsAtWrongTypes) {
  EXPECT_EQ(ErrorOf("name: [a, b]"), "run.yaml:1:7: name must be a single value, not a list");
  EXPECT_EQ(ErrorOf("env: offline"),
            "run.yaml:1:6: env must be a mapping of names to values, not a single value");
  EXPECT_THAT(ErrorOf("limits: {time: 6}"),
              HasSubstr("run.yaml:1:16: limits.time: \"6\" has no unit"));
  EXPECT_THAT(ErrorOf("retry: {max: many}"), HasSubstr("retry.max must be a whole number"));
  EXPECT_THAT(ErrorOf("retry: {max: -1}"), HasSubstr("retry.max must be 0 to 1000"));
  EXPECT_THAT(ErrorOf("- a\n- b\n"), HasSubstr("the run file must be a mapping"));
  EXPECT_THAT(ErrorOf("name: a\nname: b\n"),
              HasSubstr("run.yaml:2:1: field \"name\" is given twice"));
  EXPECT_THAT(ErrorOf("env: {\"A=B\": c}"), HasSubstr("cannot name a variable"));
  EXPECT_THAT(ErrorOf("trainer: 5"), HasSubstr("trainer must be a mapping"));
}

TEST(ParseRunSpecTest, ReadsWhatIsRented) {
  const auto spec = ParseRunSpec(R"(
resources:
  gpu: 24GB..80GB:2
  provider: [vast, runpod]
  max_price: 3.50
  spot: true
  disk: 100GB
  region: [US, EU]
  image: runpod/pytorch:1.0
run: echo
)",
                                 "run.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->providers, ElementsAre("vast", "runpod"));
  EXPECT_EQ(spec->max_price_usd_per_hour, 3.5);
  EXPECT_TRUE(spec->spot);
  EXPECT_EQ(spec->disk_bytes, 100'000'000'000);
  EXPECT_THAT(spec->regions, ElementsAre("US", "EU"));
  EXPECT_EQ(spec->image, "runpod/pytorch:1.0");
  EXPECT_TRUE(NamesMarket(*spec));
  EXPECT_TRUE(CheckRunSpec(*spec).ok()) << CheckRunSpec(*spec);
}

TEST(ParseRunSpecTest, ReadsARegistry) {
  const auto spec = ParseRunSpec(R"(
resources:
  image: ghcr.io/ada/tool:1
  registry: {server: GHCR.io, username: ada, password: GHCR_TOKEN}
run: echo
)",
                                 "run.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->registry.server, "ghcr.io");
  EXPECT_EQ(spec->registry.username, "ada");
  EXPECT_EQ(spec->registry.password, "GHCR_TOKEN");
  EXPECT_TRUE(CheckRunSpec(*spec).ok()) << CheckRunSpec(*spec);
  EXPECT_FALSE(CheckNothingRented(*spec).ok());
  EXPECT_THAT(ErrorOf("resources:\n  registry: {user: ada}"),
              AllOf(HasSubstr("run.yaml:2:"), HasSubstr("\"resources.registry.user\""),
                    HasSubstr("did you mean \"username\"?")));
  EXPECT_THAT(ErrorOf("resources: {registri: {}}"), HasSubstr("did you mean \"registry\"?"));
  EXPECT_THAT(ErrorOf("resources: {registry: {username: ada}}"), HasSubstr("name of a secret"));
  EXPECT_THAT(ErrorOf("resources: {registry: {username: ada, password: s3cret-word}}"),
              AllOf(HasSubstr("run.yaml:1:"), HasSubstr("resources.registry: password is the name"),
                    Not(HasSubstr("s3cret"))));
  EXPECT_THAT(ErrorOf("resources: {registry: ada}"), HasSubstr("resources.registry"));
}

TEST(CheckRunSpecTest, ARegistryNeedsAnImageOfIts) {
  RunSpec spec;
  spec.run = "echo";
  spec.registry = {"ghcr.io", "ada", "TOKEN"};
  EXPECT_THAT(CheckRunSpec(spec).message(), HasSubstr("there is no image"));
  EXPECT_THAT(CheckNothingRented(spec).message(), HasSubstr("resources.registry"));
  spec.image = "ubuntu:22.04";
  EXPECT_THAT(CheckRunSpec(spec).message(), HasSubstr("comes from docker.io"));
  spec.image = "ghcr.io/ada/tool";
  EXPECT_TRUE(CheckRunSpec(spec).ok());
}

TEST(ParseRunSpecTest, ReadsAVolume) {
  const auto volume = [](const std::string& text) {
    const auto spec = ParseRunSpec("resources: {volume: " + text + "}\nrun: echo", "run.yaml");
    EXPECT_TRUE(spec.ok()) << spec.status();
    EXPECT_FALSE(CheckNothingRented(*spec).ok());
    return spec->volume.name + " at " + spec->volume.path;
  };
  EXPECT_EQ(volume("sets"), "sets at ");
  EXPECT_EQ(volume("{name: sets, path: /data/sets}"), "sets at /data/sets");
  EXPECT_EQ(volume("{id: 4711}"), "4711 at ");
  EXPECT_THAT(ErrorOf("resources: {volume: {name: a, id: b}}"), HasSubstr("its name or its id"));
  EXPECT_THAT(ErrorOf("resources: {volume: {path: /data}}"), HasSubstr("no volume is named"));
  EXPECT_THAT(ErrorOf("resources: {volume: {name: a, size: 5}}"),
              HasSubstr("unknown field \"resources.volume.size\""));
  for (const char* path : {"data", "/", "/a/../b", "\"/a b\"", "\"/a'b\"", "/a//b"}) {
    EXPECT_THAT(ErrorOf(std::string("resources: {volume: {name: a, path: ") + path + "}}"),
                HasSubstr("is no path to mount it at"))
        << path;
  }
  const auto flag = ParseVolumeRequest("sets:/data/sets");
  ASSERT_TRUE(flag.ok());
  EXPECT_EQ(flag->name, "sets");
  EXPECT_EQ(flag->path, "/data/sets");
  EXPECT_EQ(ParseVolumeRequest("a:b")->name, "a:b");
  EXPECT_FALSE(ParseVolumeRequest(":/data").ok());
}

TEST(ParseRunSpecTest, ReadsWhatARunAsksOfAScheduler) {
  auto spec = ParseRunSpec(
      "resources: {provider: slurm, slurm: {partition: gpu, account: lab, qos: high,\n"
      "  constraint: nvlink, time: 12h, flags: [--mem=64G, -x, n7]}}\nrun: \"true\"",
      "run.yaml");
  EXPECT_THAT(spec.status().message(), HasSubstr("\"n7\" does not begin with -"));
  spec = ParseRunSpec(
      "resources: {provider: slurm, slurm: {partition: gpu, account: lab, qos: high,\n"
      "  constraint: nvlink, time: 12h, flags: [--mem=64G, -xn7]}}\nrun: \"true\"",
      "run.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->slurm.partition, "gpu");
  EXPECT_EQ(spec->slurm.account, "lab");
  EXPECT_EQ(spec->slurm.qos, "high");
  EXPECT_EQ(spec->slurm.constraint, "nvlink");
  EXPECT_EQ(spec->slurm.time, absl::Hours(12));
  EXPECT_THAT(spec->slurm.flags, ElementsAre("--mem=64G", "-xn7"));
  EXPECT_TRUE(CheckRunSpec(*spec).ok());
  spec->providers = {"slurm", "vast"};
  EXPECT_THAT(CheckRunSpec(*spec).message(), HasSubstr("resources.slurm is for provider slurm"));
  EXPECT_THAT(CheckNothingRented(*spec).message(), HasSubstr("resources.slurm"));
  // By these gpuctl knows its own jobs.
  for (const char* own : {"--job-name=x", "--job=x", "-Jx", "--array=0-3", "-a", "--wrap=true",
                          "--nodes=2", "-N2", "--parsable"}) {
    EXPECT_THAT(ErrorOf(std::string("resources: {slurm: {flags: [\"") + own + "\"]}}"),
                HasSubstr("is gpuctl's own"))
        << own;
  }
  EXPECT_THAT(ErrorOf("resources: {slurm: {account: --wrap=true}}"),
              HasSubstr("does not begin with -"));
  EXPECT_THAT(ErrorOf("resources: {slurm: {partitoin: gpu}}"), HasSubstr("partition"));
}

TEST(ParseRunSpecTest, PointsAtWrongResources) {
  EXPECT_EQ(ErrorOf("resources: {gpu: H100,\n  max_price: cheap}"),
            "run.yaml:2:14: resources.max_price: \"cheap\" is no price; write US dollars, like "
            "3.50");
  EXPECT_EQ(ErrorOf("resources: {spot: maybe}"),
            "run.yaml:1:19: resources.spot must be true or false, not \"maybe\"");
  EXPECT_THAT(ErrorOf("resources: {provider: [vast, rumpod]}"),
              HasSubstr("run.yaml:1:30: unknown provider \"rumpod\" (did you mean \"runpod\"?)"));
  EXPECT_THAT(ErrorOf("resources: {provider: [vast, local]}"), HasSubstr("stands alone"));
  EXPECT_THAT(ErrorOf("resources: {provider: [vast, vast]}"), HasSubstr("named twice"));
  EXPECT_THAT(ErrorOf("resources: {regions: US}"), HasSubstr("did you mean \"region\"?"));
  EXPECT_THAT(ErrorOf("resources: {max_price: 0}"), HasSubstr("is no price"));
}

TEST(ParseRunSpecTest, ReadsTheLimitsOfARentedMachine) {
  const auto spec = ParseRunSpec(
      "run: ./train.sh\nlimits: {cost: $20.50, idle: 5m, salvage: 12h, lease: 2d}", "run.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->cost_limit_usd, 20.5);
  EXPECT_EQ(spec->idle_limit, absl::Minutes(5));
  EXPECT_EQ(spec->salvage, absl::Hours(12));
  EXPECT_EQ(spec->contact_limit, absl::Hours(48));
  EXPECT_THAT(ErrorOf("limits: {cost: free}"), HasSubstr("limits.cost: \"free\" is no price"));
}

TEST(CheckNothingRentedTest, NamesTheField) {
  RunSpec spec;
  EXPECT_TRUE(CheckNothingRented(spec).ok());
  spec.cost_limit_usd = 5;
  EXPECT_THAT(std::string(CheckNothingRented(spec).message()), HasSubstr("limits.cost is for"));
  spec.regions = {"US"};
  EXPECT_THAT(std::string(CheckNothingRented(spec).message()), HasSubstr("resources.region"));
  spec.max_price_usd_per_hour = 2;
  EXPECT_THAT(std::string(CheckNothingRented(spec).message()), HasSubstr("resources.max_price"));
}

TEST(ParseRunSpecTest, RefusesWhatItCannotHonour) {
  EXPECT_THAT(ErrorOf("setup: [uv, sync]"), HasSubstr("setup"));
  EXPECT_THAT(ErrorOf("every: 0 25 * * *"), HasSubstr("hour"));
  EXPECT_THAT(ErrorOf("resources: {provider: locla}"), HasSubstr("did you mean \"local\"?"));
  EXPECT_THAT(ErrorOf("resources: {gpu: [H100, H20O]}"),
              HasSubstr("run.yaml:1:25: unknown GPU \"H20O\" (did you mean \"H200\"?)"));
}

TEST(ParseRunSpecTest, SurvivesBrokenYaml) {
  EXPECT_THAT(ErrorOf("run: [a"), HasSubstr("run.yaml:"));
  EXPECT_THAT(ErrorOf("run: 'a"), HasSubstr("run.yaml:"));
  EXPECT_THAT(ErrorOf("\t- a"), HasSubstr("run.yaml:"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("the run file is empty"));
  EXPECT_THAT(ErrorOf("run: a\n---\nrun: b\n"), HasSubstr("several documents"));
  EXPECT_THAT(ErrorOf("trainer: &a {b: *a}"), HasSubstr("nested too deeply"));
  std::string bomb = "trainer:\n  a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "  a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last;
    for (int j = 0; j < 9; ++j) bomb += "," + last;
    bomb += "]\n";
  }
  EXPECT_THAT(ErrorOf(bomb), HasSubstr("too many values"));
}

TEST(CheckRunSpecTest, WantsExactlyOneThingToRun) {
  RunSpec spec;
  EXPECT_THAT(CheckRunSpec(spec).message(), HasSubstr("nothing to run"));
  spec.run = "echo";
  EXPECT_TRUE(CheckRunSpec(spec).ok());
  spec.command = {"echo"};
  EXPECT_THAT(CheckRunSpec(spec).message(), HasSubstr("exclude each other"));
}

TEST(CheckRunSpecTest, ChecksTheTrainersSettingsTogether) {
  // Half of the settings in the run file, half in flags.
  auto spec = ParseRunSpec("trainer: {model: {heads: 5}, data: {paths: a}}", "run.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(CheckRunSpec(*spec).message(), HasSubstr("model.heads must divide model.d_model"));
  EXPECT_TRUE(SetTrainerOption("model.d_model=320", *spec).ok());
  EXPECT_TRUE(SetTrainerOption("model.kv_heads=1", *spec).ok());
  EXPECT_TRUE(CheckRunSpec(*spec).ok()) << CheckRunSpec(*spec);
  EXPECT_TRUE(SetTrainerOption("train.devcie=cpu", *spec).ok());
  EXPECT_EQ(CheckRunSpec(*spec).message(),
            "trainer: unknown key \"train.devcie\"; did you mean \"device\"?");
  spec = ParseRunSpec("trainer: {}", "run.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(CheckRunSpec(*spec).message(), HasSubstr("data.paths is empty"));
}

TEST(CheckRunSpecTest, ChecksNamesConditionsAndSecrets) {
  RunSpec spec;
  spec.run = "echo";
  for (const char* name : {"../etc", "-x", "a b", "a/b", "ü"}) {
    spec.name = name;
    EXPECT_FALSE(CheckRunSpec(spec).ok()) << name;
  }
  spec.name = "amber-fox-3";
  spec.retry_on = {"lsot"};
  EXPECT_THAT(CheckRunSpec(spec).message(), HasSubstr("did you mean \"lost\"?"));
  spec.retry_on = {"preempted"};
  EXPECT_TRUE(CheckRunSpec(spec).ok());
  spec.retry_on = {"exit:300"};
  EXPECT_FALSE(CheckRunSpec(spec).ok());
  spec.retry_on = {"exit:75", "failed", "lost"};
  EXPECT_TRUE(CheckRunSpec(spec).ok());
  spec.secrets = {"HF_TOKEN=abc"};
  EXPECT_THAT(CheckRunSpec(spec).message(), HasSubstr("never values"));
}

TEST(RunSpecFlagsTest, ChangeSingleSettings) {
  RunSpec spec;
  EXPECT_TRUE(AddEnvironment("A=b=c", spec).ok());
  EXPECT_EQ(spec.env["A"], "b=c");
  EXPECT_FALSE(AddEnvironment("A", spec).ok());
  EXPECT_FALSE(AddEnvironment("=x", spec).ok());
  EXPECT_FALSE(AddEnvironment("GPUCTL_RUN_ID=x", spec).ok());
  EXPECT_TRUE(AddEnvironment("GPUCTL_TORCH=/opt/torch", spec).ok());
  EXPECT_FALSE(AddEnvironment("GPUCTL_TRAINER_CONFIG={}", spec).ok());
  EXPECT_TRUE(SetTrainerOption("build=node", spec).ok());
  EXPECT_EQ(spec.trainer_build, TrainerBuild::kNode);
  EXPECT_EQ(spec.trainer_json, "");
  EXPECT_THAT(SetTrainerOption("build=there", spec).message(),
              HasSubstr("build: \"there\" is none of auto, node, kit"));
  EXPECT_TRUE(SetTrainerOption("train.steps=50", spec).ok());
  EXPECT_TRUE(SetTrainerOption("data.paths=[a, b]", spec).ok());
  EXPECT_EQ(nlohmann::json::parse(spec.trainer_json),
            nlohmann::json::parse(R"({"train":{"steps":50},"data":{"paths":["a","b"]}})"));
  EXPECT_TRUE(SetTrainerOption("a.yes=true", spec).ok());
  EXPECT_TRUE(SetTrainerOption("a.nothing=~", spec).ok());
  EXPECT_EQ(nlohmann::json::parse(spec.trainer_json)["a"],
            nlohmann::json::parse(R"({"yes":true,"nothing":null})"));
  EXPECT_FALSE(SetTrainerOption("train.steps", spec).ok());
  EXPECT_FALSE(SetTrainerOption(".=1", spec).ok());
  EXPECT_FALSE(SetTrainerOption("a=[", spec).ok());
}

std::string ExcerptOfError(absl::string_view yaml) {
  const absl::StatusOr<RunSpec> spec = ParseRunSpec(yaml, "run.yaml");
  const std::optional<Excerpt> excerpt = ExcerptOf(spec.status());
  if (!excerpt.has_value()) return "";
  return absl::StrCat(excerpt->line, ":", excerpt->column, ":", excerpt->text);
}

TEST(ParseRunSpecTest, ErrorsHaveTheLineThatTheyAreAbout) {
  EXPECT_EQ(ExcerptOfError("name: x\nresources:\n  gpux: H100\n"), "3:3:  gpux: H100");
  EXPECT_EQ(ExcerptOfError("name: x\r\nlimits: {time: 6}\r\n"), "2:16:limits: {time: 6}");
  EXPECT_EQ(ExcerptOfError("run: [a\nb: c"), "2:2:b: c");
  EXPECT_EQ(ExcerptOfError("retry: {on: [lost, never]}"), "1:20:retry: {on: [lost, never]}");
  EXPECT_EQ(ExcerptOfError("name: a b"), "1:7:name: a b");
  EXPECT_EQ(ExcerptOfError(""), "");
}

// A line of the run file goes to logs of CI systems, too.
TEST(ParseRunSpecTest, NoExcerptShowsWhatMayBeASecret) {
  for (const char* yaml :
       {"secrets: [hunter-2]", "env: {A-B: hunter2}", "env:\n  A-B: hunter2",
        "resources: {registry: {username: me, word: hunter2}}",
        "resources:\n  registry:\n    user: hunter2", "gpus: 1 # password hunter2",
        "x: {HF_TOKEN: hunter2}", "env: {API_KEY: hunter2, API_KEY: hunter2}"}) {
    EXPECT_NE(ErrorOf(yaml), "") << yaml;
    EXPECT_EQ(ExcerptOfError(yaml), "") << yaml;
  }
}

TEST(ParseRunSpecTest, GpusAreAShareOfTheMachine) {
  EXPECT_EQ(ParseRunSpec("run: x\nresources: {gpus: 2}", "f")->gpus, 2);
  EXPECT_EQ(ParseRunSpec("run: x\nresources: {gpus: 0}", "f")->gpus, 0);
  EXPECT_FALSE(ParseRunSpec("run: x", "f")->gpus.has_value());
  for (const char* bad : {"H100", "-1", "1025", "1.5", "[1]", "99999999999999999999"}) {
    EXPECT_THAT(ErrorOf(absl::StrCat("resources: {gpus: ", bad, "}")),
                HasSubstr("resources.gpus is the number of GPUs that the run gets"));
  }
  const auto check = [](const char* yaml) {
    return std::string(CheckRunSpec(*ParseRunSpec(yaml, "f")).message());
  };
  EXPECT_EQ(check("run: x\nresources: {gpu: H100:2, gpus: 2}"), "");
  EXPECT_THAT(check("run: x\nresources: {gpu: [H100:4, A100-80GB], gpus: 2}"),
              HasSubstr("2 GPUs of a machine with 1 (gpu: A100-80GB)"));
  EXPECT_THAT(check("run: x\nenv: {CUDA_VISIBLE_DEVICES: 0}\nresources: {gpus: 1}"),
              HasSubstr("take the variable out of env"));
  EXPECT_FALSE(CheckShareOfRented(*ParseRunSpec("run: x\nresources: {gpus: 1}", "f")).ok());
  EXPECT_TRUE(CheckShareOfRented(*ParseRunSpec("run: x\nresources: {gpus: 0}", "f")).ok());
}

TEST(ParseRunSpecTest, WordsOfOtherToolsAreNamedWithOurs) {
  EXPECT_THAT(ErrorOf("resources: {accelerators: A100:8}"),
              HasSubstr("\"resources.accelerators\"; it is resources.gpu here, like gpu: A100"));
  EXPECT_THAT(ErrorOf("resources: {use_spot: true}"), HasSubstr("it is resources.spot here"));
  EXPECT_THAT(ErrorOf("file_mounts: {/data: s3://x}"), HasSubstr("it is data here"));
  EXPECT_THAT(ErrorOf("num_nodes: 2"), HasSubstr("it is resources.nodes here, like nodes: 2"));
  EXPECT_THAT(ErrorOf("gpu: H100"), HasSubstr("it is resources.gpu here"));
  EXPECT_THAT(ErrorOf("resources: {gpux: H100}"), HasSubstr("did you mean \"gpu\""));
}

// Each of our fields that the words name exists, and no word is one of our fields at its place.
TEST(ForeignWordsTest, NameFieldsThatThereAre) {
  const nlohmann::ordered_json schema = RunFileSchema();
  for (const ForeignWord& word : ForeignWords()) {
    EXPECT_FALSE(schema["properties"].contains(word.word)) << word.word;
    if (*word.ours == '\0') continue;
    const nlohmann::ordered_json* at = &schema;
    for (const absl::string_view part : absl::StrSplit(word.ours, '.')) {
      ASSERT_TRUE(at->contains("properties")) << word.ours;
      ASSERT_TRUE((*at)["properties"].contains(std::string(part))) << word.ours;
      at = &(*at)["properties"][std::string(part)];
    }
  }
}

TEST(RunFileSchemaTest, EveryFieldIsDescribed) {
  const nlohmann::ordered_json schema = RunFileSchema();
  EXPECT_TRUE(schema["properties"].contains("setup"));
  EXPECT_EQ(schema["properties"]["retry"]["properties"]["max"]["maximum"], 1000);
  EXPECT_EQ(schema["properties"]["trainer"]["properties"]["train"]["properties"]["steps"]["type"],
            "integer");
  int fields = 0;
  const std::function<void(const nlohmann::ordered_json&)> visit = [&](const auto& object) {
    if (!object.is_object() || !object.contains("properties")) return;
    for (const auto& [name, field] : object["properties"].items()) {
      ++fields;
      if (field.is_boolean()) continue;
      EXPECT_NE(field.value("description", ""), "") << name;
      visit(field);
    }
  };
  for (const auto& [name, field] : schema["properties"].items()) {
    if (name != "trainer") visit({{"properties", {{name, field}}}});
  }
  EXPECT_GT(fields, 30);
}

}  // namespace
}  // namespace gpuctl
