// A gpuctl that is killed at a write of its ledger: KILL_AT_WRITE=N ends the process at the N-th
// call of the write hook, which is called before and after each change.
#include <atomic>
#include <csignal>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "client/verbs/verb.h"
#include "provisioning/ledger/ledger.h"

int main(int argc, char** argv) {
  const char* const text = std::getenv("KILL_AT_WRITE");
  int at = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &at) || at <= 0) return 2;
  gpuctl::Ledger::HookEveryLedger([at](absl::string_view, bool) {
    static std::atomic<int> calls{0};
    if (++calls == at) raise(SIGKILL);
    return absl::OkStatus();
  });
  return gpuctl::RunCommandLine(argc, argv);
}
