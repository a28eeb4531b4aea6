#include "provisioning/market/rent_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "absl/strings/escaping.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

TEST(RentOptionsTest, TellsKeysByTypeAndBlob) {
  const std::string blob = "AAAAC3NzaC1lZDI1NTE5AAAAIHt0";
  EXPECT_EQ(SshKeyIdentity("ssh-ed25519 " + blob + " ada@laptop\n"), "ssh-ed25519 " + blob);
  EXPECT_EQ(SshKeyIdentity("ssh-ed25519  " + blob), "ssh-ed25519 " + blob);
  EXPECT_EQ(SshKeyIdentity("ssh-ed25519"), "");
}

TEST(RentOptionsTest, GuardsWhatReachesACommandLine) {
  EXPECT_TRUE(IsSafeHost("203.0.113.7"));
  EXPECT_TRUE(IsSafeHost("2001:db8::1"));
  for (const char* host : {"", "-oProxyCommand=x", "a b", "a;b", "a\n", "a/b"}) {
    EXPECT_FALSE(IsSafeHost(host)) << host;
  }
  EXPECT_FALSE(IsSafeUser("-l"));
  EXPECT_EQ(QuoteForShell("it's"), "'it'\\''s'");
  EXPECT_TRUE(IsEnvName("A_1"));
  EXPECT_FALSE(IsEnvName("1A"));
  EXPECT_FALSE(IsEnvName("A-B"));
  EXPECT_EQ(DiskGb(1, 40), 1);
  EXPECT_EQ(DiskGb(0, 40), 40);
  EXPECT_EQ(DiskGb(60'000'000'001, 40), 61);
}

TEST(RentOptionsTest, RefusesWhatIsNoKeyAndNoVariable) {
  const std::string key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHt0";
  EXPECT_EQ(*CheckedSshKey(key + " ada@laptop"), key);
  EXPECT_EQ(*CheckedSshKey(""), "");
  EXPECT_THAT(CheckedSshKey("nonsense"), StatusIs(Code::kInvalidArgument));
  EXPECT_OK(CheckEnvNames({{"A", ""}, {"B_1", "x"}}));
  EXPECT_THAT(CheckEnvNames({{"A", ""}, {"1B", "x"}}),
              StatusIs(Code::kInvalidArgument, HasSubstr("\"1B\"")));
}

TEST(RentOptionsTest, PacksWhatGzipUnpacks) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "echo line " + std::to_string(i) + "\n";
  std::string packed;
  ASSERT_TRUE(absl::Base64Unescape(GzipBase64(text), &packed));
  EXPECT_LT(packed.size(), text.size() / 3);
  z_stream stream = {};
  ASSERT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  std::string unpacked(text.size() + 1, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(unpacked.data());
  stream.avail_out = static_cast<uInt>(unpacked.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  unpacked.resize(stream.total_out);
  inflateEnd(&stream);
  EXPECT_EQ(unpacked, text);
}

}  // namespace
}  // namespace gpuctl
