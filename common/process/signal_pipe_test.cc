#include "common/process/signal_pipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void OwnHandler(int /*signal*/) {}

// Sets the handler of a signal, and restores the previous one when it ends.
class Disposition {
 public:
  Disposition(int signal, void (*handler)(int)) : signal_(signal) {
    struct sigaction action = {};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, &before_);
  }
  ~Disposition() { sigaction(signal_, &before_, nullptr); }
  Disposition(const Disposition&) = delete;
  Disposition& operator=(const Disposition&) = delete;

 private:
  const int signal_;
  struct sigaction before_ = {};
};

struct sigaction ActionOf(int signal) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action;
}

bool IsReadable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return poll(&polled, 1, 0) == 1;
}

TEST(SignalPipe, GivesTheSignalsInOrder) {
  SignalPipe pipe = SignalPipe::Install({SIGUSR1, SIGUSR2}).value();
  EXPECT_FALSE(IsReadable(pipe.fd()));
  raise(SIGUSR2);
  raise(SIGUSR1);
  raise(SIGUSR2);
  EXPECT_TRUE(IsReadable(pipe.fd()));
  EXPECT_THAT(pipe.Take(), ElementsAre(SIGUSR2, SIGUSR1, SIGUSR2));
  EXPECT_FALSE(IsReadable(pipe.fd()));
  EXPECT_THAT(pipe.Take(), IsEmpty());
}

TEST(SignalPipe, ItsEndBringsBackWhatWasThere) {
  const Disposition ignored(SIGUSR1, SIG_IGN);
  const Disposition handled(SIGUSR2, OwnHandler);
  const Disposition neither(SIGWINCH, SIG_DFL);
  {
    SignalPipe first = SignalPipe::Install({SIGUSR1, SIGUSR2, SIGWINCH, SIGUSR1}).value();
    SignalPipe moved = std::move(first);
    raise(SIGUSR1);
    EXPECT_THAT(moved.Take(), ElementsAre(SIGUSR1));
    EXPECT_NE(ActionOf(SIGUSR1).sa_handler, SIG_IGN);
    EXPECT_NE(ActionOf(SIGUSR2).sa_handler, OwnHandler);
  }
  EXPECT_EQ(ActionOf(SIGUSR1).sa_handler, SIG_IGN);
  EXPECT_EQ(ActionOf(SIGUSR2).sa_handler, OwnHandler);
  EXPECT_EQ(ActionOf(SIGWINCH).sa_handler, SIG_DFL);
}

TEST(SignalPipe, MayCatchUntilTheProcessEnds) {
  const pid_t child = fork();
  if (child == 0) {
    {
      SignalPipe pipe = SignalPipe::Install({SIGINT}).value();
      pipe.CatchUntilExit();
    }
    raise(SIGINT);
    _exit(3);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
}

TEST(SignalPipe, AfterTheInnerOfTwoTheOuterStillCatches) {
  SignalPipe outer = SignalPipe::Install({SIGUSR1}).value();
  { const SignalPipe inner = SignalPipe::Install({SIGUSR1}).value(); }
  raise(SIGUSR1);
  EXPECT_THAT(outer.Take(), ElementsAre(SIGUSR1));
}

TEST(SignalPipe, AnIgnoredHangupStaysIgnored) {
  const Disposition ignored(SIGHUP, SIG_IGN);
  SignalPipe pipe = SignalPipe::Install({SIGHUP, SIGUSR1}).value();
  raise(SIGHUP);
  EXPECT_THAT(pipe.Take(), IsEmpty());
}

TEST(SignalPipe, InterruptsOrRestartsAWaitingCall) {
  {
    const SignalPipe pipe = SignalPipe::Install({SIGUSR1}).value();
    EXPECT_EQ(ActionOf(SIGUSR1).sa_flags & SA_RESTART, 0);
  }
  const SignalPipe pipe =
      SignalPipe::Install({SIGUSR1}, SignalPipe::WaitingCall::kRestarted).value();
  EXPECT_NE(ActionOf(SIGUSR1).sa_flags & SA_RESTART, 0);
}

TEST(SignalPipe, AForkedProcessHasOneOfItsOwn) {
  SignalPipe ours = SignalPipe::Install({SIGUSR1}).value();
  const pid_t child = fork();
  if (child == 0) {
    SignalPipe own = SignalPipe::Install({SIGUSR1}).value();
    raise(SIGUSR1);
    _exit(own.Take().size() == 1 && own.fd() != ours.fd() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(ours.Take(), IsEmpty());
}

}  // namespace
}  // namespace gpuctl
