// Prints the start script of an allocation of Slurm.
//   start_script_text ROOT ALLOWANCE_S GRACE_S
#include <cstdio>
#include <cstdlib>

#include "provisioning/rental/start_script.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  gpuctl::StartScriptOptions options;
  options.provider = "slurm";
  options.root = argv[1];
  options.allowance = absl::Seconds(atoi(argv[2]));
  options.grace = absl::Seconds(atoi(argv[3]));
  const absl::StatusOr<std::string> script = gpuctl::MakeStartScript(options);
  if (!script.ok()) {
    fprintf(stderr, "%s\n", script.status().ToString().c_str());
    return 1;
  }
  return fwrite(script->data(), 1, script->size(), stdout) == script->size() ? 0 : 1;
}
