// Host keys that the user's ssh knows: files as ssh-keygen writes them.
#include "client/base/known_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/run_program.h"
#include "common/base/link_fault.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class KnownHostsTest : public ::testing::Test {
 protected:
  KnownHostsTest() {
    target_.provider = "ssh";
    target_.name = "ada@box:2200";
    target_.host = "box";
    target_.port = 2200;
    target_.host_key.known_hosts = {dir_.Sub("none"), dir_.Sub("known")};
  }
  // Makes a key. Returns "TYPE BASE64".
  std::string MakeKey(const std::string& type) {
    const std::string path = dir_.Sub(absl::StrCat("key-", type));
    EXPECT_OK(OutputOf({keygen_, "-q", "-t", type, "-N", "", "-f", path}));
    const std::string line = ReadFileToString(path + ".pub").value_or("");
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    return absl::StrCat(words.at(0), " ", words.at(1));
  }
  // Returns the fingerprint that ssh-keygen shows of it.
  std::string Fingerprint(const std::string& type) const {
    const std::string shown =
        OutputOf({keygen_, "-l", "-f", dir_.Sub(absl::StrCat("key-", type, ".pub"))}).value_or("");
    const std::vector<std::string> words = absl::StrSplit(shown, ' ');
    return words.size() > 1 ? words[1] : shown;
  }
  void Know(const std::string& lines) { dir_.Write("known", lines); }

  const std::string keygen_ = FindInPath("ssh-keygen");
  TempDir dir_;
  NodeTarget target_;
};

TEST_F(KnownHostsTest, FindsPlainHashedAndMatchingNames) {
  const std::string key = MakeKey("ed25519");
  for (const char* names : {"[box]:2200", "other,[box]:2200", "[b*]:2200"}) {
    for (const bool hashed : {false, true}) {
      if (hashed && absl::StrContains(names, "*")) continue;
      Know(absl::StrCat("# a comment\n", names, " ", key, " ada\n"));
      if (hashed) {
        ASSERT_OK(OutputOf({keygen_, "-H", "-f", dir_.Sub("known")}, "", /*quiet=*/true));
      }
      const KnownHostKeys known = FindKnownHostKeys(target_);
      ASSERT_THAT(known.keys, SizeIs(1)) << names << hashed;
      EXPECT_EQ(known.keys[0].type, "ssh-ed25519");
      EXPECT_EQ(known.keys[0].fingerprint, Fingerprint("ed25519"));
      EXPECT_OK(CheckKnownHost(target_, known, Fingerprint("ed25519")));
    }
  }
}

TEST_F(KnownHostsTest, OtherPortsAndHostsAreOthers) {
  const std::string key = MakeKey("ed25519");
  Know(absl::StrCat("box ", key, "\n[box]:22 ", key, "\nboxer ", key, "\n"));
  EXPECT_THAT(FindKnownHostKeys(target_).keys, IsEmpty());
  target_.host_key.alias = "boxer";
  EXPECT_THAT(FindKnownHostKeys(target_).keys, SizeIs(1));
  target_.host_key.alias.clear();
  target_.port = 22;
  EXPECT_THAT(FindKnownHostKeys(target_).keys, SizeIs(1));
}

TEST_F(KnownHostsTest, AnotherKeyIsRefused) {
  Know(absl::StrCat("[box]:2200 ", MakeKey("ed25519"), "\n"));
  const KnownHostKeys known = FindKnownHostKeys(target_);
  const absl::Status refused = CheckKnownHost(target_, known, "SHA256:another");
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(Fingerprint("ed25519"))));
  EXPECT_EQ(FaultOf(refused), LinkFault::kHostKeyChanged);
}

TEST_F(KnownHostsTest, AnUnknownHostIsRefusedOnlyWhereTheUserWantsThat) {
  const KnownHostKeys known = FindKnownHostKeys(target_);
  EXPECT_OK(CheckKnownHost(target_, known, "SHA256:any"));
  target_.host_key.strict = true;
  EXPECT_THAT(CheckKnownHost(target_, known, "SHA256:any"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("StrictHostKeyChecking")));
}

TEST_F(KnownHostsTest, ARevokedKeyIsRefusedAndAnAuthoritysIsNoHostKey) {
  const std::string revoked = MakeKey("ed25519"), authority = MakeKey("ecdsa");
  Know(absl::StrCat("@revoked * ", revoked, "\n@cert-authority * ", authority, "\n"));
  const KnownHostKeys known = FindKnownHostKeys(target_);
  EXPECT_THAT(known.keys, IsEmpty());
  EXPECT_THAT(CheckKnownHost(target_, known, Fingerprint("ed25519")),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("revoked")));
  EXPECT_OK(CheckKnownHost(target_, known, Fingerprint("ecdsa")));
}

TEST_F(KnownHostsTest, AlgorithmsOfKnownKeysAreAskedForFirst) {
  EXPECT_EQ(PreferredHostKeys(KnownHostKeys()), "");
  KnownHostKeys known;
  known.keys = {{"ssh-rsa", "SHA256:a"}};
  EXPECT_THAT(PreferredHostKeys(known), StartsWith("rsa-sha2-512,rsa-sha2-256,ssh-ed25519,"));
  known.keys = {{"ecdsa-sha2-nistp256", "SHA256:a"}};
  EXPECT_THAT(PreferredHostKeys(known), StartsWith("ecdsa-sha2-nistp256,ssh-ed25519,"));
}

TEST(ParseKnownHostLinesTest, PassesOverWhatItDoesNotUnderstand) {
  EXPECT_THAT(ParseKnownHostLines("").keys, IsEmpty());
  EXPECT_THAT(ParseKnownHostLines("box\nbox ssh-rsa\nbox ssh-rsa !!!\n@what box\n\n \n").keys,
              IsEmpty());
}

}  // namespace
}  // namespace gpuctl
