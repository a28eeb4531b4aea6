// Adds the delay and, if wanted, the rate of a distant machine to a loopback connection:
//
//   delayproxy --listen 127.0.0.1:0 --target 127.0.0.1:2222 --delay-ms 40 --mbit 20
//
// prints {"port": N} on one line and runs until its stdin closes. A line "mbit 20" there changes
// the rate; 0 is no limit.
#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/support/fault_proxy.h"

int main(int argc, char** argv) {
  std::string listen = "127.0.0.1:0";
  std::string target;
  double delay_ms = 0;
  double mbit = 0;
  bool usage = argc % 2 == 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--listen") {
      listen = argv[i + 1];
    } else if (flag == "--target") {
      target = argv[i + 1];
    } else if (flag == "--mbit") {
      usage = usage || !absl::SimpleAtod(argv[i + 1], &mbit);
    } else if (flag != "--delay-ms" || !absl::SimpleAtod(argv[i + 1], &delay_ms)) {
      usage = true;
    }
  }
  if (usage || target.empty() || delay_ms < 0 || mbit < 0) {
    fprintf(stderr,
            "usage: delayproxy --target A.B.C.D:PORT [--listen A.B.C.D:PORT]"
            " [--delay-ms EACH_WAY] [--mbit EACH_WAY]\n");
    return 2;
  }
  const auto proxy = gpuctl::FaultProxy::Listen(listen, target);
  if (!proxy.ok()) {
    fprintf(stderr, "delayproxy: %s\n", std::string(proxy.status().message()).c_str());
    return 1;
  }
  (*proxy)->SetDelay(absl::Milliseconds(delay_ms));
  const auto set_rate = [&] { (*proxy)->SetRate(static_cast<int64_t>(mbit * 1e6 / 8)); };
  set_rate();
  printf("{\"port\": %d}\n", (*proxy)->port());
  fflush(stdout);
  char line[256];
  while (fgets(line, sizeof(line), stdin) != nullptr) {
    absl::string_view rate(line);
    if (!absl::ConsumePrefix(&rate, "mbit ") || !absl::SimpleAtod(rate, &mbit) || mbit < 0) {
      return 2;
    }
    set_rate();
    printf("{}\n");
    fflush(stdout);
  }
  return 0;
}
