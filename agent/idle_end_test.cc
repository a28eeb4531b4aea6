#include "agent/idle_end.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "agent/base/node_root.h"
#include "agent/limits/contact.h"
#include "common/base/fake_clock.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

class IdleEndTest : public ::testing::Test {
 protected:
  IdleEndTest() : paths_(PrepareNodeRoot(dir_.Sub("node")).value()) {
    // Terminal sessions of this computer are none of the test's.
    setenv("GPUCTL_PROC", dir_.path().c_str(), 1);
  }
  ~IdleEndTest() override { unsetenv("GPUCTL_PROC"); }

  void Accept(const std::string& id) {
    StoredSpec stored;
    stored.spec.set_job_id(id);
    stored.spec.add_argv("true");
    stored.spec_digest = SpecDigest(stored.spec);
    dir_.Write(absl::StrCat("node/jobs/", id, "/spec.json"), FormatStoredSpec(stored));
  }
  void Append(const std::string& id, LifecycleEvent::Type type) {
    LifecycleEvent event;
    event.type = type;
    event.attempt = 1;
    if (type == LifecycleEvent::Type::kExited) event.exit_code = 0;
    StreamWriter writer = StreamWriter::Open(paths_.Job(id).lifecycle, PlainShape()).value();
    ASSERT_OK(writer.Append(FormatLifecycleEvent(event)));
  }
  // True when it is due within `time` from now; the clock moves by that time or to that moment.
  bool DueWithin(IdleEnd& end, absl::Duration time) {
    for (absl::Duration passed; passed <= time; passed += absl::Minutes(1)) {
      if (end.IsDue()) return true;
      clock_.Advance(absl::Minutes(1));
    }
    return false;
  }

  TempDir dir_;
  FakeClock clock_;
  const RootPaths paths_;
};

TEST_F(IdleEndTest, NobodyForAnHourIsTheEnd) {
  IdleEnd end(paths_, absl::Hours(1), clock_);
  EXPECT_FALSE(DueWithin(end, absl::Minutes(57)));
  EXPECT_TRUE(DueWithin(end, absl::Minutes(5)));
}

TEST_F(IdleEndTest, AContactThatLooksNeverSawCounts) {
  IdleEnd end(paths_, absl::Hours(1), clock_);
  EXPECT_FALSE(DueWithin(end, absl::Minutes(50)));
  { const Contact brief(paths_, clock_); }
  EXPECT_FALSE(DueWithin(end, absl::Minutes(50)));
  EXPECT_TRUE(DueWithin(end, absl::Minutes(15)));
}

TEST_F(IdleEndTest, AContactThatLastsIsNoEnd) {
  IdleEnd end(paths_, absl::Hours(1), clock_);
  std::optional<Contact> lasting(std::in_place, paths_, clock_);
  EXPECT_FALSE(DueWithin(end, absl::Hours(5)));
  lasting.reset();
  EXPECT_TRUE(DueWithin(end, absl::Minutes(65)));
}

TEST_F(IdleEndTest, AJobThatRunsOrWaitsIsNoEnd) {
  Accept("j-1");
  auto lock = std::make_unique<UniqueFd>(TryLock(paths_.Job("j-1").lock).value());
  Append("j-1", LifecycleEvent::Type::kStarted);
  IdleEnd end(paths_, absl::Hours(1), clock_);
  EXPECT_FALSE(DueWithin(end, absl::Hours(5)));
  Append("j-1", LifecycleEvent::Type::kExited);
  lock.reset();
  Accept("j-2");  // accepted, and not started yet
  EXPECT_FALSE(DueWithin(end, absl::Hours(5)));
  Append("j-2", LifecycleEvent::Type::kExited);
  EXPECT_TRUE(DueWithin(end, absl::Minutes(65)));
}

TEST_F(IdleEndTest, ARentedMachineKeepsItsGuard) {
  IdleEnd end(paths_, absl::Hours(1), clock_);
  ASSERT_OK(WriteFileAtomic(paths_.limits, "{}"));
  EXPECT_FALSE(DueWithin(end, absl::Hours(100)));
}

}  // namespace
}  // namespace gpuctl
