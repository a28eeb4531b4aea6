#include "common/job/lifecycle.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using Type = LifecycleEvent::Type;

LifecycleEvent Event(Type type, int attempt = 1) {
  LifecycleEvent event;
  event.type = type;
  event.attempt = attempt;
  return event;
}

LifecycleEvent Exited(int code, int attempt = 1) {
  LifecycleEvent event = Event(Type::kExited, attempt);
  event.exit_code = code;
  return event;
}

Lifecycle Parsed(const std::vector<LifecycleEvent>& events) {
  std::string text;
  for (const LifecycleEvent& event : events) text += FormatLifecycleEvent(event);
  return ParseLifecycle(text);
}

TEST(LifecycleEventTest, EveryTypeComesBackAsItWas) {
  LifecycleEvent event;
  event.attempt = 3;
  event.pid = 4711;
  event.start_time_ticks = 123456789012;
  event.boot_id = "b-1";
  event.gpus = std::vector<std::string>{"GPU-1", "GPU-2"};
  event.ticket = 8;
  event.exit_code = 7;
  event.reason = "limit:time";
  event.error = "exec \"x\"\n: no such file";
  event.not_before_ms = 99;
  event.first_offset = int64_t{1} << 40;
  event.dropped_bytes = 5;
  event.dropped_metric_lines = 6;
  event.output_size = 10;
  event.metrics_size = 11;
  event.time_ms = 12;
  for (const Type type : {Type::kStarted, Type::kStopping, Type::kExited, Type::kLost, Type::kRetry,
                          Type::kCut, Type::kDropped, Type::kQueued}) {
    event.type = type;
    const std::string line = FormatLifecycleEvent(event);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const auto back = ParseLifecycleEvent(line);
    ASSERT_OK(back);
    EXPECT_EQ(back->type, type);
    EXPECT_EQ(FormatLifecycleEvent(*back), line);
    EXPECT_EQ(back->output_size, 10);
  }
}

TEST(LifecycleEventTest, ALineHoldsOnlyWhatItsEventMeans) {
  LifecycleEvent event = Exited(0);
  event.pid = 5;
  EXPECT_EQ(FormatLifecycleEvent(event),
            "{\"event\":\"exited\",\"attempt\":1,\"exit_code\":0,\"output_size\":0,"
            "\"metrics_size\":0,\"time_ms\":0}\n");
  event.exit_code = -1;
  event.signal = 9;
  const std::string line = FormatLifecycleEvent(event);
  EXPECT_FALSE(absl::StrContains(line, "exit_code"));
  EXPECT_EQ(ParseLifecycleEvent(line)->exit_code, -1);
  EXPECT_EQ(ParseLifecycleEvent(line)->signal, 9);
}

TEST(LifecycleEventTest, BytesThatAreNoTextStayOneLine) {
  LifecycleEvent event = Event(Type::kStopping);
  event.reason = std::string("a\xff\n\0b", 5);
  const std::string line = FormatLifecycleEvent(event);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_OK(ParseLifecycleEvent(line));
}

// A node that sends nothing but newlines costs its reader no minutes.
TEST(LifecycleTest, SoManyLinesThatCannotBeReadEndIt) {
  const std::string end = "{\"event\":\"exited\",\"attempt\":1,\"exit_code\":0}\n";
  Lifecycle lifecycle = ParseLifecycle(absl::StrCat(std::string(kMaxSkippedLines - 1, '\n'), end));
  EXPECT_TRUE(IsOver(lifecycle));
  lifecycle = ParseLifecycle(absl::StrCat(std::string(4 << 20, '\n'), end));
  EXPECT_EQ(lifecycle.skipped_lines, kMaxSkippedLines);
  EXPECT_TRUE(lifecycle.events.empty());
}

// A code past a byte would be another one, or none, as gpuctl's own.
TEST(LifecycleEventTest, AnEndHasACodeOfOneByte) {
  for (const char* end : {"\"exit_code\":256", "\"exit_code\":-2", "\"exit_code\":2147483647",
                          "\"signal\":128", "\"signal\":-1", "\"signal\":2147483647"}) {
    const std::string line = absl::StrCat("{\"event\":\"exited\",\"attempt\":1,", end, "}");
    EXPECT_TRUE(absl::IsInvalidArgument(ParseLifecycleEvent(line).status())) << line;
  }
  for (const char* end : {"\"exit_code\":255", "\"signal\":127"}) {
    const auto event =
        ParseLifecycleEvent(absl::StrCat("{\"event\":\"exited\",\"attempt\":1,", end, "}"));
    ASSERT_OK(event);
    EXPECT_EQ(ShellExitCode(*event), 255);
  }
}

TEST(LifecycleEventTest, AnythingElseIsInvalid) {
  const std::string zeros(100, '\0');
  for (const std::string& line :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), zeros,
        std::string("{\"event\":1}"), std::string("{\"event\":\"frozen\",\"attempt\":1}"),
        std::string("{\"event\":\"exited\"}"), std::string("{\"event\":\"exited\",\"attempt\":0}"),
        std::string("{\"event\":\"exited\",\"attempt\":\"1\"}"),
        std::string("{\"event\":\"exited\",\"attempt\":1.5}"),
        std::string("{\"event\":\"exited\",\"attempt\":99999999999}"),
        std::string("{\"event\":\"exited\",\"attempt\":18446744073709551615}"),
        std::string("{\"event\":\"exited\",\"attempt\":1,\"reason\":7}"),
        std::string("{\"event\":\"exited\",\"attempt\":1,\"exit_co")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseLifecycleEvent(line).status())) << line;
  }
  EXPECT_OK(ParseLifecycleEvent("{\"event\":\"exited\",\"attempt\":1,\"exit_code\":0,\"new\":[]}"));
}

TEST(LifecycleTest, TornLinesAreCountedAndAnUnfinishedOneIsNot) {
  std::string text = FormatLifecycleEvent(Event(Type::kStarted));
  absl::StrAppend(&text, "{\"event\":\"exi\n", std::string(300, '\0'), "\n");
  absl::StrAppend(&text, FormatLifecycleEvent(Exited(0)), "{\"event\":\"retry\",\"attempt\":2}");
  const Lifecycle lifecycle = ParseLifecycle(text);
  EXPECT_EQ(lifecycle.skipped_lines, 2);
  ASSERT_EQ(lifecycle.events.size(), 2u);
  EXPECT_TRUE(IsOver(lifecycle));
}

TEST(LifecycleTest, StateComesFromTheLastStateEvent) {
  EXPECT_EQ(LastStateEvent(Lifecycle{}), nullptr);
  EXPECT_FALSE(IsOver(Lifecycle{}));
  EXPECT_EQ(LastStateEvent(Parsed({Event(Type::kStarted), Event(Type::kCut), Event(Type::kStopping),
                                   Event(Type::kDropped)}))
                ->type,
            Type::kStarted);
  EXPECT_FALSE(IsOver(Parsed({Event(Type::kStarted)})));
  EXPECT_TRUE(IsOver(Parsed({Event(Type::kStarted), Exited(1)})));
  EXPECT_TRUE(IsOver(Parsed({Event(Type::kStarted), Event(Type::kLost)})));
  EXPECT_FALSE(IsOver(Parsed({Event(Type::kStarted), Exited(1), Event(Type::kRetry, 2)})));
}

TEST(LifecycleTest, AQueuedLineIsNoStateAndBelongsToTheNextAttempt) {
  LifecycleEvent queued = Event(Type::kQueued, 1);
  queued.ticket = 4;
  queued.time_ms = 10;
  LifecycleEvent again = queued;
  again.time_ms = 20;
  again.reason = kSecretsReason;
  Lifecycle lifecycle = Parsed({queued, again});
  EXPECT_EQ(LastStateEvent(lifecycle), nullptr);
  EXPECT_FALSE(IsOver(lifecycle));
  ASSERT_NE(QueuedEvent(lifecycle), nullptr);
  EXPECT_EQ(QueuedEvent(lifecycle)->reason, kSecretsReason);
  EXPECT_EQ(QueuedEvent(lifecycle)->ticket, 4);
  EXPECT_EQ(QueuedSinceMs(lifecycle), 10);
  for (const Type type : {Type::kStarted, Type::kExited, Type::kLost}) {
    lifecycle = Parsed({queued, Event(type, 1)});
    EXPECT_EQ(QueuedEvent(lifecycle), nullptr);
    EXPECT_EQ(QueuedSinceMs(lifecycle), 0);
  }
  lifecycle = Parsed({queued, Event(Type::kLost, 1), Event(Type::kRetry, 2)});
  EXPECT_EQ(QueuedEvent(lifecycle), nullptr);
  queued.attempt = 2;
  lifecycle = Parsed({Event(Type::kLost, 1), Event(Type::kRetry, 2), queued});
  EXPECT_EQ(QueuedEvent(lifecycle)->attempt, 2);
}

TEST(LifecycleEventTest, NoListOfGpusIsNotAnEmptyOne) {
  LifecycleEvent started = Event(Type::kStarted, 1);
  EXPECT_FALSE(ParseLifecycleEvent(FormatLifecycleEvent(started))->gpus.has_value());
  started.gpus.emplace();
  EXPECT_TRUE(ParseLifecycleEvent(FormatLifecycleEvent(started))->gpus->empty());
  for (const char* gpus : {"7", "\"x\"", "[1]", "{}", "null"}) {
    EXPECT_FALSE(
        ParseLifecycleEvent(absl::StrCat(R"({"event":"started","attempt":1,"gpus":)", gpus, "}"))
            .ok())
        << gpus;
  }
}

TEST(LifecycleTest, ShellExitCode) {
  EXPECT_EQ(ShellExitCode(Exited(3)), 3);
  LifecycleEvent killed = Exited(-1);
  killed.signal = 9;
  EXPECT_EQ(ShellExitCode(killed), 137);
}

TEST(StopCauseTest, IsReadFromTheReasonInOnePlace) {
  EXPECT_EQ(StopCauseOf(""), StopCause::kNone);
  EXPECT_EQ(StopCauseOf("user"), StopCause::kUser);
  EXPECT_EQ(StopCauseOf("limit:time"), StopCause::kLimit);
  EXPECT_EQ(StopCauseOf("alert:loss is nan"), StopCause::kAlert);
  EXPECT_EQ(AlertOf("alert:loss is nan"), "loss is nan");
  EXPECT_EQ(AlertOf("limit:time"), "");
  EXPECT_EQ(StopCauseOf("limit:one of tomorrow"), StopCause::kLimit);
  EXPECT_EQ(StopCauseOf(kShutdownReason), StopCause::kShutdown);
  for (const char* other : {"users", "limit", "the limit:time", "User", "shutdown by hand"}) {
    EXPECT_EQ(StopCauseOf(other), StopCause::kOther) << other;
  }
  EXPECT_EQ(LimitOf("limit:cost"), "cost");
  EXPECT_EQ(LimitOf("user"), "");
}

gpuctl::v1::RetryPolicy Policy(int retries, std::initializer_list<const char*> on) {
  gpuctl::v1::RetryPolicy policy;
  policy.set_max_retries(retries);
  for (const char* word : on) policy.add_on(word);
  return policy;
}

TEST(RetryTest, OnlyWhatThePolicyNames) {
  const LifecycleEvent lost = Event(Type::kLost);
  EXPECT_FALSE(WantsRetry(Policy(3, {}), Exited(1)));
  EXPECT_TRUE(WantsRetry(Policy(3, {"failed"}), Exited(1)));
  EXPECT_FALSE(WantsRetry(Policy(3, {"failed"}), Exited(0)));
  EXPECT_FALSE(WantsRetry(Policy(3, {"failed"}), lost));
  EXPECT_TRUE(WantsRetry(Policy(3, {"lost"}), lost));
  EXPECT_FALSE(WantsRetry(Policy(3, {"lost"}), Exited(1)));
  EXPECT_TRUE(WantsRetry(Policy(3, {"exit:75"}), Exited(75)));
  EXPECT_FALSE(WantsRetry(Policy(3, {"exit:75"}), Exited(7)));
  LifecycleEvent killed = Exited(-1);
  killed.signal = 9;
  EXPECT_TRUE(WantsRetry(Policy(3, {"exit:137"}), killed));
  EXPECT_TRUE(WantsRetry(Policy(3, {"failed"}), killed));
}

TEST(RetryTest, NotMoreOftenThanAllowed) {
  EXPECT_FALSE(WantsRetry(Policy(0, {"failed"}), Exited(1, 1)));
  EXPECT_TRUE(WantsRetry(Policy(2, {"failed"}), Exited(1, 2)));
  EXPECT_FALSE(WantsRetry(Policy(2, {"failed"}), Exited(1, 3)));
}

TEST(RetryTest, AStopIsNeverRetriedButAShutdownCountsAsLost) {
  for (const char* reason : {"user", "limit:time", "limit:cost", "alert:loss is nan"}) {
    LifecycleEvent stopped = Exited(143);
    stopped.reason = reason;
    EXPECT_FALSE(WantsRetry(Policy(3, {"failed", "lost", "exit:143"}), stopped)) << reason;
  }
  LifecycleEvent shutdown = Exited(143);
  shutdown.reason = kShutdownReason;
  EXPECT_TRUE(WantsRetry(Policy(3, {"lost"}), shutdown));
  EXPECT_FALSE(WantsRetry(Policy(3, {"failed"}), shutdown));
}

TEST(RetryTest, DelayDoublesUpToTenMinutes) {
  gpuctl::v1::RetryPolicy policy;
  EXPECT_EQ(RetryDelayMs(policy, 5), 0);
  policy.set_backoff_ms(1000);
  EXPECT_EQ(RetryDelayMs(policy, 2), 1000);
  EXPECT_EQ(RetryDelayMs(policy, 3), 2000);
  EXPECT_EQ(RetryDelayMs(policy, 6), 16000);
  EXPECT_EQ(RetryDelayMs(policy, 1000000), 600000);
  policy.set_backoff_ms(INT64_MAX);
  EXPECT_EQ(RetryDelayMs(policy, 2), 600000);
  policy.set_backoff_ms(-1);
  EXPECT_EQ(RetryDelayMs(policy, 2), 0);
}

TEST(LifecycleTest, HostileLinesAreSkipped) {
  EXPECT_FALSE(ParseLifecycleEvent(std::string(1 << 20, '[')).ok());
  EXPECT_FALSE(ParseLifecycleEvent("{\"event\":\"started\",\"attempt\":1,\"boot_id\":\"" +
                                   std::string(100'000, 'x') + "\"}")
                   .ok());
  for (const char* number :
       {"9223372036854775807", "-9223372036854775808", "1152921504606846977"}) {
    EXPECT_FALSE(
        ParseLifecycleEvent(
            absl::StrCat(R"({"event":"exited","attempt":1,"exit_code":0,"time_ms":)", number, "}"))
            .ok())
        << number;
  }
}

}  // namespace
}  // namespace gpuctl
