// Tests the whole program: resume, signals, exit codes, metrics, generation.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/tests/process.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

// Returns a text with structure, the same on every machine.
std::string SomeText() {
  static const char* kWords[] = {"the ", "job ",   "runs ", "on ",   "a ",      "node ", "and ",
                                 "its ", "files ", "come ", "home ", "again. ", "\n",    "whole "};
  std::string text;
  uint32_t state = 1;
  while (text.size() < 30000) {
    state = state * 1664525 + 1013904223;
    text += kWords[(state >> 24) % 14];
  }
  return text;
}

class RunTest : public testing::Test {
 protected:
  RunTest() {
    WriteFileDurably(data_, SomeText());
    config_ = {{"model",
                {{"layers", 2},
                 {"d_model", 32},
                 {"heads", 4},
                 {"kv_heads", 2},
                 {"ffn", 64},
                 {"context", 64}}},
               {"data", {{"paths", data_}}},
               {"optimizer", {{"lr", 5e-3}, {"warmup_steps", 5}}},
               {"train",
                {{"steps", 20},
                 {"batch", 8},
                 {"micro_batch", 2},
                 {"threads", 2},
                 {"eval_every", 0},
                 {"eval_windows", 8},
                 {"device", "cpu"}}},
               {"checkpoint", {{"every", 10}}}};
  }

  std::vector<std::string> Command(const std::vector<std::string>& more) {
    const std::string path = directory_.path() + "/config.json";
    WriteFileDurably(path, config_.dump());
    std::vector<std::string> command = {TRAINER_PROGRAM, "train", "--config", path};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  // Trains to the end, with metrics in a plain file, and returns its lines.
  std::pair<Ended, std::vector<json>> Train(
      const std::vector<std::string>& more,
      const std::map<std::string, std::string>& more_env = {}) {
    const std::string metrics = directory_.path() + "/metrics.jsonl";
    RemoveTree(metrics);
    std::map<std::string, std::string> environment = {{"GPUCTL_METRICS", metrics}};
    environment.insert(more_env.begin(), more_env.end());
    Ended ended = Process(directory_.path(), Command(more), environment).Wait();
    std::vector<json> lines;
    if (Exists(metrics)) {
      std::ifstream file(metrics);
      for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    }
    return {ended, lines};
  }

  std::string Dir(const std::string& name) const { return directory_.path() + "/" + name; }

  TempDir directory_;
  const std::string data_ = directory_.path() + "/text.txt";
  json config_;
};

std::map<int64_t, std::string> Losses(const std::vector<json>& lines) {
  std::map<int64_t, std::string> losses;
  for (const json& line : lines) {
    if (line["type"] == "step") {
      losses[line["step"]] = line["loss"].dump() + " " + line["grad_norm"].dump();
    }
  }
  return losses;
}

bool IsStep(const json& line, int64_t step) {
  return line["type"] == "step" && line["step"] == step;
}

TEST_F(RunTest, TrainsReportsAndPublishes) {
  config_["sample"] = {{"prompt", "the "}, {"tokens", 8}, {"temperature", 0}};
  const auto [ended, lines] = Train({"--checkpoint-dir", Dir("ckpt")});
  ASSERT_EQ(ended.code, 0) << ended.err;
  std::map<std::string, int> kinds;
  for (const json& line : lines) ++kinds[line["type"]];
  EXPECT_EQ(kinds, (std::map<std::string, int>{
                       {"step", 20}, {"eval", 1}, {"checkpoint", 2}, {"sample", 1}, {"done", 1}}));
  const json& step = lines[0];
  for (const char* key : {"step", "total_steps", "loss", "lr", "grad_norm", "tokens_per_s",
                          "tokens", "memory_bytes", "mfu"}) {
    EXPECT_TRUE(step.contains(key)) << key;
  }
  EXPECT_EQ(step["total_steps"], 20);
  EXPECT_LT(Losses(lines).size(), 21u);
  const json& done = lines.back();
  EXPECT_EQ(done["type"], "done");
  EXPECT_EQ(done["checkpoint"], Dir("ckpt") + "/step-00000020");
  EXPECT_GT(done["bigram_entropy"], 0.5);
  EXPECT_NE(ended.out.find("step 20/20  loss "), std::string::npos);
  const Ended inspected =
      Process(directory_.path(), {TRAINER_PROGRAM, "inspect", Dir("ckpt") + "/step-00000020"})
          .Wait();
  EXPECT_EQ(inspected.code, 0) << inspected.err;
  EXPECT_NE(inspected.out.find("model.layers.1.self_attn.q_proj.weight"), std::string::npos);
}

TEST_F(RunTest, TwoRunsAreTheSameToTheLastByte) {
  const auto [first, first_lines] = Train({"--checkpoint-dir", Dir("a")});
  const auto [second, second_lines] = Train({"--checkpoint-dir", Dir("b")});
  ASSERT_EQ(first.code, 0) << first.err;
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(Losses(first_lines), Losses(second_lines));
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
    EXPECT_EQ(ReadWholeFile(Dir("a") + "/step-00000020" + file),
              ReadWholeFile(Dir("b") + "/step-00000020" + file));
  }
}

// Compares an uninterrupted run with one that is killed some steps after the first checkpoint and
// then resumed. The schedule has 400 steps, so that the run cannot end before the kill.
TEST_F(RunTest, KilledAndResumedEqualsStraightThrough) {
  config_["train"]["steps"] = 400;
  config_["train"]["eval_windows"] = 1;
  const auto [straight, straight_lines] = Train({"--checkpoint-dir", Dir("straight")});
  ASSERT_EQ(straight.code, 0) << straight.err;
  const std::map<int64_t, std::string> expected = Losses(straight_lines);
  ASSERT_EQ(expected.size(), 400u);

  MetricsFifo fifo(Dir("fifo"));
  Process doomed(directory_.path(), Command({"--checkpoint-dir", Dir("killed")}),
                 {{"GPUCTL_METRICS", fifo.path()}});
  ASSERT_EQ(fifo.WaitFor([](const json& line) { return line["type"] == "checkpoint"; })["step"],
            10);
  ASSERT_FALSE(fifo.WaitFor([](const json& line) {
                     return line["type"] == "step" && line["step"].get<int>() > 12 &&
                            line["step"].get<int>() % 10 == 4;
                   })
                   .is_null());
  doomed.Signal(SIGKILL);
  EXPECT_EQ(doomed.Wait().signal, SIGKILL);

  const auto [resumed, resumed_lines] =
      Train({"--checkpoint-dir", Dir("killed"), "--resume", "auto"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(resumed.err, "");
  const std::map<int64_t, std::string> found = Losses(resumed_lines);
  EXPECT_GT(found.begin()->first, 10);
  EXPECT_LT(found.size(), 400u);
  for (const auto& [step, loss] : found) EXPECT_EQ(loss, expected.at(step)) << "step " << step;
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
    EXPECT_EQ(ReadWholeFile(Dir("killed") + "/step-00000400" + file),
              ReadWholeFile(Dir("straight") + "/step-00000400" + file));
  }
}

TEST_F(RunTest, TornNewestCheckpointIsPassedOver) {
  ASSERT_EQ(Train({"--checkpoint-dir", Dir("ckpt")}).first.code, 0);
  const std::string expected = ReadWholeFile(Dir("ckpt") + "/step-00000020/model.safetensors");
  ASSERT_EQ(truncate((Dir("ckpt") + "/step-00000020/model.safetensors").c_str(), 1000), 0);
  const auto [ended, lines] = Train({"--checkpoint-dir", Dir("ckpt"), "--resume", "auto"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("passed over: verify checkpoint"), std::string::npos) << ended.err;
  EXPECT_EQ(Losses(lines).begin()->first, 11);
  EXPECT_EQ(ReadWholeFile(Dir("ckpt") + "/step-00000020/model.safetensors"), expected);
}

TEST_F(RunTest, TermSavesAndLeavesAndResumeGoesOnExactly) {
  config_["train"]["steps"] = 2000;
  config_["checkpoint"]["every"] = 0;
  MetricsFifo fifo(Dir("fifo"));
  Process process(directory_.path(), Command({}),
                  {{"GPUCTL_METRICS", fifo.path()}, {"GPUCTL_CHECKPOINT_DIR", Dir("ckpt")}});
  ASSERT_FALSE(fifo.WaitFor([](const json& line) { return IsStep(line, 5); }).is_null());
  process.Signal(SIGTERM);
  const Ended ended = process.Wait();
  EXPECT_EQ(ended.code, 128 + SIGTERM) << ended.err;
  const std::vector<json> rest = fifo.Rest();
  ASSERT_FALSE(rest.empty());
  EXPECT_EQ(rest.back()["type"], "done");
  EXPECT_EQ(rest.back()["outcome"], "stopped");
  const int64_t step = rest.back()["step"];
  EXPECT_GE(step, 5);
  EXPECT_LT(step, 2000);
  const std::string checkpoint = rest.back()["checkpoint"];
  EXPECT_EQ(checkpoint, Dir("ckpt") + Format("/step-%08lld", static_cast<long long>(step)));

  Process again(directory_.path(), Command({}),
                {{"GPUCTL_METRICS", fifo.path()}, {"GPUCTL_RESUME_FROM", checkpoint}});
  EXPECT_TRUE(
      IsStep(fifo.WaitFor([](const json& line) { return line["type"] == "step"; }), step + 1));
  again.Signal(SIGINT);
  const Ended stopped = again.Wait();
  EXPECT_EQ(stopped.code, 128 + SIGINT)
      << "ended by signal " << stopped.signal << ": " << stopped.err;
}

TEST_F(RunTest, DivergenceStopsBeforeTheStep) {
  config_["optimizer"] = {{"lr", 1e30}, {"warmup_steps", 0}, {"grad_clip", 0}, {"weight_decay", 0}};
  config_["checkpoint"]["every"] = 1;
  config_["checkpoint"]["keep_last"] = 100;
  const auto [ended, lines] = Train({"--checkpoint-dir", Dir("ckpt")});
  ASSERT_EQ(ended.code, 125) << ended.err;
  const int64_t last = static_cast<int64_t>(Losses(lines).size());
  EXPECT_NE(ended.err.find(Format("step %lld: ", static_cast<long long>(last + 1))),
            std::string::npos)
      << ended.err;
  EXPECT_NE(ended.err.find("is not finite"), std::string::npos);
  // The bad step was not taken: the last checkpoint is of the step before, and it is complete.
  EXPECT_FALSE(Exists(Dir("ckpt") + Format("/step-%08lld", static_cast<long long>(last + 1))));
}

TEST_F(RunTest, BadConfigurationsExitWith64AndNameTheKey) {
  const auto expect = [&](const std::vector<std::string>& more, const std::string& part) {
    const Ended ended = Train(more).first;
    EXPECT_EQ(ended.code, 64) << ended.err;
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
  };
  expect({"--set", "train.stepz=3"}, "unknown key \"train.stepz\"; did you mean \"steps\"?");
  expect({"--set", "optimizer.lr=fast"}, "optimizer.lr");
  expect({"--set", "train.device=cuda"}, "cuda");
  expect({"--resume", "auto"}, "no checkpoint directory");
  expect({"--bogus", "1"}, "unknown flag --bogus");
  expect({"--set"}, "--set needs a value");
  const Ended none = Process(directory_.path(), {TRAINER_PROGRAM, "trian"}).Wait();
  EXPECT_EQ(none.code, 64);
  EXPECT_NE(none.err.find("did you mean \"train\"?"), std::string::npos) << none.err;
}

TEST_F(RunTest, BadDataExitsWith65) {
  EXPECT_EQ(Train({"--data", "/nonexistent/text"}).first.code, 65);
  WriteFileDurably(Dir("tiny.txt"), "too little");
  EXPECT_EQ(Train({"--data", Dir("tiny.txt")}).first.code, 65);
  EXPECT_EQ(Train({"--resume", Dir("no-checkpoint")}).first.code, 65);
  const Ended inspected = Process(directory_.path(), {TRAINER_PROGRAM, "inspect", Dir("x")}).Wait();
  EXPECT_EQ(inspected.code, 65);
}

TEST_F(RunTest, UnwritableCheckpointDirectoryExitsWith74) {
  WriteFileDurably(Dir("file"), "");
  const auto [ended, lines] = Train({"--checkpoint-dir", Dir("file") + "/below"});
  EXPECT_EQ(ended.code, 74) << ended.err;
  EXPECT_NE(ended.err.find("write checkpoint"), std::string::npos) << ended.err;
}

TEST_F(RunTest, AnotherRunsCheckpointsAndOtherDataAreRefused) {
  ASSERT_EQ(Train({"--checkpoint-dir", Dir("ckpt")}).first.code, 0);
  const Ended fresh = Train({"--checkpoint-dir", Dir("ckpt")}).first;
  EXPECT_EQ(fresh.code, 64);
  EXPECT_NE(fresh.err.find("--resume auto"), std::string::npos) << fresh.err;
  const Ended model =
      Train({"--checkpoint-dir", Dir("ckpt"), "--resume", "auto", "--set", "model.ffn=96"}).first;
  EXPECT_EQ(model.code, 64);
  EXPECT_NE(model.err.find("model.ffn was 64, is 96"), std::string::npos) << model.err;
  WriteFileDurably(data_, SomeText() + "more");
  const Ended data = Train({"--checkpoint-dir", Dir("ckpt"), "--resume", "auto"}).first;
  EXPECT_EQ(data.code, 65);
  EXPECT_NE(data.err.find("other data"), std::string::npos) << data.err;
}

TEST_F(RunTest, GenerationIsRepeatable) {
  ASSERT_EQ(Train({"--checkpoint-dir", Dir("ckpt")}).first.code, 0);
  const auto generate = [&](const std::string& temperature, const std::string& seed) {
    const Ended ended =
        Process(directory_.path(), {TRAINER_PROGRAM, "generate", "--checkpoint",
                                    Dir("ckpt") + "/step-00000020", "--prompt", "the job ",
                                    "--tokens", "80", "--temperature", temperature, "--seed", seed})
            .Wait();
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  const std::string greedy = generate("0", "1");
  EXPECT_EQ(greedy.rfind("the job ", 0), 0u);
  EXPECT_EQ(greedy.size(), 8u + 80u + 1u);
  EXPECT_EQ(generate("0", "2"), greedy);
  EXPECT_EQ(generate("1.5", "1"), generate("1.5", "1"));
  EXPECT_NE(generate("1.5", "1"), generate("1.5", "2"));
}

TEST_F(RunTest, NobodyReadingTheMetricsIsNoReasonToStop) {
  ASSERT_EQ(mkfifo(Dir("fifo").c_str(), 0600), 0);
  for (const char* path : {"fifo", "missing/fifo"}) {
    const Ended ended =
        Process(directory_.path(), Command({}), {{"GPUCTL_METRICS", Dir(path)}}).Wait();
    EXPECT_EQ(ended.code, 0) << ended.err;
  }
}

TEST_F(RunTest, TrainingBeatsTheBigrams) {
  config_["train"]["steps"] = 300;
  config_["optimizer"]["lr"] = 1e-2;
  config_["train"]["log_every"] = 100;
  const auto [ended, lines] = Train({});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const json& done = lines.back();
  EXPECT_LT(done["held_out_loss"], done["bigram_entropy"]);
}

TEST_F(RunTest, HelpNamesCommandsAndExitCodes) {
  const Ended ended = Process(directory_.path(), {TRAINER_PROGRAM, "--help"}).Wait();
  EXPECT_EQ(ended.code, 0);
  for (const char* part : {"generate", "inspect", "--resume", "125", "optimizer.warmup_steps"}) {
    EXPECT_NE(ended.out.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace gpuctl::trainer
