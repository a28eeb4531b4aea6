// The messages of a warm link, and the place of its socket.
#include "client/warm/warm_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/base/host_keys.h"
#include "client/warm/holder.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

NodeTarget Target() {
  NodeTarget target;
  target.provider = "ssh";
  target.name = "ada@gpu.example:22";
  target.host = "gpu.example";
  target.user = "ada";
  target.identity_files = {"/home/ada/.ssh/id_ed25519"};
  return target;
}

class WarmPlaceTest : public ::testing::Test {
 protected:
  void Pin(const NodeTarget& target, const std::string& fingerprint) {
    const std::string pins = dir_.path() + "/ssh/host-keys";
    ASSERT_TRUE(MakeDirectories(pins).ok());
    unlink(HostKeyFile(pins, target.name).c_str());
    ASSERT_TRUE(CheckHostKey(pins, target.name, fingerprint).ok());
  }
  std::string SocketOf(const NodeTarget& target) {
    const absl::StatusOr<WarmPlace> place = FindWarmPlace(dir_.path(), target);
    EXPECT_TRUE(place.ok()) << place.status();
    return place.ok() ? place->socket : "";
  }
  TempDir dir_;
};

TEST_F(WarmPlaceTest, DependsOnAllThatAConnectionDependsOn) {
  const NodeTarget target = Target();
  Pin(target, "SHA256:one");
  std::set<std::string> sockets = {SocketOf(target)};
  EXPECT_EQ(SocketOf(target), *sockets.begin());
  const auto is_new = [&](const NodeTarget& other) {
    return sockets.insert(SocketOf(other)).second;
  };
  NodeTarget other = target;
  other.host = "moved.example";
  EXPECT_TRUE(is_new(other));
  other = target;
  other.port = 2222;
  EXPECT_TRUE(is_new(other));
  other = target;
  other.user = "root";
  EXPECT_TRUE(is_new(other));
  other = target;
  other.identity_files.push_back("/home/ada/.ssh/second");
  EXPECT_TRUE(is_new(other));
  other = target;
  other.identities_only = true;
  EXPECT_TRUE(is_new(other));
  other = target;
  other.proxy_command = "nc %h %p";
  EXPECT_TRUE(is_new(other));
  other = target;
  other.given_host_key = "SHA256:given";
  EXPECT_TRUE(is_new(other));
  other = target;
  other.root = "/scratch/gpuctl";
  EXPECT_TRUE(is_new(other));
  Pin(target, "SHA256:two");
  EXPECT_TRUE(is_new(target));
}

TEST_F(WarmPlaceTest, NeedsAPinAndADirectoryOfItsOwn) {
  EXPECT_TRUE(absl::IsNotFound(FindWarmPlace(dir_.path(), Target()).status()));
  Pin(Target(), "SHA256:one");
  ASSERT_NE(SocketOf(Target()), "");
  ASSERT_EQ(chmod(WarmDirectory(dir_.path()).c_str(), 0770), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(FindWarmPlace(dir_.path(), Target()).status()));
}

TEST_F(WarmPlaceTest, HasNoPathThatIsTooLong) {
  const std::string deep = absl::StrCat(dir_.path(), "/", std::string(100, 'x'));
  const std::string pins = deep + "/ssh/host-keys";
  ASSERT_TRUE(MakeDirectories(pins).ok());
  ASSERT_TRUE(CheckHostKey(pins, Target().name, "SHA256:one").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(FindWarmPlace(deep, Target()).status()));
}

TEST(WarmMessages, ComeWholeWhateverThePieces) {
  const std::string all = WarmMessage(WarmWord::kHere, "80") + WarmMessage(WarmWord::kOpen, "") +
                          WarmMessage(WarmWord::kStderr, std::string(100000, 'e'));
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{7}, size_t{4096}}) {
    std::string input;
    std::vector<std::pair<WarmWord, std::string>> got;
    std::pair<WarmWord, std::string> message;
    for (size_t at = 0; at < all.size(); at += piece) {
      input += all.substr(at, piece);
      while (*TakeMessage(input, message)) got.push_back(message);
    }
    ASSERT_EQ(got.size(), 3U) << piece;
    EXPECT_EQ(got[0], std::make_pair(WarmWord::kHere, std::string("80")));
    EXPECT_EQ(got[1], std::make_pair(WarmWord::kOpen, std::string()));
    EXPECT_EQ(got[2].second, std::string(100000, 'e'));
    EXPECT_EQ(input, "");
  }
}

TEST(WarmMessages, RefuseWhatNoneCanBe) {
  std::string input(64, '\xff');
  std::pair<WarmWord, std::string> message;
  EXPECT_FALSE(TakeMessage(input, message).ok());
}

TEST(WarmMessages, AnAskIsReadAsItWasWritten) {
  for (const bool repeats : {false, true}) {
    const std::optional<WarmAsk> ask =
        ParseAsk(AskBytes({"GPUCTL-EXEC 1", repeats, "exec /bin/sh -c 'echo \xff'"}));
    ASSERT_TRUE(ask.has_value());
    EXPECT_EQ(ask->magic, "GPUCTL-EXEC 1");
    EXPECT_EQ(ask->repeats, repeats);
    EXPECT_EQ(ask->line, "exec /bin/sh -c 'echo \xff'");
  }
  for (const std::string& wrong : {std::string(), std::string("x"), std::string("x\0", 2),
                                   std::string("x\0"
                                               "1",
                                               3),
                                   std::string("x\0001a\0b", 6)}) {
    EXPECT_FALSE(ParseAsk(wrong).has_value()) << wrong;
  }
}

TEST(WarmMessages, ADescriptorComesWithThem) {
  int ends[2], passed[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  ASSERT_EQ(pipe(passed), 0);
  const UniqueFd one(ends[0]), two(ends[1]), reader(passed[0]);
  ASSERT_TRUE(SendWithFd(one.get(), "with it", passed[1]));
  close(passed[1]);
  std::string bytes;
  UniqueFd fd;
  ASSERT_EQ(ReceiveWithFd(two.get(), bytes, fd), 7);
  EXPECT_EQ(bytes, "with it");
  ASSERT_TRUE(fd.valid());
  ASSERT_EQ(write(fd.get(), "x", 1), 1);
  char got = 0;
  EXPECT_EQ(read(reader.get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
  EXPECT_TRUE(IsPeerOurs(one.get()));
}

TEST(HolderRequest, IsReadAsItWasWritten) {
  HolderRequest request{Target(), "/home/ada/state", "exec /bin/sh -c x", absl::Seconds(90)};
  request.target.port = 2222;
  request.target.given_host_key = "SHA256:given";
  request.target.identities_only = true;
  const absl::StatusOr<HolderRequest> read = ParseHolderRequest(HolderRequestJson(request));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(HolderRequestJson(*read), HolderRequestJson(request));
  EXPECT_EQ(read->idle, absl::Seconds(90));
  EXPECT_EQ(read->target.identity_files, request.target.identity_files);
  for (const char* wrong : {"", "x", "[]", "{}", R"({"provider":1})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseHolderRequest(wrong).status())) << wrong;
  }
}

}  // namespace
}  // namespace gpuctl
