// Writes the files of keep --install for launchd and systemd, for programs that check them.
//   keep_schedule_text PROGRAM STATE_DIR DIR
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/keep/keep_schedule.h"
#include "common/files/files.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  gpuctl::KeepJob job;
  job.program = argv[1];
  job.where = {{"GPUCTL_STATE_DIR", argv[2]}};
  job.every = absl::Minutes(10);
  job.log = absl::StrCat(argv[2], "/keep.stderr");
  for (const auto& [name, text] : {std::pair("gpuctl.keep.plist", gpuctl::LaunchdPlist(job)),
                                   std::pair("gpuctl-keep.service", gpuctl::SystemdService(job)),
                                   std::pair("gpuctl-keep.timer", gpuctl::SystemdTimer(job))}) {
    const absl::Status status = gpuctl::WriteFileAtomic(gpuctl::JoinPath(argv[3], name), text);
    if (status.ok()) continue;
    fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
