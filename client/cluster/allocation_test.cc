#include "client/cluster/allocation.h"

#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

TEST(AllocationNameTest, TellsTheJobAndTheNode) {
  EXPECT_EQ(ParseAllocationName("slurm/123")->job, "123");
  EXPECT_EQ(ParseAllocationName("slurm/123")->node, 0);
  EXPECT_EQ(ParseAllocationName("slurm/123.7")->job, "123");
  EXPECT_EQ(ParseAllocationName("slurm/123.7")->node, 7);
  for (const char* none : {"slurm/", "slurm/12x", "slurm/123.", "slurm/123.0", "slurm/123.-1",
                           "slurm/123.1.2", "slurm/.1", "vast/123", "ada@box:22", ""}) {
    EXPECT_FALSE(ParseAllocationName(none).has_value()) << none;
  }
}

TEST(AllocationNameTest, EachNodeIsOfOneInstance) {
  NodeTarget first;
  first.provider = "slurm";
  first.name = "slurm/123";
  first.host = "login.example";
  EXPECT_EQ(NodeOfAllocation(first, 0).name, "slurm/123");
  const NodeTarget third = NodeOfAllocation(first, 2);
  EXPECT_EQ(third.name, "slurm/123.2");
  EXPECT_EQ(InstanceIdOf(third), "123");
  const auto reached = TargetOfAllocation(third);
  ASSERT_OK(reached);
  EXPECT_EQ(reached->allocation, "123");
  EXPECT_EQ(reached->allocation_node, 2);
  EXPECT_EQ(TargetOfArchive(*reached, "kept").allocation_node, 0);
}

TEST(AllocationNameTest, AMarketsIdMayHaveAnything) {
  NodeTarget rented;
  rented.provider = "vast";
  rented.name = "vast/17.2/a";
  EXPECT_EQ(InstanceIdOf(rented), "17.2/a");
}

}  // namespace
}  // namespace gpuctl
