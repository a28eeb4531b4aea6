// The owner's id of ledgers that are copied, moved, lost and restored.
#include <gtest/gtest.h>

#include <filesystem>

#include "provisioning/ledger/ledger.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

namespace fs = std::filesystem;

class LedgerOwnerTest : public ::testing::Test {
 protected:
  std::string OwnerAt(const std::string& state, const std::string& machine = "laptop",
                      const std::string& owners = "owners") {
    LedgerHome home;
    home.machine = machine;
    if (!owners.empty()) home.owner_dir = dir_.Sub(owners);
    const auto ledger = Ledger::Open(dir_.Sub(state), clock_, home);
    EXPECT_OK(ledger);
    if (!ledger.ok()) return "";
    const absl::StatusOr<std::string> owner = (*ledger)->OwnerId();
    EXPECT_OK(owner);
    return owner.value_or("");
  }

  TempDir dir_;
  SteppingClock clock_;
};

TEST_F(LedgerOwnerTest, StaysTheSame) {
  const std::string owner = OwnerAt("state");
  EXPECT_EQ(owner.size(), 8u);
  EXPECT_EQ(OwnerAt("state"), owner);
  EXPECT_NE(OwnerAt("another"), owner);
}

TEST_F(LedgerOwnerTest, ACopyGetsItsOwn) {
  const std::string owner = OwnerAt("state");
  fs::copy(dir_.Sub("state"), dir_.Sub("copy"));
  const std::string copys = OwnerAt("copy");
  EXPECT_NE(copys, owner);
  EXPECT_EQ(OwnerAt("copy"), copys);
  EXPECT_EQ(OwnerAt("state"), owner);
}

TEST_F(LedgerOwnerTest, ACopyOnAnotherComputerGetsItsOwn) {
  const std::string owner = OwnerAt("state");
  // The same paths, and the configuration came along.
  const std::string elsewhere = OwnerAt("state", "another computer");
  EXPECT_NE(elsewhere, owner);
  EXPECT_EQ(OwnerAt("state", "another computer"), elsewhere);
}

TEST_F(LedgerOwnerTest, AMovedLedgerKeepsIt) {
  const std::string owner = OwnerAt("state");
  fs::rename(dir_.Sub("state"), dir_.Sub("moved"));
  EXPECT_EQ(OwnerAt("moved"), owner);
  // What is made in the old place later is another's.
  fs::remove_all(dir_.Sub("owners"));
  EXPECT_NE(OwnerAt("state"), owner);
}

TEST_F(LedgerOwnerTest, ALostLedgerLosesNoOwner) {
  const std::string owner = OwnerAt("state");
  fs::remove_all(dir_.Sub("state"));
  EXPECT_EQ(OwnerAt("state"), owner);
}

TEST_F(LedgerOwnerTest, ALedgerOfAnOlderProgramIsBoundWhereItIs) {
  const std::string owner = OwnerAt("state", "", "");
  EXPECT_EQ(OwnerAt("state"), owner);
  fs::remove_all(dir_.Sub("state"));
  EXPECT_EQ(OwnerAt("state"), owner);
}

TEST_F(LedgerOwnerTest, ADamagedFileOfTheOwnerIsNotBelieved) {
  const std::string owner = OwnerAt("state");
  for (const auto& entry : fs::directory_iterator(dir_.Sub("owners"))) {
    fs::resize_file(entry.path(), 3);
  }
  EXPECT_EQ(OwnerAt("state"), owner);
  fs::remove_all(dir_.Sub("state"));
  EXPECT_EQ(OwnerAt("state").size(), 8u);
}

}  // namespace
}  // namespace gpuctl
