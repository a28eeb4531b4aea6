#include "trainer/ranks/ranks.h"

#include <algorithm>
#include <numeric>

#include "trainer/base/error.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kMostRanks = 4096;

using Environment = std::function<std::string(const char*)>;

int64_t NumberIn(const Environment& environment, const char* name, int64_t low, int64_t high) {
  const std::string text = environment(name);
  const bool digits = !text.empty() && text.size() < 10 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  const int64_t number = digits ? std::stoll(text) : -1;
  if (number >= low && number <= high) return number;
  throw ConfigError("join the other processes: " + std::string(name) + " is \"" + text +
                        "\", not a number from " + std::to_string(low) + " to " +
                        std::to_string(high),
                    "for one process, unset WORLD_SIZE");
}

}  // namespace

Ranks ReadRanks(const Environment& environment) {
  Ranks ranks;
  if (environment("WORLD_SIZE").empty()) return ranks;
  ranks.size = NumberIn(environment, "WORLD_SIZE", 1, kMostRanks);
  if (ranks.size == 1) return ranks;
  ranks.rank = NumberIn(environment, "RANK", 0, ranks.size - 1);
  ranks.address = environment("MASTER_ADDR");
  if (ranks.address.empty()) {
    throw ConfigError("join the other processes: MASTER_ADDR is not set",
                      "set it to the address of the machine of rank 0");
  }
  ranks.port = NumberIn(environment, "MASTER_PORT", 1, 65535);
  const bool here =
      ranks.address == "localhost" || ranks.address == "::1" || ranks.address.rfind("127.", 0) == 0;
  ranks.local_size = environment("LOCAL_WORLD_SIZE").empty()
                         ? (here ? ranks.size : 1)
                         : NumberIn(environment, "LOCAL_WORLD_SIZE", 1, ranks.size);
  ranks.local_rank = environment("LOCAL_RANK").empty()
                         ? (here ? ranks.rank % ranks.local_size : 0)
                         : NumberIn(environment, "LOCAL_RANK", 0, ranks.local_size - 1);
  return ranks;
}

std::vector<int64_t> EqualRows(int64_t rows, int64_t ranks) {
  std::vector<int64_t> shares;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    shares.push_back(rows * (rank + 1) / ranks - rows * rank / ranks);
  }
  return shares;
}

// Each rank has one row; the others go one by one to the rank that would be through first with one
// more. So the slowest share is as short as it can be.
std::vector<int64_t> DivideRows(int64_t rows, const std::vector<double>& speeds) {
  std::vector<int64_t> shares(speeds.size(), 1);
  const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  // What is certain is given at once, so that a large batch needs few rounds.
  int64_t given = 0;
  for (size_t i = 0; i < speeds.size(); ++i) {
    const auto certain = static_cast<int64_t>(static_cast<double>(rows) * speeds[i] / sum) -
                         static_cast<int64_t>(speeds.size());
    shares[i] = std::max<int64_t>(1, certain);
    given += shares[i];
  }
  for (; given < rows; ++given) {
    size_t first = 0;
    for (size_t i = 1; i < speeds.size(); ++i) {
      const double time = static_cast<double>(shares[i] + 1) / speeds[i];
      if (time < static_cast<double>(shares[first] + 1) / speeds[first]) first = i;
    }
    ++shares[first];
  }
  return shares;
}

}  // namespace gpuctl::trainer
