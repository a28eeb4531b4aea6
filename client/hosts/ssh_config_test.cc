#include "client/hosts/ssh_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuctl {
namespace {

using ::testing::ElementsAre;

TEST(ParseSshDestinationTest, TakesWhatSshUsersWrite) {
  const auto full = ParseSshDestination("ada@gpu.example:2222");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->user, "ada");
  EXPECT_EQ(full->host, "gpu.example");
  EXPECT_EQ(full->port, 2222);
  EXPECT_EQ(ParseSshDestination("gpu-box")->host, "gpu-box");
  EXPECT_EQ(ParseSshDestination("gpu-box")->port, 0);
  EXPECT_EQ(ParseSshDestination("ada@[::1]:22")->host, "::1");
  EXPECT_EQ(ParseSshDestination("::1")->host, "::1");
}

TEST(ParseSshDestinationTest, RefusesTheRest) {
  for (const char* text : {"", "@host", "-oProxyCommand=x", "ada@-x", "host:0", "host:99999",
                           "host:", "ho st", "host;reboot", "[::1", "[::1]x", "-l@host"}) {
    EXPECT_FALSE(ParseSshDestination(text).ok()) << text;
  }
}

TEST(ParseSshConfigTest, ReadsWhatSshPrints) {
  const auto host = ParseSshConfig(
      "user ada\nhostname 10.0.0.7\nport 2200\nidentityfile ~/.ssh/gpu\nidentityfile /k/b\n"
      "proxycommand none\nserveraliveinterval 0\nidentitiesonly yes\n"
      "stricthostkeychecking true\nhostkeyalias gpu-box\nglobalknownhostsfile /etc/a /etc/b\n"
      "userknownhostsfile ~/.ssh/known_hosts none\n",
      "/home/ada");
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(SshName(host->address), "ada@10.0.0.7:2200");
  EXPECT_THAT(host->address.identity_files, ElementsAre("/home/ada/.ssh/gpu", "/k/b"));
  EXPECT_EQ(host->address.proxy_command, "");
  EXPECT_TRUE(host->identities_only);
  EXPECT_TRUE(host->host_key.strict);
  EXPECT_EQ(host->host_key.alias, "gpu-box");
  EXPECT_THAT(host->host_key.known_hosts,
              ElementsAre("/etc/a", "/etc/b", "/home/ada/.ssh/known_hosts"));
}

TEST(ParseSshConfigTest, TurnsJumpsIntoCommands) {
  EXPECT_EQ(ParseSshConfig("user a\nhostname h\nport 22\nproxyjump b@jump:2222", "")
                ->address.proxy_command,
            "ssh -W [%h]:%p -l b -p 2222 jump");
  EXPECT_EQ(
      ParseSshConfig("user a\nhostname h\nport 22\nproxyjump one,two", "")->address.proxy_command,
      "ssh -W [%h]:%p -J one two");
  EXPECT_EQ(ParseSshConfig("user a\nhostname h\nport 22\nproxycommand nc %h %p", "")
                ->address.proxy_command,
            "nc %h %p");
}

TEST(ParseSshConfigTest, RefusesWhatIsNoConfiguration) {
  EXPECT_FALSE(ParseSshConfig("", "").ok());
  EXPECT_FALSE(ParseSshConfig("hostname -x\n", "").ok());
  EXPECT_FALSE(ParseSshConfig("hostname h\nport many\n", "").ok());
}

}  // namespace
}  // namespace gpuctl
