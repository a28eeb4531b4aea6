// Adds the delay of a distant machine to a loopback connection:
//
//   delayproxy --listen 127.0.0.1:0 --target 127.0.0.1:2222 --delay-ms 40
//
// prints {"port": N} on one line and runs until its stdin closes.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "tests/support/fault_proxy.h"

int main(int argc, char** argv) {
  std::string listen = "127.0.0.1:0";
  std::string target;
  double delay_ms = 0;
  bool usage = argc % 2 == 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--listen") {
      listen = argv[i + 1];
    } else if (flag == "--target") {
      target = argv[i + 1];
    } else if (flag != "--delay-ms" || !absl::SimpleAtod(argv[i + 1], &delay_ms)) {
      usage = true;
    }
  }
  if (usage || target.empty() || delay_ms < 0) {
    fprintf(stderr,
            "usage: delayproxy --target A.B.C.D:PORT [--listen A.B.C.D:PORT]"
            " [--delay-ms EACH_WAY]\n");
    return 2;
  }
  const auto proxy = gpuctl::FaultProxy::Listen(listen, target);
  if (!proxy.ok()) {
    fprintf(stderr, "delayproxy: %s\n", std::string(proxy.status().message()).c_str());
    return 1;
  }
  (*proxy)->SetDelay(absl::Milliseconds(delay_ms));
  printf("{\"port\": %d}\n", (*proxy)->port());
  fflush(stdout);
  char bytes[256];
  while (read(STDIN_FILENO, bytes, sizeof(bytes)) > 0) {
  }
  return 0;
}
