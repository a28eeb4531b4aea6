#include <cstdio>

#include "trainer/adapters/merge.h"
#include "trainer/cli/args.h"
#include "trainer/cli/commands.h"

namespace gpuctl::trainer {

int RunMerge(const std::vector<std::string>& words) {
  const Args args(words, {"model", "adapter", "out", "shard-gb"}, {}, 0);
  MergeRequest request;
  request.model = args.Require("model");
  request.adapter = args.Require("adapter");
  request.out = args.Require("out");
  request.shard_bytes = static_cast<uint64_t>(args.Number("shard-gb", 4, 1e-6, 1e6) * 1e9);
  request.check = ThrowIfStopped;
  const MergeResult result = MergeAdapter(request);
  std::printf("%s: %zu weights changed, %zu file%s, %llu bytes\n", request.out.c_str(),
              result.changed, result.shards, result.shards == 1 ? "" : "s",
              static_cast<unsigned long long>(result.bytes));
  return 0;
}

}  // namespace gpuctl::trainer
