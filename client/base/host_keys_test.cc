#include "client/base/host_keys.h"

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

NodeTarget Rented(const std::string& id, const std::string& user, const std::string& host) {
  NodeTarget target;
  target.provider = "market";
  target.name = "market/" + id;
  target.user = user;
  target.host = host;
  return target;
}

TEST(HostKeysTest, AGatewayHasOnePinForAllMachinesBehindIt) {
  const NodeTarget first = Rented("a1", "a1", "gate.example");
  EXPECT_EQ(PinName(first), "market@gate.example");
  EXPECT_EQ(PinName(Rented("b2", "b2", "gate.example")), PinName(first));
  EXPECT_NE(PinName(Rented("b2", "b2", "other.example")), PinName(first));
  // A machine of its own has a key of its own.
  EXPECT_EQ(PinName(Rented("a1", "root", "gate.example")), "market/a1");
  EXPECT_EQ(PinName(Rented("", "", "gate.example")), "market/");
  TempDir dir;
  ASSERT_OK(CheckHostKey(dir.path(), PinName(first), "SHA256:x"));
  ASSERT_OK(CheckHostKey(dir.path(), PinName(Rented("b2", "b2", "gate.example")), "SHA256:x"));
  EXPECT_FALSE(
      CheckHostKey(dir.path(), PinName(Rented("c3", "c3", "gate.example")), "SHA256:y").ok());
}

}  // namespace
}  // namespace gpuctl
