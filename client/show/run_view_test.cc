// The panel on a terminal that stops and changes its size. A pseudo terminal is stdout meanwhile.
#include "client/show/run_view.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "client/streams/mirror_reader.h"
#include "common/base/fake_clock.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

// The rows that a terminal without reflow shows for what was written to it.
std::vector<std::string> RowsOf(const std::string& bytes) {
  std::vector<std::string> rows(1);
  size_t row = 0, column = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (bytes[at] == '\r') {
      column = 0;
    } else if (bytes[at] == '\n') {
      column = 0;
      if (++row == rows.size()) rows.emplace_back();
    } else if (bytes[at] == '\x1b' && bytes[at + 1] == '[') {
      size_t end = at + 2;
      while (bytes[end] < '@' || bytes[end] > '~') ++end;
      int count = 1;
      (void)absl::SimpleAtoi(bytes.substr(at + 2, end - at - 2), &count);
      if (bytes[end] == 'A') row -= std::min(row, static_cast<size_t>(count));
      if (bytes[end] == 'J') {
        rows.resize(row + 1);
        rows[row].resize(std::min(rows[row].size(), column));
      }
      at = end;
    } else {
      rows[row].resize(std::max(rows[row].size(), column + 1), ' ');
      rows[row][column++] = bytes[at];
    }
  }
  return rows;
}

// Makes a pseudo terminal stdout for as long as it lives.
class TerminalAsStdout {
 public:
  TerminalAsStdout() : master_(posix_openpt(O_RDWR | O_NOCTTY)), before_(dup(STDOUT_FILENO)) {
    EXPECT_EQ(grantpt(master_), 0);
    EXPECT_EQ(unlockpt(master_), 0);
    const int slave = open(ptsname(master_), O_RDWR | O_NOCTTY);
    EXPECT_GE(slave, 0);
    termios raw = {};
    tcgetattr(slave, &raw);
    cfmakeraw(&raw);
    tcsetattr(slave, TCSANOW, &raw);
    dup2(slave, STDOUT_FILENO);
    close(slave);
    reader_ = std::thread([this] {
      char bytes[4096];
      ssize_t size = 0;
      while ((size = read(master_, bytes, sizeof(bytes))) > 0) {
        written_.append(bytes, static_cast<size_t>(size));
      }
    });
  }
  ~TerminalAsStdout() { (void)Written(); }
  void SetColumns(int columns) {
    winsize size = {};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 24;
    EXPECT_EQ(ioctl(STDOUT_FILENO, TIOCSWINSZ, &size), 0);
  }
  // Gives stdout back and returns what was written.
  std::string Written() {
    if (before_ < 0) return written_;
    fflush(stdout);
    dup2(before_, STDOUT_FILENO);  // the reader ends: nobody else has the terminal
    close(before_);
    before_ = -1;
    reader_.join();
    close(master_);
    return written_;
  }

 private:
  int master_, before_;
  std::string written_;
  std::thread reader_;
};

class RunViewTest : public ::testing::Test {
 protected:
  RunViewTest() : world_(clock_), mirror_(world_.dir.Sub("mirror"), 0) {
    row_.run_id = "r-1";
    row_.name = "amber-fox-1";
    row_.target.name = "me@box:22";
    EXPECT_EQ(pipe(wake_), 0);
    EXPECT_EQ(write(wake_[1], "x", 1), 1);
  }
  ~RunViewTest() override {
    close(wake_[0]);
    close(wake_[1]);
  }
  std::unique_ptr<RunView> View() {
    RunViewOptions options;
    options.panel = true;
    return std::make_unique<RunView>(world_.context, row_, mirror_, options);
  }
  PanelState Linked() {
    PanelState state;
    state.linked = state.ever_linked = true;
    return state;
  }

  FakeClock clock_;
  ClientWorld world_;
  MirrorReader mirror_;
  RunRow row_;
  int wake_[2] = {-1, -1};  // readable: a signal has come
};

TEST(DetectTerminalTest, NoColorRemovesTheColourAndNotThePanel) {
  const char* const term = getenv("TERM");
  const std::string before = term == nullptr ? "" : term;
  setenv("TERM", "xterm", 1);
  setenv("NO_COLOR", "1", 1);
  const char* const ci = getenv("CI");
  const std::string ci_before = ci == nullptr ? "" : ci;
  unsetenv("CI");
  TerminalTraits traits;
  {
    TerminalAsStdout terminal;
    const int errors = dup(STDERR_FILENO);
    dup2(STDOUT_FILENO, STDERR_FILENO);
    traits = DetectTerminal(/*no_color=*/false);
    dup2(errors, STDERR_FILENO);
    close(errors);
  }
  unsetenv("NO_COLOR");
  setenv("TERM", before.c_str(), 1);
  if (!ci_before.empty()) setenv("CI", ci_before.c_str(), 1);
  EXPECT_FALSE(traits.colour);
  EXPECT_TRUE(traits.animation);
}

TEST_F(RunViewTest, APanelThatWaitsWhenTheShowIsStoppedIsNotLeftOnTheScreen) {
  TerminalAsStdout terminal;
  terminal.SetColumns(80);
  const std::unique_ptr<RunView> view = View();
  ASSERT_OK(view->Update(Linked(), -1));
  ASSERT_OK(view->Update(Linked(), wake_[0]));  // Ctrl-Z comes before the frame is written
  ASSERT_OK(view->Suspend());
  view->Resume();
  ASSERT_OK(view->Update(Linked(), -1));
  ASSERT_OK(view->Update(Linked(), -1));
  int titles = 0;
  for (const std::string& row : RowsOf(terminal.Written())) {
    if (absl::StrContains(row, "amber-fox-1")) ++titles;
  }
  EXPECT_EQ(titles, 1);
}

TEST_F(RunViewTest, APanelThatWaitsWhileTheTerminalBecomesNarrowerErasesAllOfTheOldOne) {
  TerminalAsStdout terminal;
  terminal.SetColumns(80);
  const std::unique_ptr<RunView> view = View();
  ASSERT_OK(view->Update(Linked(), -1));        // one line of 79 columns
  ASSERT_OK(view->Update(Linked(), wake_[0]));  // a frame that waits
  terminal.SetColumns(30);                      // the line takes three rows now
  ASSERT_OK(view->Update(Linked(), -1));
  EXPECT_THAT(terminal.Written(), HasSubstr("\x1b[?2026h\r\x1b[2A\x1b[J"));
}

}  // namespace
}  // namespace gpuctl
