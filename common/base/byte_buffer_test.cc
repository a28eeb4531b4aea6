#include "common/base/byte_buffer.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuctl {
namespace {

void Append(ByteBuffer& buffer, const std::string& bytes) {
  memcpy(buffer.Prepare(bytes.size()), bytes.data(), bytes.size());
  buffer.Commit(bytes.size());
}

TEST(ByteBuffer, GivesOutWhatCameInInOrder) {
  ByteBuffer buffer;
  std::string all;
  std::string out;
  for (int i = 0; i < 2000; ++i) {
    const std::string bytes(static_cast<size_t>(1 + i % 97), static_cast<char>('a' + i % 26));
    Append(buffer, bytes);
    all += bytes;
    const size_t taken = static_cast<size_t>(i % 61) % (buffer.size() + 1);
    out.append(buffer.data(), taken);
    buffer.RemovePrefix(taken);
  }
  out += std::string(buffer.view());
  EXPECT_EQ(out, all);
}

TEST(ByteBuffer, PutsBytesBeforeThoseThereAre) {
  for (const size_t room : {0u, 1u, 5u, 1000u}) {
    ByteBuffer buffer;
    buffer.ClearForPrepend(room);
    EXPECT_EQ(buffer.size(), 0u);
    Append(buffer, "world");
    buffer.Prepend("hello ");
    EXPECT_EQ(buffer.view(), "hello world") << room;
    buffer.RemovePrefix(6);
    buffer.Prepend(std::string(3000, 'x'));
    EXPECT_EQ(buffer.view(), std::string(3000, 'x') + "world") << room;
    buffer.Prepend("");
    Append(buffer, "!");
    EXPECT_EQ(buffer.view(), std::string(3000, 'x') + "world!") << room;
  }
}

TEST(ByteBuffer, SwapsWithAnother) {
  ByteBuffer one;
  ByteBuffer other;
  Append(one, "one");
  one.Swap(other);
  EXPECT_EQ(one.size(), 0u);
  EXPECT_EQ(other.view(), "one");
  Append(one, "again");
  EXPECT_EQ(one.view(), "again");
}

}  // namespace
}  // namespace gpuctl
