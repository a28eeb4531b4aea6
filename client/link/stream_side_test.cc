#include <gtest/gtest.h>
#include <poll.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/link/local_side.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

std::unique_ptr<StreamSide> MakeSide() { return StreamSide::Make().value(); }

std::string Take(ByteBuffer& buffer) {
  std::string bytes(buffer.view());
  buffer.Clear();
  return bytes;
}

ByteBuffer BufferOf(absl::string_view bytes) {
  ByteBuffer buffer;
  memcpy(buffer.Prepare(bytes.size()), bytes.data(), bytes.size());
  buffer.Commit(bytes.size());
  return buffer;
}

bool IsReadable(const pollfd& waited) {
  pollfd now = waited;
  return poll(&now, 1, 0) == 1;
}

TEST(StreamSide, WhatWasGivenIsReceivedBehindTheRestOfAFrame) {
  const auto side = MakeSide();
  EXPECT_EQ(side->Give("one "), 4u);
  EXPECT_EQ(side->Give("two"), 3u);
  ByteBuffer received;
  ASSERT_THAT(side->Receive(received), IsOk());
  EXPECT_EQ(received.view(), "one two");
  received.RemovePrefix(4);
  EXPECT_EQ(side->Give(" three"), 6u);
  ASSERT_THAT(side->Receive(received), IsOk());
  EXPECT_EQ(received.view(), "two three");
}

TEST(StreamSide, AReceiverWaitsForBytesAndForTheEnd) {
  const auto side = MakeSide();
  std::string all;
  std::thread receiver([&] {
    ByteBuffer received;
    while (side->Receive(received).ok()) all += Take(received);
  });
  for (int i = 0; i < 1000; ++i) {
    const std::string bytes = absl::StrCat(i, " ");
    ASSERT_EQ(side->Give(bytes), bytes.size());
  }
  side->EndInput();
  receiver.join();
  EXPECT_EQ(all.substr(all.size() - 8), "998 999 ");
  ByteBuffer received;
  EXPECT_THAT(side->Receive(received), StatusIs(kUnavailable));
}

TEST(StreamSide, AFullSideTakesNoMoreAndWakesThePumpOnceItIsRead) {
  const auto side = MakeSide();
  const std::string block(1 << 20, 'b');
  size_t taken = 0;
  for (size_t got = 1; got > 0; taken += got) got = side->Give(block);
  EXPECT_LE(taken, size_t{4} << 20);
  EXPECT_FALSE(side->HasRoom());
  pollfd waited{};
  ASSERT_TRUE(side->BeforeSleep(false, true, waited));
  EXPECT_FALSE(IsReadable(waited));
  ByteBuffer received;
  ASSERT_THAT(side->Receive(received), IsOk());
  EXPECT_EQ(received.size(), taken);
  EXPECT_TRUE(IsReadable(waited));
  waited.revents = POLLIN;
  side->AfterSleep(waited);
  EXPECT_FALSE(IsReadable(waited));
  EXPECT_TRUE(side->HasRoom());
  // There is room, so the pump must not sleep for it.
  EXPECT_FALSE(side->BeforeSleep(false, true, waited));
  // GiveAll takes the held-back bytes of libssh even when there is no room.
  while (side->Give(block) > 0) {
  }
  side->GiveAll(block);
  received.Clear();
  ASSERT_THAT(side->Receive(received), IsOk());
  EXPECT_EQ(received.size(), taken + block.size());
}

TEST(StreamSide, ASenderWakesThePumpAndWaitsWhenItIsAhead) {
  const auto side = MakeSide();
  EXPECT_EQ(side->ToSend(), "");
  pollfd waited{};
  ASSERT_TRUE(side->BeforeSleep(true, false, waited));
  ByteBuffer first = BufferOf("first");
  ASSERT_THAT(side->Send(first), IsOk());
  EXPECT_EQ(first.size(), 0u);
  EXPECT_TRUE(IsReadable(waited));
  waited.revents = POLLIN;
  side->AfterSleep(waited);
  // There is something to send, so the pump must not sleep.
  EXPECT_FALSE(side->BeforeSleep(true, false, waited));
  EXPECT_EQ(side->ToSend(), "first");
  side->Sent(2);
  EXPECT_EQ(side->ToSend(), "rst");
  std::thread sender([&] {
    for (int i = 0; i < 100; ++i) {
      ByteBuffer next = BufferOf(absl::StrCat(" ", i));
      ASSERT_THAT(side->Send(next), IsOk());
    }
  });
  std::string all;
  while (all.size() < 3 + 10 * 2 + 90 * 3) {
    const absl::string_view bytes = side->ToSend();
    all.append(bytes.data(), bytes.size());
    side->Sent(bytes.size());
  }
  sender.join();
  EXPECT_EQ(all.substr(0, 9), "rst 0 1 2");
  EXPECT_EQ(all.substr(all.size() - 6), " 98 99");
}

TEST(StreamSide, ThePumpsEndFreesWhoeverWaits) {
  const auto side = MakeSide();
  EXPECT_EQ(side->Give("last words"), 10u);
  std::thread sender([&] {
    absl::Status status;
    while (status.ok()) {
      ByteBuffer more = BufferOf("more");
      status = side->Send(more);
      EXPECT_EQ(more.size(), 0u);
    }
    EXPECT_THAT(status, StatusIs(kUnavailable));
  });
  side->Close();
  sender.join();
  // The earlier bytes are still there.
  ByteBuffer received;
  ASSERT_THAT(side->Receive(received), IsOk());
  EXPECT_EQ(Take(received), "last words");
  EXPECT_THAT(side->Receive(received), StatusIs(kUnavailable));
}

}  // namespace
}  // namespace gpuctl
