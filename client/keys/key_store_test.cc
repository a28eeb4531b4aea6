#include "client/keys/key_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "client/base/exit_codes.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class KeyStoreTest : public ::testing::Test {
 protected:
  KeyStoreTest() {
    setenv("GPUCTL_KEY_STORE", "file", 1);
    Clear();
  }
  ~KeyStoreTest() override {
    unsetenv("GPUCTL_KEY_STORE");
    Clear();
  }
  static void Clear() {
    for (const char* name :
         {"GPUCTL_RUNPOD_API_KEY", "RUNPOD_API_KEY", "GPUCTL_VAST_API_KEY", "VAST_API_KEY",
          "GPUCTL_HUGGINGFACE_API_KEY", "HUGGINGFACE_API_KEY", "HF_TOKEN"}) {
      unsetenv(name);
    }
  }
  TempDir dir_;
  KeyStore keys_{dir_.Sub("config")};
};

TEST_F(KeyStoreTest, NothingIsNotFound) {
  EXPECT_THAT(keys_.Find("runpod"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(keys_.Remove("runpod").value(), IsEmpty());
}

TEST_F(KeyStoreTest, OwnVariableThenTheMarketsThenTheFile) {
  const auto where = keys_.Store("runpod", " from-file\n");
  ASSERT_OK(where);
  EXPECT_EQ(*where, keys_.FileOf("runpod"));
  EXPECT_EQ(keys_.Find("runpod")->key, "from-file");
  EXPECT_EQ(keys_.Find("runpod")->source, keys_.FileOf("runpod"));
  setenv("RUNPOD_API_KEY", "the-markets", 1);
  EXPECT_EQ(keys_.Find("runpod")->key, "the-markets");
  EXPECT_EQ(keys_.Find("runpod")->source, "$RUNPOD_API_KEY");
  setenv("GPUCTL_RUNPOD_API_KEY", "own", 1);
  EXPECT_EQ(keys_.Find("runpod")->key, "own");
  EXPECT_THAT(keys_.Find("vast"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(KeyStoreTest, TheVariableOfOtherProgramsComesLast) {
  setenv("HF_TOKEN", "hf_others", 1);
  EXPECT_EQ(keys_.Find("huggingface")->key, "hf_others");
  EXPECT_EQ(keys_.Find("huggingface")->source, "$HF_TOKEN");
  EXPECT_TRUE(keys_.Find("huggingface")->borrowed);
  EXPECT_THAT(keys_.Find("vast"), StatusIs(absl::StatusCode::kNotFound));
  // cron has no such variable.
  EXPECT_THAT(keys_.FindStored("huggingface", false), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(keys_.Store("huggingface", "hf_given"));
  EXPECT_EQ(keys_.Find("huggingface")->key, "hf_given");
  setenv("HUGGINGFACE_API_KEY", "hf_own", 1);
  EXPECT_EQ(keys_.Find("huggingface")->key, "hf_own");
  unsetenv("HUGGINGFACE_API_KEY");
  ASSERT_OK(keys_.Remove("huggingface"));
  setenv("HF_TOKEN", "two words", 1);
  EXPECT_THAT(keys_.Find("huggingface"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(KeyStoreTest, KeptForTheUserAlone) {
  ASSERT_OK(keys_.Store("vast", "secret"));
  struct stat info = {};
  ASSERT_EQ(stat(keys_.FileOf("vast").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(dir_.Sub("config/keys").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(KeyStoreTest, RefusesAFileThatOthersCanRead) {
  ASSERT_OK(keys_.Store("vast", "secret"));
  ASSERT_EQ(chmod(keys_.FileOf("vast").c_str(), 0640), 0);
  const auto key = keys_.Find("vast");
  EXPECT_THAT(key, StatusIs(absl::StatusCode::kFailedPrecondition, Not(HasSubstr("secret"))));
  EXPECT_EQ(ExitCodeOf(key.status()), kExitCredentials);
  EXPECT_THAT(HintOf(key.status()), HasSubstr("chmod 600"));
}

TEST_F(KeyStoreTest, RefusesWhatCannotBeAKey) {
  for (const char* text : {"", " \n", "two words", "caf\xc3\xa9", "quo\"te", "back\\slash"}) {
    EXPECT_THAT(keys_.Store("vast", text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
  EXPECT_FALSE(keys_.Store("vast", std::string(513, 'k')).ok());
  setenv("VAST_API_KEY", "two words", 1);
  EXPECT_THAT(keys_.Find("vast"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("$VAST_API_KEY")));
}

TEST_F(KeyStoreTest, SecretsAreKeptBesideTheKeys) {
  constexpr char kName[] = "GPUCTL_KEY_STORE_TEST_TOKEN";
  unsetenv(kName);
  EXPECT_THAT(keys_.FindSecret(kName), StatusIs(absl::StatusCode::kNotFound));
  const std::string token(2000, 't');
  const auto where = keys_.StoreSecret(kName, token + "\n");
  ASSERT_OK(where);
  EXPECT_EQ(*where, dir_.Sub("config/secrets/") + kName);
  struct stat info = {};
  ASSERT_EQ(stat(where->c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(keys_.FindSecret(kName)->key, token);
  // It is no market's key, and a key is no secret.
  EXPECT_THAT(keys_.Find(kName), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(keys_.Store("vast", "key"));
  EXPECT_THAT(keys_.FindSecret("vast"), StatusIs(absl::StatusCode::kNotFound));
  // The variable wins, also an empty one, and its text is taken as it is.
  setenv(kName, " two words ", 1);
  EXPECT_EQ(keys_.FindSecret(kName)->key, " two words ");
  EXPECT_EQ(keys_.FindStoredSecret(kName, /*session=*/false)->key, token);
  unsetenv(kName);
  ASSERT_EQ(chmod(where->c_str(), 0644), 0);
  EXPECT_THAT(keys_.FindSecret(kName), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(keys_.RemoveSecret(kName).value(), ElementsAre(*where));
  EXPECT_THAT(keys_.FindSecret(kName), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(keys_.Find("vast")->key, "key");
}

TEST_F(KeyStoreTest, Removes) {
  ASSERT_OK(keys_.Store("vast", "secret"));
  EXPECT_THAT(keys_.Remove("vast").value(), ElementsAre(keys_.FileOf("vast")));
  EXPECT_THAT(keys_.Find("vast"), StatusIs(absl::StatusCode::kNotFound));
}

// A fake keyring: a secret-tool that stores its input in a file, and records its arguments.
TEST_F(KeyStoreTest, TheKeyringIsUsedWhereThereIsOneAndSeesNoKeyInItsArguments) {
#ifdef __APPLE__
  GTEST_SKIP() << "macOS has its own Keychain, which tests leave alone";
#endif
  const std::string kept = dir_.Sub("kept"), seen = dir_.Sub("seen");
  dir_.Write("bin/secret-tool",
             "#!/bin/sh\necho \"$@\" >> " + seen + "\ncase $1 in\n  store) cat > " + kept +
                 " ;;\n  lookup) cat " + kept + " ;;\n  clear) rm " + kept + " ;;\nesac\n",
             0755);
  const std::string path = std::getenv("PATH");
  setenv("PATH", (dir_.Sub("bin") + ":" + path).c_str(), 1);
  setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere", 1);
  unsetenv("GPUCTL_KEY_STORE");
  const auto where = keys_.Store("vast", "s3cret");
  EXPECT_THAT(where.value(), HasSubstr("keyring"));
  EXPECT_FALSE(PathExists(keys_.FileOf("vast")));
  EXPECT_EQ(keys_.Find("vast")->key, "s3cret");
  EXPECT_THAT(keys_.Remove("vast").value(), ElementsAre(*where));
  EXPECT_THAT(keys_.Find("vast"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(ReadFileToString(seen).value(), Not(HasSubstr("s3cret")));
  // A keyring that does not work is skipped.
  dir_.Write("bin/secret-tool", "#!/bin/sh\nexit 1\n", 0755);
  EXPECT_EQ(keys_.Store("vast", "other").value(), keys_.FileOf("vast"));
  EXPECT_EQ(keys_.Find("vast")->key, "other");
  setenv("PATH", path.c_str(), 1);
  unsetenv("DBUS_SESSION_BUS_ADDRESS");
}

}  // namespace
}  // namespace gpuctl
