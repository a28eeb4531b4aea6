#include "client/bill/run_machines.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/bill/forecast.h"

namespace gpuctl {
namespace {

constexpr int64_t kMachinesHour = 3'600'000;
constexpr int64_t kMachinesBegin = 1000 * kMachinesHour;

RunMachine MachineAt(const char* id, double usd_per_hour) {
  Lease lease;
  lease.lease_id = lease.instance_id = id;
  lease.state = LeaseState::kRented;
  lease.provider = "fake";
  lease.intended_ms = lease.rented_ms = kMachinesBegin;
  lease.rates = {{kMachinesBegin, kMachinesBegin, usd_per_hour}};
  const std::string run_id = std::string("r-") + id;
  lease.uses.push_back({run_id, "fox", kMachinesBegin, LeaseUse::kWhole});
  lease.limits.time_s = 6 * 3600;
  lease.limits.cost_usd = 20;
  lease.limits.idle_s = 600;
  return {lease, run_id};
}

TEST(RunMachines, AreOneBill) {
  const int64_t now_ms = kMachinesBegin + kMachinesHour;
  RunMachines machines = {MachineAt("a", 2), MachineAt("b", 3)};
  EXPECT_DOUBLE_EQ(UsdPerHour(machines), 5);
  EXPECT_DOUBLE_EQ(CostLimit(machines), 40);
  EXPECT_NEAR(SpentByRun(machines, now_ms).high_usd, 5, 0.01);
  EXPECT_EQ(CostLine(machines, kMachinesBegin, now_ms),
            "2 machines, $5.00/h, $5.00 of $40.00 spent, stops in 5h 00m, then idle for 10m 00s");
  EXPECT_EQ(DescribeHighestPrice(machines), "$5.00/h for 2 machines");
  EXPECT_FALSE(AnyShared(machines));
  // The limit that comes first stops all.
  machines[1].lease.limits.time_s = 3 * 3600;
  EXPECT_EQ(JobStopsMs(machines, kMachinesBegin, now_ms), kMachinesBegin + 3 * kMachinesHour);
  EXPECT_NEAR(ForecastOf(machines, kMachinesBegin, now_ms + kMachinesHour, now_ms).usd, 10, 0.01);
  // One without a limit: nothing is said of all.
  machines[0].lease.limits.cost_usd = 0;
  EXPECT_EQ(CostLimit(machines), 0);
}

TEST(RunMachines, ThatAreGoneBillNothing) {
  const int64_t now_ms = kMachinesBegin + 2 * kMachinesHour;
  RunMachines machines = {MachineAt("a", 2), MachineAt("b", 3)};
  const auto end = [](RunMachine& machine) {
    machine.lease.state = LeaseState::kReleased;
    machine.lease.ended_after_ms = machine.lease.ended_ms = kMachinesBegin + kMachinesHour;
  };
  end(machines[0]);
  EXPECT_TRUE(AnyOpen(machines));
  EXPECT_DOUBLE_EQ(UsdPerHour(machines), 3);
  EXPECT_DOUBLE_EQ(HighestUsdPerHour(machines), 5);
  end(machines[1]);
  EXPECT_FALSE(AnyOpen(machines));
  EXPECT_EQ(CostLine(machines, -1, now_ms), "2 machines, given back, $5.00 spent");
}

TEST(RunMachines, OthersAreInTheDocumentWhereThereAreSome) {
  RunMachines machines = {MachineAt("a", 2)};
  nlohmann::ordered_json one, two;
  AddRunCost(machines, kMachinesBegin, kMachinesBegin + kMachinesHour, one);
  EXPECT_EQ(one["lease"]["instance_id"], "a");
  EXPECT_FALSE(one.contains("other_leases"));
  machines.push_back(MachineAt("b", 3));
  AddRunCost(machines, kMachinesBegin, kMachinesBegin + kMachinesHour, two);
  EXPECT_EQ(two["other_leases"][0]["instance_id"], "b");
  EXPECT_NEAR(two["spent_high_usd"].get<double>(), 5, 0.01);
  EXPECT_EQ(two["stops"], "1970-02-11T22:00:00.000Z");
}

}  // namespace
}  // namespace gpuctl
