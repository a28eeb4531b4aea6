#include <cstdio>

#include "trainer/adapters/export_flags.h"
#include "trainer/cli/args.h"
#include "trainer/cli/commands.h"

namespace gpuctl::trainer {

int RunExport(const std::vector<std::string>& words) {
  const Args args(words, {"model", "adapter", "to", "out", "type", "pre"}, {}, 0);
  ExportFlags flags;
  flags.to = args.Get("to");
  flags.model = args.Get("model");
  flags.adapter = args.Get("adapter");
  flags.out = args.Get("out");
  flags.type = args.Get("type");
  flags.pre = args.Get("pre");
  flags.check = ThrowIfStopped;
  const ExportOutcome outcome = Export(flags);
  for (const std::string& note : outcome.notes) {
    std::fprintf(stderr, "gpuctl-trainer: note: %s\n", note.c_str());
  }
  std::printf("%s\n", ExportText(flags, outcome).c_str());
  return 0;
}

}  // namespace gpuctl::trainer
