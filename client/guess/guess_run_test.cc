// Run files guessed from directories as users have them.
#include "client/guess/guess_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <string>

#include "absl/strings/ascii.h"
#include "client/guess/python_script.h"
#include "client/spec/run_spec.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kPlain[] = "import torch\nif __name__ == '__main__':\n    pass\n";

GuessedRun GuessFor(const std::map<std::string, std::string>& files) {
  const TempDir temp;
  const std::string dir = JoinPath(temp.path(), "my project_1");
  for (const auto& [name, text] : files) {
    EXPECT_OK(MakeDirectories(DirName(JoinPath(dir, name))));
    EXPECT_OK(WriteFileAtomic(JoinPath(dir, name), text));
  }
  EXPECT_OK(MakeDirectories(dir));
  const auto run = GuessRun(dir);
  EXPECT_OK(run);
  // What is written must be a run file.
  const auto spec = ParseRunSpec(FormatRunFile(*run, "/s p/ä.json"), "run.yaml");
  EXPECT_OK(spec);
  if (!spec.ok()) return *run;
  EXPECT_OK(CheckRunSpec(*spec));
  EXPECT_EQ(spec->checkpoints, run->checkpoints);
  EXPECT_EQ(absl::StripAsciiWhitespace(spec->setup), absl::StripAsciiWhitespace(run->setup));
  return *run;
}

TEST(GuessRun, TakesTheEnvironmentThatIsThere) {
  EXPECT_EQ(GuessFor({{"train.py", kPlain}}).run, "python3 train.py");
  EXPECT_EQ(GuessFor({{"train.py", kPlain}, {"uv.lock", ""}}).run, "uv run python train.py");
  EXPECT_EQ(GuessFor({{"train.py", kPlain}, {"pyproject.toml", "[project]\nname='x'\n"}}).run,
            "uv run python train.py");
  EXPECT_EQ(GuessFor({{"train.py", kPlain}, {"pyproject.toml", "[tool.black]\n"}}).run,
            "python3 train.py");
  const GuessedRun pip = GuessFor({{"train.py", kPlain}, {"requirements.txt", "torch\n"}});
  EXPECT_EQ(pip.setup,
            "python3 -m venv --system-site-packages \"$GPUCTL_ENV_DIR\"\n"
            "\"$GPUCTL_ENV_DIR/bin/pip\" install -r requirements.txt\n");
  EXPECT_EQ(pip.run, "python train.py");
  EXPECT_THAT(GuessFor({{"train.py", kPlain},
                        {"requirements-gpu.txt", "torch\n"},
                        {"requirements-dev.txt", "pytest\n"}})
                  .setup,
              HasSubstr("install -r requirements-gpu.txt\n"));
  const GuessedRun conda = GuessFor({{"train.py", kPlain}, {"environment.yml", ""}});
  EXPECT_EQ(conda.setup, "conda env create -y -f environment.yml -p \"$GPUCTL_ENV_DIR\"\n");
  EXPECT_EQ(conda.run, "conda run --no-capture-output -p \"$GPUCTL_ENV_DIR\" python train.py");
  EXPECT_EQ(GuessFor({{"train.py", kPlain}, {"uv.lock", ""}}).setup, "");
  EXPECT_EQ(GuessFor({{"train.py",
                       std::string("# /// script\n# dependencies = ['torch']\n# ///\n") + kPlain},
                      {"uv.lock", ""}})
                .run,
            "uv run train.py");
}

TEST(GuessRun, TakesTheLauncherThatTheScriptWants) {
  EXPECT_EQ(GuessFor({{"train.py", "from accelerate import Accelerator\n"}, {"uv.lock", ""}}).run,
            "uv run accelerate launch train.py");
  EXPECT_EQ(GuessFor({{"train.py",
                       "import torch.distributed as dist\n"
                       "dist.init_process_group('nccl')\n"}})
                .run,
            "torchrun --standalone --nproc_per_node=gpu train.py");
}

TEST(GuessRun, FindsTheScript) {
  EXPECT_EQ(GuessFor({{"scripts/train_sft.py", kPlain}, {"main.py", kPlain}}).run,
            "python3 scripts/train_sft.py");
  EXPECT_EQ(GuessFor({{"model.py", "x = 1\n"}, {"go.py", kPlain}}).run, "python3 go.py");
  EXPECT_EQ(GuessFor({{"a.py", kPlain}, {"b.py", kPlain}}).run, "");
  EXPECT_EQ(GuessFor({{"test_train.py", "x = 1"}, {"trainer_utils.py", ""}}).run, "");
  EXPECT_EQ(GuessFor({{"Makefile", "all:\ntrain: data\n\tpython x\n"}}).run, "make train");
  EXPECT_EQ(GuessFor({{"train.sh", "echo\n"}}).run, "bash train.sh");
  EXPECT_EQ(GuessFor({}).run, "");
  EXPECT_EQ(GuessFor({{"train it; rm -rf $HOME.py", kPlain}}).run,
            "python3 'train it; rm -rf $HOME.py'");
}

TEST(GuessRun, IsNotHeldUpByOddFiles) {
  const TempDir dir;
  ASSERT_EQ(mkfifo(JoinPath(dir.path(), "train.py").c_str(), 0600), 0);
  ASSERT_OK(MakeDirectories(JoinPath(dir.path(), "main.py")));
  ASSERT_OK(WriteFileAtomic(JoinPath(dir.path(), "run.py"), std::string(1 << 20, '\xff')));
  const auto run = GuessRun(dir.path());
  ASSERT_OK(run);
  EXPECT_EQ(run->run, "python3 run.py");
}

TEST(ReadPythonScript, FindsWhereItSaves) {
  const auto checkpoints = [](const char* text) { return ReadPythonScript(text).checkpoints; };
  EXPECT_THAT(checkpoints("args = TrainingArguments(\n  output_dir=\"./out/sft\",\n)\n"),
              ElementsAre("out/sft/checkpoint-*"));
  EXPECT_THAT(checkpoints("import trl\np.add_argument('--output_dir', type=str, default='o')\n"),
              ElementsAre("o/checkpoint-*"));
  EXPECT_THAT(checkpoints("t = Trainer(model, args=a)\n"), ElementsAre("*/checkpoint-*"));
  EXPECT_THAT(
      checkpoints("import lightning as L\ncb = ModelCheckpoint(dirpath='ck', save_top_k=2)\n"
                  "L.Trainer(callbacks=[cb])\n"),
      ElementsAre("ck/*.ckpt"));
  EXPECT_THAT(checkpoints("import pytorch_lightning as pl\ntrainer = pl.Trainer()\n"),
              ElementsAre("lightning_logs/version_*/checkpoints/*.ckpt"));
  EXPECT_THAT(checkpoints("torch.save(model.state_dict(), f'ckpt/step-{step:05d}.pt')\n"),
              ElementsAre("ckpt/step-*.pt"));
  EXPECT_THAT(checkpoints("joblib.dump(model, 'out/model.joblib')\n"),
              ElementsAre("out/model.joblib"));
  EXPECT_THAT(checkpoints("pickle.dump(model, open(f\"checkpoints/model_{e}.pkl\", \"wb\"))\n"),
              ElementsAre("checkpoints/model_*.pkl"));
  EXPECT_THAT(checkpoints("with open('best.pkl', 'wb') as f:\n  pickle.dump(model, f)\n"),
              ElementsAre("best.pkl"));
  EXPECT_THAT(checkpoints("data = pickle.load(open('data.pkl', 'rb'))\n"), IsEmpty());
  EXPECT_THAT(checkpoints("open('cache.bin', 'wb').write(x)\n"), IsEmpty());
  EXPECT_THAT(checkpoints("torch.save({'a': 1}, path)\n"), IsEmpty());
  EXPECT_THAT(checkpoints("torch.save(x, '/abs/model.pt')\n"), IsEmpty());
  EXPECT_THAT(checkpoints("torch.save(x, '../model.pt')\n"), IsEmpty());
  EXPECT_THAT(checkpoints("# torch.save(x, 'a.pt')\n"), IsEmpty());
  EXPECT_THAT(checkpoints("class Trainer(Base):\n"), IsEmpty());
}

TEST(FormatRunFile, LeadsEditorsToTheSchema) {
  GuessedRun run;
  run.run = "python3 train.py";
  EXPECT_THAT(FormatRunFile(run, "/home/ada/s.json"),
              ::testing::StartsWith("# yaml-language-server: $schema=/home/ada/s.json\n"));
  EXPECT_THAT(FormatRunFile(run, "/home/a b/s.json"),
              ::testing::StartsWith("# yaml-language-server: $schema=file:///home/a%20b/s.json\n"));
}

}  // namespace
}  // namespace gpuctl
