// The screen goes from the thread that shows a run to the one that sends its files, and back.
#include "client/show/screen_loan.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <thread>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

// Longer than any step takes.
constexpr std::chrono::minutes kAmple(5);

// Waits until there is something to look at.
ScreenLoan::State Next(ScreenLoan& loan) {
  pollfd wake = {loan.wake_fd(), POLLIN, 0};
  const auto ample_ms = static_cast<int>(std::chrono::milliseconds(kAmple).count());
  EXPECT_EQ(poll(&wake, 1, ample_ms), 1);
  return loan.Look();
}

TEST(ScreenLoanTest, WhatIsLentIsWaitedForAndComesBack) {
  ScreenLoan loan(kAmple);
  ASSERT_OK(loan.Open());
  for (int turn = 0; turn < 3; ++turn) {
    bool lent = false;  // the loan orders the two threads
    std::thread sender([&loan, &lent] {
      loan.Borrow();
      EXPECT_TRUE(lent);
      loan.Return();
    });
    EXPECT_EQ(Next(loan), ScreenLoan::State::kWanted);
    lent = true;
    loan.Lend();
    EXPECT_EQ(Next(loan), ScreenLoan::State::kReturned);
    loan.Keep();
    EXPECT_EQ(loan.Look(), ScreenLoan::State::kKept);
    sender.join();
  }
}

TEST(ScreenLoanTest, TheEndOfTheShowReleasesWhoWaits) {
  ScreenLoan loan(kAmple);
  ASSERT_OK(loan.Open());
  std::thread sender([&loan] {
    loan.Borrow();
    loan.Return();
  });
  EXPECT_EQ(Next(loan), ScreenLoan::State::kWanted);
  loan.Close();
  EXPECT_EQ(Next(loan), ScreenLoan::State::kReturned);
  sender.join();
  // Later ones do not begin to wait.
  loan.Borrow();
  EXPECT_EQ(loan.Look(), ScreenLoan::State::kWanted);
}

TEST(ScreenLoanTest, AScreenThatNobodyLendsIsTaken) {
  ScreenLoan loan(std::chrono::milliseconds(1));
  ASSERT_OK(loan.Open());
  loan.Borrow();
  EXPECT_EQ(loan.Look(), ScreenLoan::State::kWanted);
  loan.Return();
  // Lent too late: the files are on their way already.
  loan.Lend();
  EXPECT_EQ(loan.Look(), ScreenLoan::State::kReturned);
}

}  // namespace
}  // namespace gpuctl
