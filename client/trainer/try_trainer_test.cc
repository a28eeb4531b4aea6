#include "client/trainer/try_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "client/base/exit_codes.h"
#include "client/trainer/trainer_program.h"
#include "trainer/base/error.h"

namespace gpuctl {
namespace {

TEST(TryLongWork, EndsAtTheNextCheckAfterASignal) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    int pieces = 0;
    const absl::Status status = TryLongWork("merge", [&](const std::function<void()>& check) {
      for (; pieces < 5; ++pieces) {
        check();
        if (pieces == 2) kill(getpid(), signal);
      }
    });
    EXPECT_EQ(pieces, 3);
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(status.message(), "merge: interrupted; nothing was written");
    EXPECT_EQ(static_cast<int>(ExitCodeOf(status)), 128 + signal);
  }
}

TEST(TryLongWork, KeepsTheTrainersErrors) {
  const auto failing = [](trainer::ExitCode code) {
    return TryLongWork("merge", [code](const std::function<void()>&) {
      throw trainer::Error(code, "why", "way out");
    });
  };
  EXPECT_EQ(ExitCodeOf(failing(trainer::ExitCode::kBadConfig)), kExitUsage);
  EXPECT_EQ(ExitCodeOf(failing(trainer::ExitCode::kBadData)), kExitFailed);
  EXPECT_EQ(HintOf(failing(trainer::ExitCode::kIo)), "way out");
  EXPECT_TRUE(TryLongWork("merge", [](const std::function<void()>& check) { check(); }).ok());
}

TEST(ExitCodeForTrainers, IsOneOfGpuctlsOwn) {
  EXPECT_EQ(ExitCodeForTrainers(0), kExitOk);
  EXPECT_EQ(ExitCodeForTrainers(64), kExitUsage);
  for (const int code : {65, 69, 74, 75, 125}) EXPECT_EQ(ExitCodeForTrainers(code), kExitFailed);
  EXPECT_EQ(ExitCodeForTrainers(70), kExitBug);
  EXPECT_EQ(ExitCodeForTrainers(130), kExitInterrupted);
}

}  // namespace
}  // namespace gpuctl
