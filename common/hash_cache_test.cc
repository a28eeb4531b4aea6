#include "common/hash_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "common/fake_clock.h"
#include "common/files.h"
#include "tests/matchers.h"
#include "tests/temp_dir.h"

namespace gpuctl {
namespace {

const std::string kHash(32, 'h');
const std::string kOther(32, 'o');

FileIdentity Settled() { return {1, 2, 3, 4, 5}; }

TEST(HashCache, KeepsWhatItIsGivenAcrossProcesses) {
  TempDir dir;
  FakeClock clock;
  HashCache first(dir.Sub("deep/cache"), clock);
  EXPECT_EQ(first.Find("a", Settled()), std::nullopt);
  first.Put("a", Settled(), kHash);
  EXPECT_EQ(first.Find("a", Settled()), kHash);
  ASSERT_THAT(first.Save(), IsOk());

  HashCache second(dir.Sub("deep/cache"), clock);
  EXPECT_EQ(second.Find("a", Settled()), kHash);
}

TEST(HashCache, AnyPartOfTheIdentityCounts) {
  TempDir dir;
  FakeClock clock;
  HashCache cache(dir.Sub("cache"), clock);
  cache.Put("a", Settled(), kHash);
  for (int part = 0; part < 5; ++part) {
    FileIdentity other = Settled();
    if (part == 0) ++other.device;
    if (part == 1) ++other.inode;
    if (part == 2) ++other.size;
    if (part == 3) ++other.mtime_ns;
    if (part == 4) ++other.ctime_ns;
    EXPECT_EQ(cache.Find("a", other), std::nullopt) << part;
  }
  EXPECT_EQ(cache.Find("b", Settled()), std::nullopt);
}

TEST(HashCache, DoesNotRememberFilesThatMayStillBeChanging) {
  TempDir dir;
  FakeClock clock;
  HashCache cache(dir.Sub("cache"), clock);
  FileIdentity fresh = Settled();
  fresh.ctime_ns = absl::ToUnixNanos(clock.Now()) - 1'000'000'000;
  cache.Put("a", fresh, kHash);
  EXPECT_EQ(cache.Find("a", fresh), std::nullopt);
  clock.Advance(absl::Seconds(5));
  cache.Put("a", fresh, kHash);
  EXPECT_EQ(cache.Find("a", fresh), kHash);
}

TEST(HashCache, ForgetsWhatWasNotUsed) {
  TempDir dir;
  FakeClock clock;
  {
    HashCache cache(dir.Sub("cache"), clock);
    cache.Put("kept", Settled(), kHash);
    cache.Put("gone", Settled(), kOther);
    ASSERT_THAT(cache.Save(), IsOk());
  }
  {
    HashCache cache(dir.Sub("cache"), clock);
    EXPECT_EQ(cache.Find("kept", Settled()), kHash);
    ASSERT_THAT(cache.Save(), IsOk());
  }
  HashCache cache(dir.Sub("cache"), clock);
  EXPECT_EQ(cache.Find("kept", Settled()), kHash);
  EXPECT_EQ(cache.Find("gone", Settled()), std::nullopt);
}

TEST(HashCache, ADamagedFileIsIgnoredAndReplaced) {
  TempDir dir;
  FakeClock clock;
  const std::string path = dir.Sub("cache");
  {
    HashCache cache(path, clock);
    cache.Put("a", Settled(), kHash);
    ASSERT_THAT(cache.Save(), IsOk());
  }
  const std::string whole = ReadFileToString(path).value();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    dir.Write("cache", damaged);
    EXPECT_EQ(HashCache(path, clock).Find("a", Settled()), std::nullopt) << "changed at " << at;
    dir.Write("cache", whole.substr(0, at));
    EXPECT_EQ(HashCache(path, clock).Find("a", Settled()), std::nullopt) << "cut at " << at;
  }
  HashCache cache(path, clock);
  cache.Put("a", Settled(), kOther);
  ASSERT_THAT(cache.Save(), IsOk());
  EXPECT_EQ(HashCache(path, clock).Find("a", Settled()), kOther);
}

TEST(HashCache, AnUnchangedCacheIsNotWritten) {
  TempDir dir;
  FakeClock clock;
  const std::string path = dir.Sub("cache");
  {
    HashCache cache(path, clock);
    cache.Put("a", Settled(), kHash);
    ASSERT_THAT(cache.Save(), IsOk());
  }
  struct stat before {};
  struct stat after {};
  ASSERT_EQ(stat(path.c_str(), &before), 0);
  HashCache cache(path, clock);
  ASSERT_TRUE(cache.Find("a", Settled()).has_value());
  ASSERT_THAT(cache.Save(), IsOk());
  ASSERT_EQ(stat(path.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

}  // namespace
}  // namespace gpuctl
