// Two roots on this machine are the nodes; the connection between them is a real one.
#include "agent/share/share.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "agent/gang/addresses.h"
#include "agent/share/secret_pipe.h"
#include "agent/share/share_line.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/process/pipe.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

// Two connected sockets of TCP, as two nodes have them.
FdPair Connected() {
  const Listener listener = ListenEverywhere().value();
  const SocketAddress at = ParseSocketAddress("127.0.0.1", listener.port).value();
  FdPair ends;
  ends.first.reset(socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(connect(ends.first.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.size), 0);
  ends.second.reset(accept(listener.fd.get(), nullptr, nullptr));
  return ends;
}

using Pipe = absl::StatusOr<std::unique_ptr<SecretPipe>>;

// Shakes hands on both ends.
std::pair<Pipe, Pipe> Open(FdPair ends, const std::string& ours, const std::string& theirs) {
  Pipe given = absl::UnknownError("");
  std::thread gives([&] {
    given = SecretPipe::Open(std::move(ends.first), SecretPipe::Side::kGives, ours,
                             absl::Seconds(60), Clock::Real());
  });
  Pipe fetched = SecretPipe::Open(std::move(ends.second), SecretPipe::Side::kFetches, theirs,
                                  absl::Seconds(60), Clock::Real());
  gives.join();
  return {std::move(given), std::move(fetched)};
}

const std::string kKey = absl::HexStringToBytes(std::string(64, '7'));

TEST(SecretPipeTest, BytesComeAsTheyAreInBothDirections) {
  const auto ends = Open(Connected(), kKey, kKey);
  ASSERT_OK(ends.first);
  ASSERT_OK(ends.second);
  SecretPipe& gives = **ends.first;
  SecretPipe& fetches = **ends.second;
  std::string sent(3 << 20, 'a');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7 + i / 251);
  const auto carry = [&sent](SecretPipe& from, SecretPipe& to) {
    std::thread writer([&] {
      EXPECT_OK(WriteAll(from.fd(), sent, "the pipe"));
      shutdown(from.fd(), SHUT_WR);
    });
    std::string got;
    char buffer[10000];
    for (ssize_t n; (n = read(to.fd(), buffer, sizeof(buffer))) > 0;) {
      got.append(buffer, static_cast<size_t>(n));
    }
    writer.join();
    EXPECT_TRUE(got == sent) << got.size();
  };
  std::thread back([&] { carry(fetches, gives); });
  carry(gives, fetches);
  back.join();
}

TEST(SecretPipeTest, WhatWasWrittenArrivesThoughTheWriterIsGone) {
  auto [gives, fetches] = Open(Connected(), kKey, kKey);
  ASSERT_OK(gives);
  ASSERT_OK(fetches);
  ASSERT_OK(WriteAll((*gives)->fd(), "done\n", "the pipe"));
  gives->reset();
  EXPECT_EQ(ReadShareLine((*fetches)->fd()).value(), "done");
  EXPECT_THAT(ReadShareLine((*fetches)->fd()), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(SecretPipeTest, OnlyWhoKnowsTheKeyGetsIn) {
  const std::string other(32, 'x');
  auto [gives, fetches] = Open(Connected(), kKey, other);
  EXPECT_THAT(gives.status(), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_FALSE(fetches.ok());
  EXPECT_FALSE(SecretPipe::Open(UniqueFd(), SecretPipe::Side::kGives, "short", absl::Seconds(1),
                                Clock::Real())
                   .ok());
}

TEST(SecretPipeTest, TheLineCarriesNothingThatIsReadable) {
  FdPair ends = Connected();
  // A third party between the two, which sees all.
  FdPair beyond = Connected();
  std::string seen;
  std::thread between([&, a = std::move(ends.second), b = std::move(beyond.first)] {
    pollfd polled[] = {{a.get(), POLLIN, 0}, {b.get(), POLLIN, 0}};
    for (;;) {
      poll(polled, 2, -1);
      for (const int i : {0, 1}) {
        if (polled[i].revents == 0) continue;
        char buffer[4096];
        const ssize_t got = read(polled[i].fd, buffer, sizeof(buffer));
        if (got <= 0) return;
        seen.append(buffer, static_cast<size_t>(got));
        EXPECT_OK(WriteAll(polled[1 - i].fd, {buffer, static_cast<size_t>(got)}, "the other"));
      }
    }
  });
  {
    FdPair outer;
    outer.first = std::move(ends.first);
    outer.second = std::move(beyond.second);
    auto [gives, fetches] = Open(std::move(outer), kKey, kKey);
    ASSERT_OK(gives);
    ASSERT_OK(fetches);
    ASSERT_OK(WriteAll((*gives)->fd(), "the weights of a secret model\n", "the pipe"));
    EXPECT_EQ(ReadShareLine((*fetches)->fd()).value(), "the weights of a secret model");
  }
  between.join();
  EXPECT_GT(seen.size(), 100u);
  EXPECT_EQ(seen.find("secret model"), seen.npos);
  EXPECT_EQ(seen.find(kKey), seen.npos);
}

// `gpuctl-agent give` in a process of its own.
class Giver {
 public:
  Giver(const std::string& root, const std::string& key) {
    FdPair in = MakePipe("in").value(), out = MakePipe("out").value();
    pid_ = fork();
    if (pid_ == 0) {
      in.second.reset();
      RunGive(root, in.first.get(), out.second.get());
    }
    in_ = std::move(in.second);
    out_ = std::move(out.first);
    EXPECT_OK(WriteShareLine(in_.get(), {{"key", key}}));
    out.second.reset();
    said_ = nlohmann::json::parse(ReadShareLine(out_.get()).value_or("null"));
  }
  ~Giver() {
    in_.reset();
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    EXPECT_EQ(status, 0);
  }
  const nlohmann::json& said() const { return said_; }

 private:
  pid_t pid_ = 0;
  UniqueFd in_, out_;
  nlohmann::json said_;
};

// Runs `gpuctl-agent fetch`. Returns what it says.
nlohmann::json FetchWith(const std::string& root, nlohmann::json order) {
  FdPair in = MakePipe("in").value(), out = MakePipe("out").value();
  EXPECT_OK(WriteShareLine(in.second.get(), order));
  RunFetch(root, in.first.get(), out.second.get());
  return nlohmann::json::parse(ReadShareLine(out.first.get()).value_or("null"));
}

std::string Hex(const std::string& key) { return absl::BytesToHexString(key); }

TEST(ShareTest, ATreeComesWholeFromTheOtherNode) {
  SampleLaptop laptop;
  Node first, second, third;
  ASSERT_OK(first.Push(laptop));
  const Giver giver(first.root, Hex(kKey));
  ASSERT_TRUE(giver.said().contains("port")) << giver.said();
  nlohmann::json order = giver.said();
  order["key"] = Hex(kKey);
  order["trees"] = {laptop.digest()};
  EXPECT_EQ(FetchWith(second.root, order), nlohmann::json({{"there", 0}, {"fetched", 1}}));
  second.ExpectWhole(laptop.digest());
  EXPECT_EQ(FetchWith(second.root, order), nlohmann::json({{"there", 1}, {"fetched", 0}}));
  // An address that leads nowhere is passed over.
  order["addresses"].insert(order["addresses"].begin(), "127.0.0.2x");
  EXPECT_EQ(FetchWith(third.root, order)["fetched"], 1);
  third.ExpectWhole(laptop.digest());
  first.ExpectWhole(laptop.digest());
}

TEST(ShareTest, WhatCannotComeIsSaidAndNothingOfItStays) {
  SampleLaptop laptop, other;
  other.dir.Write("more", "another tree");
  other.Scan();
  Node first, second;
  ASSERT_OK(first.Push(laptop));
  const Giver giver(first.root, Hex(kKey));
  nlohmann::json order = giver.said();
  order["trees"] = {laptop.digest()};
  order["key"] = Hex(std::string(32, 'x'));
  EXPECT_THAT(FetchWith(second.root, order)["error"].get<std::string>(), HasSubstr("key"));
  order["key"] = Hex(kKey);
  order["trees"] = {other.digest()};
  EXPECT_TRUE(FetchWith(second.root, order).contains("error"));
  EXPECT_FALSE(HasStoredTree(second.trees, laptop.digest()));
  EXPECT_FALSE(HasStoredTree(second.trees, other.digest()));
  for (const char* bad : {"{}", "[]", "\"x\"", R"({"key":"zz","addresses":[],"port":1,"trees":[]})",
                          R"({"key":"00","addresses":[1],"port":1,"trees":[]})",
                          R"({"key":"00","addresses":[],"port":70000,"trees":[]})",
                          R"({"key":"00","addresses":[],"port":1,"trees":["../x"]})"}) {
    EXPECT_TRUE(FetchWith(second.root, nlohmann::json::parse(bad)).contains("error")) << bad;
  }
}

// A giver that sends another tree than it was asked for.
TEST(ShareTest, AnotherTreeIsNotTakenForTheOneAskedFor) {
  SampleLaptop laptop, other;
  other.dir.Write("more", "another tree");
  other.Scan();
  Node second;
  const Listener listener = ListenEverywhere().value();
  std::thread lies([&] {
    pollfd comes{listener.fd.get(), POLLIN, 0};
    poll(&comes, 1, -1);
    UniqueFd socket(accept(listener.fd.get(), nullptr, nullptr));
    auto pipe = SecretPipe::Open(std::move(socket), SecretPipe::Side::kGives, kKey,
                                 absl::Seconds(60), Clock::Real());
    ASSERT_OK(pipe);
    EXPECT_EQ(ReadShareLine((*pipe)->fd()).value(), laptop.digest());
    TransferStream stream;
    stream.bytes = std::make_shared<FdStream>((*pipe)->fd(), (*pipe)->fd());
    EXPECT_OK(PushTree(stream, other.dir.path(), other.manifest, {}, Clock::Real(), {}));
  });
  const nlohmann::json said = FetchWith(second.root, {{"key", Hex(kKey)},
                                                      {"addresses", {"127.0.0.1"}},
                                                      {"port", listener.port},
                                                      {"trees", {laptop.digest()}}});
  lies.join();
  EXPECT_THAT(said["error"].get<std::string>(), HasSubstr("something else"));
  EXPECT_FALSE(HasStoredTree(second.trees, laptop.digest()));
}

}  // namespace
}  // namespace gpuctl
