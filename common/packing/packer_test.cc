#include "common/packing/packer.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/fake_clock.h"
#include "tests/support/matchers.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Packed;

// Text that compresses, another for each seed.
std::string Text(size_t size, uint64_t seed) {
  const std::string random = RandomBytes(size / 4 + 8, seed);
  std::string text;
  for (size_t i = 0; text.size() < size; ++i) {
    absl::StrAppend(&text, "word", static_cast<int>(random[i]) & 63, " ");
  }
  text.resize(size);
  return text;
}

std::string Unpacked(Unpacker& unpacker, const Packed& packed) {
  std::string frames;
  EXPECT_OK(unpacker.Unpack(packed, frames));
  return frames;
}

TEST(Packer, FramesOfAnOlderPeerStandAlone) {
  Packer packer;
  for (uint64_t seed = 1; seed < 4; ++seed) {
    Packed packed;
    const std::string text = Text(100'000, seed);
    ASSERT_TRUE(packer.Pack(text, packed));
    EXPECT_FALSE(packed.stream());
    Unpacker unpacker;
    EXPECT_TRUE(Unpacked(unpacker, packed) == text);
  }
  Packed packed;
  EXPECT_FALSE(packer.Pack(RandomBytes(100'000, 1), packed));
}

TEST(Packer, AStreamRefersToWhatWasSentBefore) {
  Packer packer;
  packer.UseStream();
  Unpacker unpacker;
  const std::string once = RandomBytes(700'000, 1);
  for (int i = 0; i < 12; ++i) {
    // Also what does not compress, and little of it.
    const std::string frames = i % 4 == 3 ? Text(1000, static_cast<uint64_t>(i)) : once;
    Packed packed;
    ASSERT_TRUE(packer.Pack(frames, packed));
    EXPECT_TRUE(packed.stream());
    EXPECT_LT(packed.zstd().size(), i == 0 ? 701'000u : 3'000u) << i;
    EXPECT_TRUE(Unpacked(unpacker, packed) == frames) << i;
  }
}

TEST(Packer, NothingGetsLargerThanAFrame) {
  Packer packer;
  packer.UseStream();
  Packed packed;
  EXPECT_FALSE(packer.Pack(RandomBytes(kMaxPackedBytes, 1), packed));
  ASSERT_TRUE(packer.Pack(RandomBytes(kMaxPackedBytes - 1024, 2), packed));
  EXPECT_LT(packed.ByteSizeLong() + 16, kMaxPackedBytes);
  EXPECT_FALSE(packer.Pack("short", packed));
}

TEST(Packer, ItsEffortFollowsTheLink) {
  FakeClock clock;
  Packer packer(clock);
  packer.UseStream();
  Unpacker unpacker;
  uint64_t seed = 0;
  const auto send = [&](absl::Duration took) {
    Packed packed;
    const std::string text = Text(50'000, ++seed);
    ASSERT_TRUE(packer.Pack(text, packed));
    ASSERT_TRUE(Unpacked(unpacker, packed) == text) << seed;
    packer.Sent(took);
  };
  EXPECT_EQ(packer.level(), 3);
  // The clock stands still while it packs, so the link is slower.
  for (int i = 0; i < 2; ++i) send(absl::Milliseconds(40));
  EXPECT_EQ(packer.level(), 6);
  for (int i = 0; i < 20; ++i) send(absl::Milliseconds(40));
  EXPECT_EQ(packer.level(), 9);
  // Without a link that takes time there is nothing to judge.
  for (int i = 0; i < 20; ++i) send(absl::ZeroDuration());
  EXPECT_EQ(packer.level(), 9);
}

// A clock that goes on whenever it is read, as if packing took that long.
class GoingClock : public FakeClock {
 public:
  absl::Duration SinceBoot() override {
    at_ += absl::Milliseconds(50);
    return at_;
  }

 private:
  absl::Duration at_;
};

TEST(Packer, ItTakesLessEffortWhereTheProcessorIsSlower) {
  GoingClock clock;
  Packer packer(clock);
  packer.UseStream();
  Unpacker unpacker;
  for (uint64_t i = 0; i < 6; ++i) {
    Packed packed;
    const std::string text = Text(50'000, i);
    ASSERT_TRUE(packer.Pack(text, packed));
    ASSERT_TRUE(Unpacked(unpacker, packed) == text) << i;
    packer.Sent(absl::Milliseconds(1));
  }
  EXPECT_EQ(packer.level(), 1);
}

TEST(Unpacker, RefusesAStreamThatIsNone) {
  Packer packer;
  packer.UseStream();
  Packed first, second;
  ASSERT_TRUE(packer.Pack(Text(100'000, 1), first));
  ASSERT_TRUE(packer.Pack(Text(100'000, 2), second));
  std::string frames;
  const auto read = [&](const Packed& packed) { return Unpacker().Unpack(packed, frames); };
  EXPECT_OK(read(first));
  EXPECT_THAT(read(second), StatusIs(kInvalid));  // it goes on with something else
  for (const int off : {-1, 1}) {
    Packed other = first;
    other.set_size(static_cast<uint32_t>(100'000 + off));
    EXPECT_THAT(read(other), StatusIs(kInvalid)) << off;
    EXPECT_TRUE(frames.empty());
  }
  Packed other = first;
  other.mutable_zstd()->resize(first.zstd().size() / 2);
  EXPECT_THAT(read(other), StatusIs(kInvalid));
  other.set_zstd("not zstd");
  EXPECT_THAT(read(other), StatusIs(kInvalid));
  other.clear_zstd();
  EXPECT_THAT(read(other), StatusIs(kInvalid));
  other.set_size(0xffffffff);
  EXPECT_THAT(read(other), StatusIs(kInvalid));
  // Much from little.
  std::string bomb(ZSTD_compressBound(64 << 20), '\0');
  const std::string zeros(64 << 20, '\0');
  bomb.resize(ZSTD_compress(bomb.data(), bomb.size(), zeros.data(), zeros.size(), 1));
  other.set_zstd(bomb);
  other.set_size(1 << 20);
  EXPECT_THAT(read(other), StatusIs(kInvalid));
}

// The window is the memory that a peer can make us take.
TEST(Unpacker, RefusesAWindowOfMoreThanEightMebibytes) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 24);
  const std::string text = Text(1000, 1);
  Packed packed;
  packed.set_stream(true);
  packed.set_size(1000);
  packed.mutable_zstd()->resize(2000);
  ZSTD_inBuffer in{text.data(), text.size(), 0};
  ZSTD_outBuffer out{packed.mutable_zstd()->data(), 2000, 0};
  ASSERT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush), 0u);
  ZSTD_freeCCtx(context);
  packed.mutable_zstd()->resize(out.pos);
  std::string frames;
  Unpacker unpacker;
  EXPECT_THAT(unpacker.Unpack(packed, frames), StatusIs(kInvalid));
}

}  // namespace
}  // namespace gpuctl
