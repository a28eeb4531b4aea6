#include "client/link/new_host_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libssh/libssh.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::StartsWith;

TEST(MakeHostKeyTest, ThePublicPartIsThatOfThePrivateOne) {
  const auto pair = MakeHostKey();
  ASSERT_OK(pair);
  EXPECT_THAT(pair->private_key, StartsWith("-----BEGIN OPENSSH PRIVATE KEY-----\n"));
  ssh_key key = nullptr;
  ASSERT_EQ(
      ssh_pki_import_privkey_base64(pair->private_key.c_str(), nullptr, nullptr, nullptr, &key),
      SSH_OK);
  char* base64 = nullptr;
  EXPECT_EQ(ssh_pki_export_pubkey_base64(key, &base64), SSH_OK);
  EXPECT_EQ(pair->public_key, absl::StrCat("ssh-ed25519 ", base64));
  ssh_string_free_char(base64);
  ssh_key_free(key);
  EXPECT_NE(MakeHostKey()->public_key, pair->public_key);
}

}  // namespace
}  // namespace gpuctl
