#include "client/spec/launch_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

TEST(LaunchRecordTest, ComesBackAsItWas) {
  LaunchRecord record;
  auto spec = ParseRunSpec(R"(
name: fine
resources: {gpu: [H100:2, 24GB..80GB:2], gpus: 1, provider: [runpod, vast], max_price: 3.5, on_price_rise: stop, spot: true,
            region: [EU], image: "me/image:1", disk: 50GB,
            slurm: {account: lab, time: 12h, flags: [--mem=64G]},
            registry: {server: docker.io, username: me, password: HUB_TOKEN},
            volume: {name: sets, path: /data/sets}}
env: {A: "1", B: "x y"}
secrets: [HF_TOKEN]
run: |
  python train.py
checkpoints: ["ck-*"]
artifacts: ["out/**"]
ports: [6006, "80:8080"]
limits: {time: 6h, cost: 20, idle: 5m, salvage: 3h, lease: 10h}
grace: 90s
retry: {max: 3, on: [preempted, lost, "exit:75"], backoff: 4s}
stop_if: [loss is nan, "loss > 20"]
plateau: {metric: eval_loss, steps: 50, min_delta: 0.25}
notify: {desktop: true, command: "echo x", webhook: HOOK}
)",
                           "run.yaml");
  ASSERT_OK(spec);
  record.spec = *spec;
  record.spec.data = {{"/data/a", "data"}};
  record.spec.trainer_build = TrainerBuild::kNode;
  record.include = {"x/y"};
  record.leave_out = {"rows.jsonl"};
  record.no_workdir = true;
  record.pull_dir = "/home/me/runs";
  const std::string text = FormatLaunchRecord(record);
  const auto back = ParseLaunchRecord(text);
  ASSERT_OK(back);
  EXPECT_EQ(FormatLaunchRecord(*back), text);
  EXPECT_EQ(back->spec.name, "fine");
  ASSERT_EQ(back->spec.gpu.size(), 2u);
  EXPECT_EQ(back->spec.gpu[0].name, spec->gpu[0].name);
  EXPECT_EQ(back->spec.gpu[0].count, 2);
  EXPECT_EQ(back->spec.gpu[1].max_memory_bytes, spec->gpu[1].max_memory_bytes);
  EXPECT_EQ(back->spec.gpus, 1);
  EXPECT_EQ(back->spec.providers, spec->providers);
  EXPECT_EQ(back->spec.max_price_usd_per_hour, 3.5);
  EXPECT_TRUE(back->spec.spot);
  EXPECT_EQ(back->spec.volume.name, "sets");
  EXPECT_EQ(back->spec.volume.path, "/data/sets");
  EXPECT_EQ(back->spec.image, "me/image:1");
  EXPECT_EQ(back->spec.registry.server, "docker.io");
  EXPECT_EQ(back->spec.registry.username, "me");
  EXPECT_EQ(back->spec.registry.password, "HUB_TOKEN");
  EXPECT_EQ(back->spec.slurm.account, "lab");
  EXPECT_EQ(back->spec.slurm.time, absl::Hours(12));
  EXPECT_EQ(back->spec.slurm.flags, spec->slurm.flags);
  EXPECT_EQ(back->spec.env, spec->env);
  EXPECT_EQ(back->spec.secrets, spec->secrets);
  EXPECT_EQ(back->spec.ports, (std::vector<std::string>{"6006", "80:8080"}));
  EXPECT_EQ(back->spec.run, spec->run);
  EXPECT_EQ(back->spec.time_limit, absl::Hours(6));
  EXPECT_EQ(back->spec.cost_limit_usd, 20);
  EXPECT_EQ(back->spec.contact_limit, absl::Hours(10));
  EXPECT_EQ(back->spec.grace, absl::Seconds(90));
  EXPECT_EQ(back->spec.max_retries, 3);
  EXPECT_EQ(back->spec.retry_on, spec->retry_on);
  EXPECT_EQ(back->spec.retry_backoff, absl::Seconds(4));
  EXPECT_EQ(back->spec.stop_if, spec->stop_if);
  ASSERT_EQ(back->spec.plateaus.size(), 1U);
  EXPECT_EQ(back->spec.plateaus[0].metric, "eval_loss");
  EXPECT_EQ(back->spec.plateaus[0].steps, 50);
  EXPECT_EQ(back->spec.plateaus[0].min_delta, 0.25);
  EXPECT_TRUE(back->spec.notify.given && back->spec.notify.desktop);
  EXPECT_EQ(back->spec.notify.command, "echo x");
  EXPECT_EQ(back->spec.notify.webhook, "HOOK");
  EXPECT_EQ(back->spec.data, record.spec.data);
  EXPECT_EQ(back->include, record.include);
  EXPECT_EQ(back->leave_out, record.leave_out);
  EXPECT_EQ(back->spec.on_price_rise, "stop");
  EXPECT_EQ(back->spec.trainer_build, TrainerBuild::kNode);
  EXPECT_EQ(back->pull_dir, "/home/me/runs");
  EXPECT_TRUE(back->no_workdir);
}

TEST(LaunchRecordTest, TakesNothingElse) {
  const std::string good = FormatLaunchRecord({});
  ASSERT_OK(ParseLaunchRecord(good));
  EXPECT_TRUE(ParseLaunchRecord(good)->spec.registry.empty());
  EXPECT_FALSE(ParseLaunchRecord(good)->spec.notify.given);
  for (const char* registry : {"7", "{}", "{\"username\":\"me\"}"}) {
    std::string bad = good;
    bad.replace(bad.find("\"spec\":{"), 8, std::string("\"spec\":{\"registry\":") + registry + ",");
    EXPECT_FALSE(ParseLaunchRecord(bad).ok()) << bad;
  }
  for (const std::string& bad :
       {std::string(), std::string("[]"), std::string("{\"spec\":{}}"), good.substr(0, 50)}) {
    EXPECT_FALSE(ParseLaunchRecord(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace gpuctl
