#include "common/tree/manifest.h"

#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "common/files/sha256.h"
#include "tests/support/matchers.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

FileEntry File(absl::string_view path, int64_t size = 1) {
  FileEntry entry = FileOf(path, "");
  entry.set_size(size);
  if (size > kPartBytes) {
    entry.set_part_sha256(std::string(static_cast<size_t>(PartCount(size)) * 32, 'h'));
    entry.set_sha256(Sha256Of(entry.part_sha256()));
  }
  return entry;
}

Manifest Of(std::initializer_list<FileEntry> entries) { return ManifestOf(entries); }

// Expects that both ValidateManifest and ParseManifest refuse it.
void ExpectRefused(const Manifest& manifest, absl::string_view why) {
  EXPECT_THAT(ValidateManifest(manifest), StatusIs(absl::StatusCode::kInvalidArgument)) << why;
  EXPECT_THAT(ParseManifest(manifest.bytes()), StatusIs(absl::StatusCode::kInvalidArgument)) << why;
}

TEST(Manifest, AcceptsATree) {
  const Manifest manifest = Of({DirectoryOf("a"), File("a/b"), SymlinkOf("a/c", "../../etc/passwd"),
                                File("a-b"), File("z/y")});
  EXPECT_THAT(ValidateManifest(manifest), IsOk());
  const auto parsed = ParseManifest(manifest.bytes());
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(parsed->Digest(), manifest.Digest());
  EXPECT_EQ(manifest.content_bytes(), 3);
  EXPECT_THAT(ValidateManifest(Manifest()), IsOk());
  EXPECT_THAT(ParseManifest(""), IsOk());
}

TEST(Manifest, DigestIsThatOfTheBytesOnTheWire) {
  // Made by hand: sha256 of nothing, and of the one entry {path: "a", kind: DIRECTORY, mode: 0755}.
  EXPECT_EQ(Manifest().Digest(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Of({DirectoryOf("a")}).bytes(), "\x0a\x08\x0a\x01\x61\x10\x02\x18\xed\x03");
  EXPECT_NE(Of({DirectoryOf("a")}).Digest(), Of({DirectoryOf("b")}).Digest());
}

TEST(Manifest, GivesEachEntryBack) {
  const std::vector<FileEntry> entries = {DirectoryOf("a"), SymlinkOf("a/l", "t"),
                                          File("b", 5 * kPartBytes)};
  const Manifest manifest = ManifestOf(entries);
  ASSERT_EQ(manifest.size(), 3);
  int64_t i = 0;
  for (const FileEntry& entry : manifest) {
    EXPECT_EQ(entry.SerializeAsString(), entries[static_cast<size_t>(i)].SerializeAsString());
    EXPECT_EQ(manifest[i++].SerializeAsString(), entry.SerializeAsString());
  }
  EXPECT_EQ(manifest.content_bytes(), 5 * kPartBytes);
}

TEST(Manifest, PartsHaveTheirHashes) {
  FileEntry entry;
  SetHashes("", entry);
  EXPECT_EQ(entry.sha256(), Sha256Of(""));
  EXPECT_EQ(entry.part_sha256(), "");
  const std::string one(32, '1');
  const std::string two(32, '2');
  SetHashes(one + two, entry);
  EXPECT_EQ(entry.sha256(), Sha256Of(one + two));
  EXPECT_EQ(PartHash(entry, 0), one);
  EXPECT_EQ(PartHash(entry, 1), two);
  SetHashes(two, entry);
  EXPECT_EQ(entry.sha256(), two);
  EXPECT_EQ(PartHash(entry, 0), two);
  EXPECT_EQ(PartCount(0), 0);
  EXPECT_EQ(PartCount(1), 1);
  EXPECT_EQ(PartCount(kPartBytes), 1);
  EXPECT_EQ(PartCount(kPartBytes + 1), 2);
}

TEST(Manifest, RefusesWhatIsUnsafe) {
  for (const std::string& path :
       {std::string("../f"), std::string("/etc/passwd"), std::string("a/../../f"), std::string("."),
        std::string(""), std::string("a\0b", 3), std::string("a//b"), std::string(4097, 'x')}) {
    ExpectRefused(Of({File(path)}), path);
  }
  ExpectRefused(Of({File("b"), File("a")}), "unsorted");
  ExpectRefused(Of({File("a"), File("a")}), "twice");
  ExpectRefused(Of({DirectoryOf("a"), File("a")}), "twice, of two kinds");
  ExpectRefused(Of({SymlinkOf("a", "/etc"), File("a/passwd")}), "below a symlink");
  ExpectRefused(Of({SymlinkOf("a", "/etc"), File("a/b/c")}), "deep below a symlink");
  ExpectRefused(Of({SymlinkOf("a", "/etc"), File("a-b"), File("a/b/c")}),
                "below, and out of order");
  ExpectRefused(Of({File("a"), File("a/b")}), "below a file");
  FileEntry huge = File("a");
  huge.set_size(int64_t{1} << 57);
  ExpectRefused(Of({huge}), "too much content");
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
  ExpectRefused(with(File("f"), [](FileEntry& e) { e.set_part_sha256(std::string(32, 'h')); }),
                "a small file in parts");
  const FileEntry large = File("f", 3 * kPartBytes + 1);
  EXPECT_THAT(ValidateManifest(Of({large})), IsOk());
  ExpectRefused(with(large, [](FileEntry& e) { e.clear_part_sha256(); }), "no parts");
  ExpectRefused(with(large, [](FileEntry& e) { e.mutable_part_sha256()->append(32, 'h'); }),
                "a part too many");
  ExpectRefused(with(large, [](FileEntry& e) { (*e.mutable_part_sha256())[40] ^= 1; }),
                "parts that are not the file's");
  ExpectRefused(with(large, [](FileEntry& e) { e.set_size(2 * kPartBytes); }), "fewer parts");
  ExpectRefused(with(DirectoryOf("d"), [](FileEntry& e) { e.set_size(1); }), "directory with size");
  ExpectRefused(Of({SymlinkOf("s", "")}), "no target");
  ExpectRefused(Of({SymlinkOf("s", absl::string_view("a\0b", 3))}), "NUL in the target");
}

TEST(ParseManifest, RefusesBytesCutAnywhereButBetweenEntries) {
  const std::string first = Of({DirectoryOf("a")}).bytes();
  const std::string bytes = Of({DirectoryOf("a"), File("b")}).bytes();
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    const auto parsed = ParseManifest(bytes.substr(0, cut));
    EXPECT_EQ(parsed.ok(), cut == 0 || cut == first.size()) << cut;
  }
}

TEST(ParseManifest, RefusesForeignBytes) {
  EXPECT_FALSE(ParseManifest("\x12\x01\x61").ok());                  // another field
  EXPECT_FALSE(ParseManifest(std::string("\0", 1)).ok());            // tag 0
  EXPECT_FALSE(ParseManifest("\x0a\xff\xff\xff\xff\x0f").ok());      // a length of 4 GiB
  EXPECT_FALSE(ParseManifest("\x0a\xff\xff\xff\xff\xff\xff").ok());  // an endless varint
  // Each entry of two bytes would take a hundred times that in memory. The parser stops at the
  // first.
  std::string empty_entries;
  for (int i = 0; i < 1 << 20; ++i) empty_entries.append("\x0a\0", 2);
  EXPECT_THAT(ParseManifest(empty_entries), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace gpuctl
