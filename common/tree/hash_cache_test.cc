#include "common/tree/hash_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/fake_clock.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

const HashCache::Hashes kHash = {std::string(32, 'h'), ""};
const HashCache::Hashes kOther = {std::string(32, 'o'), std::string(64, 'p')};

FileIdentity Settled() { return {1, 2, 3, 4, 5}; }

// Stores a cache with these records.
void Store(const std::string& path, Clock& clock,
           const std::vector<std::pair<std::string, HashCache::Hashes>>& files) {
  HashCache cache(path, clock);
  for (const auto& [file, hashes] : files) cache.Keep(file, Settled(), hashes);
  ASSERT_THAT(cache.Save(), IsOk());
}

TEST(HashCache, KeepsWhatItIsGivenAcrossProcesses) {
  TempDir dir;
  FakeClock clock;
  const std::string path = dir.Sub("deep/cache");
  {
    HashCache first(path, clock);
    EXPECT_EQ(first.Find("a", Settled()), std::nullopt);
    first.Keep("a", Settled(), kHash);
    first.Keep("a/b", Settled(), kOther);
    ASSERT_THAT(first.Save(), IsOk());
  }
  HashCache second(path, clock);
  EXPECT_EQ(second.Find("a", Settled()), kHash);
  EXPECT_EQ(second.Find("a/b", Settled()), kOther);
  EXPECT_EQ(second.Find("b", Settled()), std::nullopt);
}

TEST(HashCache, AnyPartOfTheIdentityCounts) {
  TempDir dir;
  FakeClock clock;
  Store(dir.Sub("cache"), clock, {{"a", kHash}});
  for (int part = 0; part < 5; ++part) {
    FileIdentity other = Settled();
    if (part == 0) ++other.device;
    if (part == 1) ++other.inode;
    if (part == 2) ++other.size;
    if (part == 3) ++other.mtime_ns;
    if (part == 4) ++other.ctime_ns;
    EXPECT_EQ(HashCache(dir.Sub("cache"), clock).Find("a", other), std::nullopt) << part;
  }
  EXPECT_EQ(HashCache(dir.Sub("cache"), clock).Find("b", Settled()), std::nullopt);
}

TEST(HashCache, DoesNotRememberFilesThatMayStillBeChanging) {
  TempDir dir;
  FakeClock clock;
  FileIdentity fresh = Settled();
  fresh.ctime_ns = absl::ToUnixNanos(clock.Now()) - 1'000'000'000;
  for (const bool settled : {false, true}) {
    HashCache cache(dir.Sub("cache"), clock);
    cache.Keep("a", fresh, kHash);
    ASSERT_THAT(cache.Save(), IsOk());
    EXPECT_EQ(HashCache(dir.Sub("cache"), clock).Find("a", fresh).has_value(), settled);
    clock.Advance(absl::Seconds(5));
  }
}

TEST(HashCache, FindsWhatComesInOrderAndPassesOverTheRest) {
  TempDir dir;
  FakeClock clock;
  Store(dir.Sub("cache"), clock, {{"a", kHash}, {"a/x", kOther}, {"a-b", kHash}, {"c", kOther}});
  HashCache cache(dir.Sub("cache"), clock);
  EXPECT_EQ(cache.Find("a/w", Settled()), std::nullopt);
  EXPECT_EQ(cache.Find("a/x", Settled()), kOther);
  EXPECT_EQ(cache.Find("b", Settled()), std::nullopt);
  EXPECT_EQ(cache.Find("a-b", Settled()), std::nullopt);  // passed over
  EXPECT_EQ(cache.Find("c", Settled()), kOther);
}

TEST(HashCache, ForgetsWhatWasNotKept) {
  TempDir dir;
  FakeClock clock;
  const std::string path = dir.Sub("cache");
  Store(path, clock, {{"gone", kOther}, {"kept", kHash}, {"last", kOther}});
  {
    HashCache cache(path, clock);
    EXPECT_EQ(cache.Find("kept", Settled()), kHash);
    cache.Keep("kept", Settled(), kHash);
    ASSERT_THAT(cache.Save(), IsOk());
  }
  EXPECT_EQ(HashCache(path, clock).Find("kept", Settled()), kHash);
  EXPECT_EQ(HashCache(path, clock).Find("gone", Settled()), std::nullopt);
  EXPECT_EQ(HashCache(path, clock).Find("last", Settled()), std::nullopt);
}

TEST(HashCache, AFileThatWasReplacedIsRememberedAsItIsNow) {
  TempDir dir;
  FakeClock clock;
  const std::string path = dir.Sub("cache");
  Store(path, clock, {{"a", kHash}, {"b", kHash}});
  FileIdentity replaced = Settled();
  ++replaced.inode;
  HashCache second(path, clock);
  EXPECT_EQ(second.Find("a", Settled()), kHash);
  EXPECT_EQ(second.Find("b", Settled()), kHash);
  second.Keep("a", replaced, kOther);
  second.Keep("b", Settled(), kHash);
  ASSERT_THAT(second.Save(), IsOk());
  HashCache third(path, clock);
  EXPECT_EQ(third.Find("a", replaced), kOther);
  EXPECT_EQ(third.Find("b", Settled()), kHash);
}

TEST(HashCache, WithoutSaveNothingChanges) {
  TempDir dir;
  FakeClock clock;
  Store(dir.Sub("cache"), clock, {{"a", kHash}});
  {
    HashCache cache(dir.Sub("cache"), clock);
    cache.Keep("b", Settled(), kOther);
  }
  EXPECT_EQ(HashCache(dir.Sub("cache"), clock).Find("a", Settled()), kHash);
  EXPECT_EQ(dir.Names(), std::vector<std::string>{"cache"});
}

TEST(HashCache, ADamagedFileIsIgnoredAndReplaced) {
  TempDir dir;
  FakeClock clock;
  const std::string path = dir.Sub("cache");
  Store(path, clock, {{"a", kHash}});
  const std::string whole = ReadFileToString(path).value();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    dir.Write("cache", damaged);
    EXPECT_EQ(HashCache(path, clock).Find("a", Settled()), std::nullopt) << "changed at " << at;
    dir.Write("cache", whole.substr(0, at));
    EXPECT_EQ(HashCache(path, clock).Find("a", Settled()), std::nullopt) << "cut at " << at;
  }
  Store(path, clock, {{"a", kOther}});
  EXPECT_EQ(HashCache(path, clock).Find("a", Settled()), kOther);
}

TEST(HashCache, AnUnchangedCacheIsNotWritten) {
  TempDir dir;
  FakeClock clock;
  const std::string path = dir.Sub("cache");
  Store(path, clock, {{"a", kHash}});
  struct stat before {};
  struct stat after {};
  ASSERT_EQ(stat(path.c_str(), &before), 0);
  HashCache cache(path, clock);
  ASSERT_TRUE(cache.Find("a", Settled()).has_value());
  cache.Keep("a", Settled(), kHash);
  ASSERT_THAT(cache.Save(), IsOk());
  ASSERT_EQ(stat(path.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

}  // namespace
}  // namespace gpuctl
