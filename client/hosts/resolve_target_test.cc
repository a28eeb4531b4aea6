#include "client/hosts/resolve_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "common/files/files.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

// Sets a variable of the environment for a test; without a value removes it.
class Variable {
 public:
  Variable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* before = std::getenv(name); before != nullptr) before_ = before;
    Set(value);
  }
  ~Variable() { Set(before_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void Set(const std::optional<std::string>& value) {
    if (value.has_value()) {
      setenv(name_, value->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

  const char* const name_;
  std::optional<std::string> before_;
};

std::string RootOfLocal() {
  const absl::StatusOr<NodeTarget> target = ResolveTarget({});
  EXPECT_TRUE(target.ok());
  return target.ok() ? target->root : "?";
}

TEST(ResolveTarget, TheLocalNodeIsBelowHome) {
  const Variable no_root("GPUCTL_NODE_ROOT", std::nullopt);
  const TempDir dir;
  const Variable home("HOME", dir.path());
  EXPECT_EQ(RootOfLocal(), JoinPath(dir.path(), ".gpuctl"));
}

TEST(ResolveTarget, TheHomeOfTheAccountNeedsNoRoot) {
  const Variable no_root("GPUCTL_NODE_ROOT", std::nullopt);
  const passwd* const account = getpwuid(geteuid());
  ASSERT_NE(account, nullptr);
  const Variable home("HOME", std::string(account->pw_dir));
  EXPECT_EQ(RootOfLocal(), "") << "it is that of older runs";
}

TEST(ResolveTarget, AHomeThatIsNoneDoesNotCount) {
  const Variable no_root("GPUCTL_NODE_ROOT", std::nullopt);
  for (const std::optional<std::string>& no_home :
       {std::optional<std::string>(), std::optional<std::string>("relative"),
        std::optional<std::string>("/no/such/directory")}) {
    const Variable home("HOME", no_home);
    EXPECT_EQ(RootOfLocal(), "");
  }
}

TEST(ResolveTarget, TheVariableForTheRootCountsMore) {
  const Variable root("GPUCTL_NODE_ROOT", "/elsewhere");
  const TempDir dir;
  const Variable home("HOME", dir.path());
  EXPECT_EQ(RootOfLocal(), "/elsewhere");
}

}  // namespace
}  // namespace gpuctl
