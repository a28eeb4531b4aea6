#include "common/manifest.h"

#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "tests/matchers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using gpuctl::v1::Manifest;

FileEntry File(absl::string_view path, int64_t size = 1) {
  FileEntry entry;
  entry.set_path(std::string(path));
  entry.set_kind(FileEntry::KIND_FILE);
  entry.set_mode(0644);
  entry.set_size(size);
  entry.set_sha256(std::string(32, 'h'));
  return entry;
}

FileEntry Directory(absl::string_view path) {
  FileEntry entry;
  entry.set_path(std::string(path));
  entry.set_kind(FileEntry::KIND_DIRECTORY);
  entry.set_mode(0755);
  return entry;
}

FileEntry Symlink(absl::string_view path, absl::string_view target) {
  FileEntry entry;
  entry.set_path(std::string(path));
  entry.set_kind(FileEntry::KIND_SYMLINK);
  entry.set_mode(0777);
  entry.set_symlink_target(std::string(target));
  return entry;
}

Manifest Of(std::initializer_list<FileEntry> entries) {
  Manifest manifest;
  for (const FileEntry& entry : entries) *manifest.add_entries() = entry;
  return manifest;
}

// Both ways in: the message, and its bytes.
void ExpectRefused(const Manifest& manifest, absl::string_view why) {
  EXPECT_THAT(ValidateManifest(manifest), StatusIs(absl::StatusCode::kInvalidArgument)) << why;
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)),
              StatusIs(absl::StatusCode::kInvalidArgument))
      << why;
}

TEST(SafeRelativePath, Table) {
  for (const char* good :
       {"a", "a/b", ".hidden", "..a", "a..", "a/...", "-", " ", "a\nb", "\xff"}) {
    EXPECT_TRUE(IsSafeRelativePath(good)) << good;
  }
  for (const char* bad :
       {"", "/", "/a", "a/", "a//b", ".", "..", "a/.", "a/..", "../a", "a/../b"}) {
    EXPECT_FALSE(IsSafeRelativePath(bad)) << bad;
  }
  EXPECT_FALSE(IsSafeRelativePath(absl::string_view("a\0b", 3)));
}

TEST(Manifest, AcceptsATree) {
  const Manifest manifest = Of(
      {Directory("a"), File("a-b"), File("a/b"), Symlink("a/c", "../../etc/passwd"), File("z/y")});
  EXPECT_THAT(ValidateManifest(manifest), IsOk());
  const auto parsed = ParseManifest(SerializeManifest(manifest));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(ManifestDigest(*parsed), ManifestDigest(manifest));
  EXPECT_EQ(ContentBytes(manifest), 3);
  EXPECT_THAT(ValidateManifest(Manifest()), IsOk());
  EXPECT_THAT(ParseManifest(""), IsOk());
}

TEST(Manifest, DigestIsThatOfTheBytesOnTheWire) {
  // By hand: sha256 of nothing, and of the one entry {path: "a", kind: DIRECTORY, mode: 0755}.
  EXPECT_EQ(ManifestDigest(Manifest()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(SerializeManifest(Of({Directory("a")})), "\x0a\x08\x0a\x01\x61\x10\x02\x18\xed\x03");
  EXPECT_NE(ManifestDigest(Of({Directory("a")})), ManifestDigest(Of({Directory("b")})));
}

TEST(Manifest, RefusesWhatIsUnsafe) {
  for (const std::string& path :
       {std::string("../f"), std::string("/etc/passwd"), std::string("a/../../f"), std::string("."),
        std::string(""), std::string("a\0b", 3), std::string("a//b"), std::string(4097, 'x')}) {
    ExpectRefused(Of({File(path)}), path);
  }
  ExpectRefused(Of({File("b"), File("a")}), "unsorted");
  ExpectRefused(Of({File("a"), File("a")}), "twice");
  ExpectRefused(Of({Directory("a"), File("a")}), "twice, of two kinds");
  ExpectRefused(Of({Symlink("a", "/etc"), File("a/passwd")}), "below a symlink");
  ExpectRefused(Of({Symlink("a", "/etc"), File("a-b"), File("a/b/c")}), "deep below a symlink");
  ExpectRefused(Of({File("a"), File("a/b")}), "below a file");
  ExpectRefused(Of({File("a", int64_t{1} << 56), File("b", int64_t{1} << 56)}), "too much content");
}

TEST(Manifest, RefusesEntriesThatMakeNoSense) {
  const auto with = [](FileEntry entry, const std::function<void(FileEntry&)>& change) {
    change(entry);
    return Of({entry});
  };
  ExpectRefused(with(File("f"), [](FileEntry& e) { e.set_mode(04755); }), "setuid");
  ExpectRefused(with(File("f"), [](FileEntry& e) { e.set_size(-1); }), "negative size");
  ExpectRefused(with(File("f"), [](FileEntry& e) { e.set_sha256("short"); }), "short hash");
  ExpectRefused(with(File("f"), [](FileEntry& e) { e.set_symlink_target("t"); }), "file, target");
  ExpectRefused(with(File("f"), [](FileEntry& e) { e.set_kind(FileEntry::KIND_UNSPECIFIED); }),
                "no kind");
  ExpectRefused(with(File("f"), [](FileEntry& e) { e.set_kind(static_cast<FileEntry::Kind>(9)); }),
                "unknown kind");
  ExpectRefused(with(Directory("d"), [](FileEntry& e) { e.set_size(1); }), "directory with size");
  ExpectRefused(Of({Symlink("s", "")}), "no target");
  ExpectRefused(Of({Symlink("s", absl::string_view("a\0b", 3))}), "NUL in the target");
}

TEST(ParseManifest, RefusesBytesCutAnywhereButBetweenEntries) {
  const std::string first = SerializeManifest(Of({Directory("a")}));
  const std::string bytes = SerializeManifest(Of({Directory("a"), File("b")}));
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    const auto parsed = ParseManifest(bytes.substr(0, cut));
    EXPECT_EQ(parsed.ok(), cut == 0 || cut == first.size()) << cut;
  }
}

TEST(ParseManifest, RefusesForeignBytes) {
  EXPECT_FALSE(ParseManifest("\x12\x01\x61").ok());                  // another field
  EXPECT_FALSE(ParseManifest(absl::string_view("\0", 1)).ok());      // tag 0
  EXPECT_FALSE(ParseManifest("\x0a\xff\xff\xff\xff\x0f").ok());      // a length of 4 GiB
  EXPECT_FALSE(ParseManifest("\x0a\xff\xff\xff\xff\xff\xff").ok());  // an endless varint
  // Two bytes an entry would become a hundred times that in memory; the first one ends it.
  std::string empty_entries;
  for (int i = 0; i < 1 << 20; ++i) empty_entries.append("\x0a\0", 2);
  EXPECT_THAT(ParseManifest(empty_entries), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace gpuctl
