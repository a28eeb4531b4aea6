#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "client/base/host_keys.h"
#include "client/base/known_hosts.h"
#include "client/base/run_program.h"
#include "client/programs/node_scripts.h"
#include "client/reach/local_port.h"
#include "client/reach/open_ssh.h"
#include "client/reach/run_script.h"
#include "client/reach/ssh_files.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ReachTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = *MakeTempDirectory("gpuctl-reach-");
    paths_.state_dir = JoinPath(dir_, "state");
    row_.run_id = "r-0123456789ab";
    row_.name = "amber-fox-3";
    row_.target.provider = "vast";
    row_.target.name = "vast/20000005";
    row_.target.user = "root";
    row_.target.host = "203.0.113.5";
    row_.target.identity_files = {JoinPath(dir_, "key")};
  }
  void TearDown() override { (void)RemoveTree(dir_); }
  // Returns what ssh makes of the configuration `path` for `host`.
  std::string AsSshReadsIt(const std::string& path, const std::string& host) {
    const auto text = OutputOf({FindInPath("ssh"), "-G", "-F", path, host});
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }
  std::string dir_;
  ClientPaths paths_;
  RunRow row_;
};

TEST_F(ReachTest, SshReadsTheBlockOfARentedMachine) {
  const auto path = WriteSshHost(paths_, "amber-fox-3", row_);
  ASSERT_TRUE(path.ok()) << path.status();
  const std::string read = AsSshReadsIt(*path, "gpuctl-amber-fox-3");
  EXPECT_THAT(read, HasSubstr("user root\n"));
  EXPECT_THAT(read, HasSubstr(absl::StrCat("identityfile ", dir_, "/key\n")));
  EXPECT_THAT(read, HasSubstr("identitiesonly yes\n"));
  EXPECT_THAT(read, HasSubstr("stricthostkeychecking true\n"));
  EXPECT_THAT(read, HasSubstr("forwardagent no\n"));
  EXPECT_THAT(read, HasSubstr(" ssh --stdio r-0123456789ab\n"));
  EXPECT_THAT(read, HasSubstr(absl::StrCat("hostkeyalias ", KnownHostAlias("vast/20000005"))));
  // The address is not there: it may change.
  EXPECT_THAT(read, Not(HasSubstr("203.0.113.5")));
  // A machine of the user's own takes the keys of the agent.
  row_.target.provider = "ssh";
  ASSERT_TRUE(WriteSshHost(paths_, "amber-fox-3", row_).ok());
  EXPECT_THAT(AsSshReadsIt(*path, "gpuctl-amber-fox-3"), HasSubstr("identitiesonly no\n"));
}

TEST_F(ReachTest, RefusesNamesAndPathsThatSshCouldMisread) {
  for (const char* word :
       {"", ".hidden", "-F", "a b", "a/b", "../x", "a'b", "a\nb", "@last", "a;b"}) {
    EXPECT_FALSE(IsSshWord(word)) << word;
    EXPECT_FALSE(SshHostBlock(paths_, word, row_).ok()) << word;
  }
  for (const char* odd : {"q\"q", "q'q", "a\nb", "a$b", "50%", "a\\b", "a*"}) {
    ClientPaths paths;
    paths.state_dir = JoinPath(dir_, odd);
    EXPECT_TRUE(absl::IsFailedPrecondition(SshHostBlock(paths, "a", row_).status())) << odd;
    EXPECT_TRUE(absl::IsFailedPrecondition(WriteSshIncludeFile(paths))) << odd;
    EXPECT_FALSE(SshIncludeLine(paths).ok()) << odd;
  }
  for (const char* user : {"root\"", "a\nProxyCommand touch x", "a b", "-l", "a$b", "a%h"}) {
    RunRow row = row_;
    row.target.user = user;
    EXPECT_FALSE(SshHostBlock(paths_, "a", row).ok()) << user;
  }
  // A blank is a common one.
  paths_.state_dir = JoinPath(dir_, "my state");
  const auto path = WriteSshHost(paths_, "a", row_);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_THAT(
      AsSshReadsIt(*path, "gpuctl-a"),
      HasSubstr(absl::StrCat("userknownhostsfile ", paths_.state_dir, "/ssh/known_hosts/")));
}

TEST_F(ReachTest, OldBlocksAreForgotten) {
  const auto used = WriteSshHost(paths_, "used", row_);
  const auto old = WriteSshHost(paths_, "old", row_);
  ASSERT_TRUE(used.ok() && old.ok());
  const utimbuf long_ago{1, 1};
  ASSERT_EQ(utime(used->c_str(), &long_ago), 0);
  ASSERT_EQ(utime(old->c_str(), &long_ago), 0);
  ASSERT_TRUE(WriteSshHost(paths_, "used", row_).ok());  // the same block again
  ForgetOldSshHosts(paths_, int64_t{time(nullptr)} * 1000);
  EXPECT_TRUE(PathExists(*used));
  EXPECT_FALSE(PathExists(*old));
}

TEST_F(ReachTest, AKeyIsKnownWhenItIsThePinnedOne) {
  const std::string node = "vast/20000005", pins = JoinPath(paths_.state_dir, "ssh/host-keys");
  const std::string known = JoinPath(paths_.state_dir, kKnownHostsDir);
  const std::string print = KeyFingerprint("AAAA");
  EXPECT_FALSE(KnowsPinnedKey(paths_, node));
  ASSERT_TRUE(KeepKnownHost(known, node, "ssh-ed25519 AAAA").ok());
  EXPECT_FALSE(KnowsPinnedKey(paths_, node));
  ASSERT_TRUE(CheckHostKey(pins, node, print).ok());
  EXPECT_TRUE(KnowsPinnedKey(paths_, node));
  ASSERT_TRUE(KeepKnownHost(known, node, "ssh-ed25519 AAAB").ok());
  EXPECT_FALSE(KnowsPinnedKey(paths_, node));
}

TEST_F(ReachTest, ALineIsPutInFrontOnce) {
  const std::string path = JoinPath(dir_, "home/.ssh/config");
  auto added = AddLineInFront(path, "Include x");
  ASSERT_TRUE(added.ok() && *added) << added.status();
  EXPECT_EQ(*ReadFileToString(path), "Include x\n");
  EXPECT_TRUE(HasLineInFront(path, "Include x"));
  EXPECT_FALSE(HasLineInFront(path, "Include"));
  added = AddLineInFront(path, "Include x");
  EXPECT_TRUE(added.ok() && !*added);
  ASSERT_TRUE(WriteFileAtomic(path, "Host a\n  Include x\n", 0644).ok());
  // There it counts for one host only.
  EXPECT_FALSE(HasLineInFront(path, "Include x"));
  ASSERT_TRUE(AddLineInFront(path, "Include y").ok());
  EXPECT_EQ(*ReadFileToString(path), "Include y\n\nHost a\n  Include x\n");
  struct stat file {};
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0644u);
  ASSERT_TRUE(WriteFileAtomic(path, "# mine\nPort 7\n  Include x\nMATCH all\n", 0644).ok());
  EXPECT_TRUE(HasLineInFront(path, "Include x"));
  const std::string dangling = JoinPath(dir_, "dangling");
  ASSERT_EQ(symlink("nowhere", dangling.c_str()), 0);
  EXPECT_FALSE(AddLineInFront(dangling, "Include x").ok());
  EXPECT_FALSE(AddLineInFront(dir_, "Include x").ok());
}

TEST_F(ReachTest, AScriptHasTheJobsPlaceAndEnvironment) {
  RunPlace place{JoinPath(dir_, "no'de"), "r-1", "j-1", 2, {}};
  (*place.spec.mutable_env())["NAME"] = "$HOME 'x'\n";
  const std::string work = JoinPath(place.root, "jobs/j-1/work");
  const auto run = [](const std::string& script) {
    return OutputOf({"/bin/sh", "-c", ShellCommand(script)}, "", /*quiet=*/true);
  };
  const std::vector<std::string> tell = {
      "sh", "-c", "printf '%s|' \"$PWD\" \"$NAME\" \"$GPUCTL_ATTEMPT\" \"$GPUCTL_CHECKPOINT_DIR\""};
  EXPECT_FALSE(run(CommandScript(place, tell, CommandStyle::kPipes)).ok());  // 126
  ASSERT_TRUE(MakeDirectories(work).ok());
  for (const CommandStyle style : {CommandStyle::kPipes, CommandStyle::kTerminal}) {
    const auto said = run(CommandScript(place, tell, style));
    ASSERT_TRUE(said.ok()) << said.status();
    EXPECT_EQ(*said, absl::StrCat(work, "|$HOME 'x'\n|2|", place.root, "/jobs/j-1/ckpt|"));
  }
  const auto stays = run(StayScript(place.root, "MARK 1"));
  ASSERT_TRUE(stays.ok());
  EXPECT_EQ(*stays, "\nMARK 1\n");
  EXPECT_TRUE(CheckScriptSize("x", std::string(100, 'x')).ok());
  EXPECT_FALSE(CheckScriptSize("x", std::string(200000, 'x')).ok());
}

TEST(LocalPort, TakesTheNextFreeOneUnlessTheUserChose) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd.get(), 1), 0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int port = ntohs(address.sin_port);
  EXPECT_FALSE(IsFreeLocalPort(port));
  NodeTarget far;
  far.provider = "ssh";
  far.host = "203.0.113.5";
  std::vector<PortPair> pairs = {{port, 0}, {port, 0}};
  ASSERT_TRUE(ChooseLocalPorts(far, pairs).ok());
  EXPECT_NE(pairs[0].local, port);
  EXPECT_NE(pairs[0].local, pairs[1].local);
  EXPECT_EQ(ForwardArgument({6006, 8080}), "127.0.0.1:8080:localhost:6006");
  pairs = {{6006, port}};
  EXPECT_TRUE(absl::IsFailedPrecondition(ChooseLocalPorts(far, pairs)));
}

TEST(LocalPort, NeverLeadsToItself) {
  NodeTarget here;
  here.provider = "local";
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  std::vector<PortPair> pairs = {{6006, 0}, {6007, 0}};
  ASSERT_TRUE(ChooseLocalPorts(here, pairs).ok());
  for (const PortPair& pair : pairs) EXPECT_TRUE(pair.local != 6006 && pair.local != 6007);
  pairs = {{6006, 6007}, {6007, 0}};
  EXPECT_TRUE(absl::IsFailedPrecondition(ChooseLocalPorts(here, pairs)));
  for (const char* host : {"localhost", "127.0.0.1", "127.8.8.8"}) {
    here = NodeTarget();
    here.provider = "ssh";
    here.host = host;
    EXPECT_TRUE(IsThisComputer(here)) << host;
  }
  // Of a block for documentation; and a name that nobody has.
  for (const char* host : {"203.0.113.5", "gpu.invalid", "2001:db8::1", ""}) {
    here.host = host;
    EXPECT_FALSE(IsThisComputer(here)) << host;
  }
}

}  // namespace
}  // namespace gpuctl
