#include "agent/ranks/rank_place.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <string>

#include "common/base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

std::map<std::string, std::string> VariablesOf(const Environment& environment, int local,
                                               int processes, int port) {
  const absl::StatusOr<RankPlace> place = ReadRankPlace(environment, processes);
  if (!place.ok()) return {{"error", std::string(place.status().message())}};
  const auto list =
      RankVariables(*place, local, place->port != 0 ? place->port : port, environment);
  return {list.begin(), list.end()};
}

TEST(RankPlaceTest, OneMachine) {
  EXPECT_EQ(VariablesOf({}, 0, 4, 1234),
            (std::map<std::string, std::string>{{"RANK", "0"},
                                                {"LOCAL_RANK", "0"},
                                                {"WORLD_SIZE", "4"},
                                                {"LOCAL_WORLD_SIZE", "4"},
                                                {"MASTER_ADDR", "127.0.0.1"},
                                                {"MASTER_PORT", "1234"},
                                                {"GPUCTL_NODE_RANK", "0"},
                                                {"GPUCTL_NODES", "1"},
                                                {"GLOO_SOCKET_IFNAME", "lo"}}));
  EXPECT_EQ(VariablesOf({}, 3, 4, 1234).at("GPUCTL_METRICS"), "/dev/null");
  EXPECT_EQ(VariablesOf({{"GLOO_SOCKET_IFNAME", "eth9"}}, 0, 4, 1).count("GLOO_SOCKET_IFNAME"), 0u);
}

TEST(RankPlaceTest, OneOfSeveralMachines) {
  const Environment gang = {{"GPUCTL_NODE_RANK", "2"},
                            {"GPUCTL_NODES", "3"},
                            {"MASTER_ADDR", "10.0.0.7"},
                            {"MASTER_PORT", "29400"}};
  EXPECT_EQ(VariablesOf(gang, 1, 8, 5),
            (std::map<std::string, std::string>{{"RANK", "17"},
                                                {"LOCAL_RANK", "1"},
                                                {"WORLD_SIZE", "24"},
                                                {"LOCAL_WORLD_SIZE", "8"},
                                                {"MASTER_ADDR", "10.0.0.7"},
                                                {"MASTER_PORT", "29400"},
                                                {"GPUCTL_NODE_RANK", "2"},
                                                {"GPUCTL_NODES", "3"},
                                                {"GPUCTL_METRICS", "/dev/null"}}));
  Environment lost = gang;
  lost.erase("MASTER_PORT");
  EXPECT_THAT(VariablesOf(lost, 0, 8, 5).at("error"), HasSubstr("MASTER_PORT"));
  lost = gang;
  lost["GPUCTL_NODE_RANK"] = "3";
  EXPECT_THAT(VariablesOf(lost, 0, 8, 5).at("error"), HasSubstr("from 0 to 2"));
  lost = gang;
  lost["GPUCTL_NODES"] = "1000";
  EXPECT_THAT(VariablesOf(lost, 0, 1000, 5).at("error"), HasSubstr("too many"));
}

TEST(RankPlaceTest, CoresAreDivided) {
  const auto threads = [](int cores, int processes, const Environment& environment) {
    absl::StatusOr<RankPlace> place = ReadRankPlace(environment, processes);
    EXPECT_OK(place);
    place->cores = cores;
    const auto list = RankVariables(*place, 0, 1, environment);
    const std::map<std::string, std::string> variables(list.begin(), list.end());
    const auto found = variables.find("OMP_NUM_THREADS");
    return found == variables.end() ? "" : found->second;
  };
  EXPECT_EQ(threads(96, 8, {}), "12");
  EXPECT_EQ(threads(7, 2, {}), "3");
  EXPECT_EQ(threads(2, 8, {}), "1");
  EXPECT_EQ(threads(8, 1, {}), "");  // one process may take all of them
  EXPECT_EQ(threads(8, 2, {{"OMP_NUM_THREADS", "5"}}), "");
  EXPECT_EQ(threads(0, 2, {}), "");
  EXPECT_GE(UsableCores(), 1);
  EXPECT_EQ(CoresOfLimit("max 100000\n"), 0);
  EXPECT_EQ(CoresOfLimit("400000 100000\n"), 4);
  EXPECT_EQ(CoresOfLimit("50000 100000"), 1);
  EXPECT_EQ(CoresOfLimit("150000 100000"), 2);
  EXPECT_EQ(CoresOfLimit(""), 0);
  EXPECT_EQ(CoresOfLimit("1 0"), 0);
}

TEST(RankPlaceTest, AFreePortIsFree) {
  const absl::StatusOr<int> port = FreePort();
  ASSERT_OK(port);
  const UniqueFd own(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(*port));
  EXPECT_EQ(bind(own.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

TEST(RankPlaceTest, GpusAreCounted) {
  EXPECT_EQ(CountGpus({{"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,3"}}, ""), 3);
  EXPECT_EQ(CountGpus({{"CUDA_VISIBLE_DEVICES", "0, 1,-1,2"}}, ""), 2);
  EXPECT_EQ(CountGpus({{"CUDA_VISIBLE_DEVICES", ""}}, "/bin/false"), 0);
  EXPECT_EQ(CountGpus({}, ""), 0);
  EXPECT_EQ(CountGpus({}, "/no/such/program"), 0);
}

}  // namespace
}  // namespace gpuctl
