// The members of a gang over real sockets of this machine, with a clock that the tests move.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "agent/base/environment.h"
#include "agent/base/gang_note.h"
#include "agent/base/node_root.h"
#include "agent/gang/addresses.h"
#include "agent/gang/gang_hub.h"
#include "agent/gang/gang_seat.h"
#include "agent/gang/keeper.h"
#include "agent/gang/member_job.h"
#include "common/base/fake_clock.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/job/gang_key.h"
#include "common/job/stream_file.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Gang;
using ::testing::HasSubstr;

const std::string kKey(32, 'k');

Gang GangOf(int size, int rank) {
  Gang gang;
  gang.set_id("g-1");
  gang.set_size(size);
  gang.set_rank(rank);
  gang.set_epoch(1);
  for (int i = 0; i < size; ++i) gang.add_names(absl::StrCat("host", i));
  return gang;
}

TEST(AddressesTest, SomeAreOfPrivateNetworks) {
  for (const char* address :
       {"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.9.9", "192.168.1.1", "100.64.0.1",
        "100.127.0.1", "127.0.0.1", "fd00::1", "fc12::", "::1"}) {
    EXPECT_TRUE(IsPrivateAddress(address)) << address;
  }
  for (const char* address :
       {"11.0.0.1", "9.255.255.255", "172.15.0.1", "172.32.0.1", "192.169.1.1", "100.63.0.1",
        "100.128.0.1", "203.0.113.7", "2001:db8::1", "fe00::1", "", "10.0.0"}) {
    EXPECT_FALSE(IsPrivateAddress(address)) << address;
  }
}

class GangTest : public ::testing::Test {
 protected:
  GangTest() : hub_(GangOf(3, 0), kKey, {}, clock_) {
    EXPECT_OK(hub_.Open());
    hub_.BeginEpoch(1);
    hub_.SetReady({});
  }

  GangSeat& Sit(int rank, int64_t epoch = 1, const std::string& id = "g-1") {
    return SitWith(GangKeyOfRank(kKey, rank), rank, epoch, id);
  }
  GangSeat& SitWith(const std::string& key, int rank, int64_t epoch = 1,
                    const std::string& id = "g-1") {
    Gang gang = GangOf(3, rank);
    gang.set_id(id);
    seats_.push_back(std::make_unique<GangSeat>(gang, key, hub_.place(), GangTimes(), clock_));
    seats_.back()->BeginEpoch(epoch);
    seats_.back()->SetReady({});
    return *seats_.back();
  }
  // Lets all do what they can until `done`. The clock moves a little, for what is repeated.
  bool StepUntil(const std::function<bool()>& done) {
    for (int i = 0; i < 2000; ++i) {
      hub_.Step();
      for (const auto& seat : seats_) seat->Step();
      if (done()) return true;
      clock_.Advance(absl::Milliseconds(1));
      Clock::Real().SleepFor(absl::Milliseconds(1));
    }
    return false;
  }
  bool Begin() {
    return StepUntil([this] {
      if (!go_.has_value()) go_ = hub_.TryGo();
      if (!go_.has_value()) return false;
      for (const auto& seat : seats_) {
        if (!seat->go().has_value()) return false;
      }
      return true;
    });
  }
  // Returns a connection to the hub of somebody who is no member.
  UniqueFd Stranger() {
    const std::optional<SocketAddress> to = ParseSocketAddress("127.0.0.1", hub_.place().port());
    UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to->storage), to->size), 0);
    fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    return fd;
  }

  FakeClock clock_;
  GangHub hub_;
  std::vector<std::unique_ptr<GangSeat>> seats_;
  std::optional<GangGo> go_;
};

TEST(HmacTest, IsThatOfTheStandard) {
  // RFC 4231, cases 1, 2 and 6.
  EXPECT_EQ(absl::BytesToHexString(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(absl::BytesToHexString(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      absl::BytesToHexString(HmacSha256(std::string(131, '\xaa'),
                                        "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_F(GangTest, AllBeginTogetherAtTheAddressThatAllReach) {
  Sit(1);
  // One is missing, so nobody begins.
  EXPECT_TRUE(
      StepUntil([this] { return hub_.WhyNot() == "node 2 (host2) did not come within 60 s"; }));
  EXPECT_FALSE(hub_.TryGo().has_value());
  Sit(2);
  ASSERT_TRUE(Begin());
  EXPECT_EQ(go_->address, "127.0.0.1");
  EXPECT_GT(go_->port, 0);
  EXPECT_EQ(go_->resume_step, -1);
  for (const auto& seat : seats_) {
    EXPECT_EQ(seat->go()->address, "127.0.0.1");
    EXPECT_EQ(seat->go()->port, go_->port);
    EXPECT_EQ(seat->interface(), InterfaceOf("127.0.0.1"));
    EXPECT_FALSE(seat->interface().empty());
  }
}

TEST_F(GangTest, WhoDoesNotKnowTheKeyIsRefused) {
  Sit(1);
  SitWith(std::string(32, 'x'), 2);
  EXPECT_FALSE(Begin());
  EXPECT_THAT(hub_.WhyNot(), HasSubstr("node 2 (host2) did not come"));
  EXPECT_THAT(seats_[1]->WhyNot(), HasSubstr("was not reached"));
}

TEST_F(GangTest, NobodyJoinsInAnothersPlace) {
  Sit(1);
  SitWith(GangKeyOfRank(kKey, 1), 2);
  EXPECT_FALSE(Begin());
  EXPECT_THAT(hub_.WhyNot(), HasSubstr("node 2 (host2) did not come"));
  Sit(2);
  EXPECT_TRUE(StepUntil([this] { return hub_.TryGo().has_value(); }));
}

TEST_F(GangTest, AnotherEpochOrGangIsRefused) {
  hub_.BeginEpoch(2);
  hub_.SetReady({});
  Sit(1, 2);
  Sit(2, 1);
  Sit(2, 2, "g-2");
  EXPECT_FALSE(Begin());
  Sit(2, 2);
  EXPECT_TRUE(StepUntil([this] {
    if (!go_.has_value()) go_ = hub_.TryGo();
    return go_.has_value() && seats_[0]->go().has_value() && seats_[3]->go().has_value();
  }));
  EXPECT_FALSE(seats_[1]->go().has_value());
  EXPECT_FALSE(seats_[2]->go().has_value());
}

TEST_F(GangTest, StrangersCannotKeepMembersAway) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(Stranger());
    // Some say nothing, some say a little, some say too much.
    const std::string words = i % 3 == 0 ? "" : i % 3 == 1 ? "a" : std::string(9000, 'x');
    if (!words.empty()) send(strangers.back().get(), words.data(), words.size(), MSG_NOSIGNAL);
    hub_.Step();
  }
  Sit(1);
  Sit(2);
  EXPECT_TRUE(Begin());
  // A silent one is sent away.
  clock_.Advance(absl::Seconds(6));
  hub_.Step();
  char byte = 0;
  EXPECT_TRUE(StepUntil([&] {
    ssize_t got = 1;
    while (got > 0) got = recv(strangers.back().get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || errno == ECONNRESET;
  }));
}

// Sends what a member sent before, on a new connection.
TEST_F(GangTest, ARepeatedHelloIsRefused) {
  UniqueFd fd = Stranger();
  FakeClock clock;
  GangLine first(std::move(fd), GangSide::kMember, clock);
  std::optional<std::string> nonce;
  ASSERT_TRUE(StepUntil([&] {
    first.Pump();
    nonce = first.TakeChallenge();
    return nonce.has_value();
  }));
  const nlohmann::json hello = {
      {"id", "g-1"}, {"rank", 1}, {"epoch", 1}, {"address", "127.0.0.1"}, {"local", "127.0.0.1"}};
  // The answer to another challenge.
  first.AnswerChallenge(GangKeyOfRank(kKey, 1), std::string(64, '0'), hello);
  EXPECT_TRUE(StepUntil([&] {
    first.Pump();
    return !first.open();
  }));
  EXPECT_FALSE(first.proved());
}

TEST_F(GangTest, TheFirstErrorEndsTheOthers) {
  Sit(1);
  Sit(2);
  ASSERT_TRUE(Begin());
  GangEnd failed;
  failed.code = 3;
  seats_[1]->Ended(failed);
  ASSERT_TRUE(StepUntil([this] { return seats_[0]->stop().has_value(); }));
  EXPECT_EQ(*seats_[0]->stop(), "gang:node 2 (host2) ended with exit code 3");
  ASSERT_TRUE(hub_.cause().has_value());
  EXPECT_EQ(hub_.cause()->code, 3);
  EXPECT_FALSE(hub_.AllOver());
  // What follows is no cause.
  GangEnd consequence;
  consequence.code = 143;
  consequence.reason = *seats_[0]->stop();
  seats_[0]->Ended(consequence);
  hub_.OwnEnded(consequence);
  ASSERT_TRUE(StepUntil([this] { return hub_.AllOver(); }));
  EXPECT_EQ(hub_.cause()->rank, 2);
  hub_.Conclude(*hub_.cause());
  ASSERT_TRUE(StepUntil([this] { return seats_[0]->outcome().has_value(); }));
  EXPECT_EQ(seats_[0]->outcome()->code, 3);
  EXPECT_FALSE(seats_[0]->outcome()->retry);
}

TEST_F(GangTest, AMemberIsBelievedOnlySoFar) {
  Sit(1);
  Sit(2);
  ASSERT_TRUE(Begin());
  // A pause that no clock can hold.
  GangEnd late;
  late.code = 1;
  late.retry = true;
  late.delay_ms = int64_t{1} << 62;
  seats_[0]->Ended(late);
  ASSERT_TRUE(StepUntil([this] { return hub_.cause().has_value(); }));
  EXPECT_EQ(hub_.cause()->delay_ms, 24 * 60 * 60 * 1000);
  // An exit code that is none: its line is closed, so that it counts as lost.
  GangEnd odd;
  odd.code = 256;
  seats_[1]->Ended(odd);
  EXPECT_TRUE(StepUntil([this] { return hub_.IsLost(2); }));
}

TEST_F(GangTest, WhoNeverTellsItsEndIsGivenUp) {
  Sit(1);
  Sit(2);
  ASSERT_TRUE(Begin());
  GangEnd failed;
  failed.code = 3;
  hub_.OwnEnded(failed);
  seats_[0]->Ended({});
  StepUntil([] { return false; });
  EXPECT_FALSE(hub_.AllOver());
  hub_.GiveUpOthers();
  EXPECT_TRUE(hub_.AllOver());
  EXPECT_TRUE(hub_.IsLost(2));
  EXPECT_FALSE(hub_.IsLost(1));
}

TEST_F(GangTest, AMemberThatSucceededWaitsForTheOthers) {
  Sit(1);
  Sit(2);
  ASSERT_TRUE(Begin());
  hub_.OwnEnded({});
  seats_[0]->Ended({});
  StepUntil([] { return false; });
  EXPECT_FALSE(hub_.AllOver());
  EXPECT_FALSE(hub_.cause().has_value());
  seats_[1]->Ended({});
  ASSERT_TRUE(StepUntil([this] { return hub_.AllOver(); }));
  EXPECT_FALSE(hub_.cause().has_value());
}

TEST_F(GangTest, AStopOfOneStopsAllForTheSameReason) {
  Sit(1);
  Sit(2);
  ASSERT_TRUE(Begin());
  hub_.OwnIsStopping("user");
  EXPECT_TRUE(StepUntil([this] {
    return seats_[0]->stop().value_or("") == "user" && seats_[1]->stop().value_or("") == "user";
  }));
}

TEST_F(GangTest, ASilentMemberIsLostAndSoIsASilentHub) {
  Sit(1);
  Sit(2);
  ASSERT_TRUE(Begin());
  // The second one hangs: it holds its connection and neither reads nor writes.
  const std::unique_ptr<GangSeat> hung = std::move(seats_[1]);
  seats_.pop_back();
  for (int i = 0; i < 9; ++i) {
    clock_.Advance(absl::Seconds(1));
    StepUntil([n = 0]() mutable { return ++n > 5; });
  }
  EXPECT_FALSE(hub_.cause().has_value());
  EXPECT_TRUE(seats_[0]->lost().empty());
  clock_.Advance(absl::Seconds(2));
  ASSERT_TRUE(StepUntil([this] { return seats_[0]->stop().has_value(); }));
  EXPECT_EQ(*seats_[0]->stop(), "gang:node 2 (host2) was silent for 10 s");
  EXPECT_TRUE(hub_.IsLost(2));
  // Now the hub hangs.
  clock_.Advance(absl::Seconds(11));
  seats_[0]->Step();
  clock_.Advance(absl::Seconds(11));
  seats_[0]->Step();
  EXPECT_EQ(seats_[0]->lost(), "gang:node 0 (host0) was silent for 10 s");
}

TEST_F(GangTest, AMemberWhoseKeeperDiesIsLostAtOnce) {
  Sit(1);
  Sit(2);
  ASSERT_TRUE(Begin());
  seats_.pop_back();
  ASSERT_TRUE(StepUntil([this] { return seats_[0]->stop().has_value(); }));
  EXPECT_EQ(*seats_[0]->stop(), "gang:node 2 (host2) was lost: its connection ended");
}

TEST_F(GangTest, AllGoOnFromTheNewestCommonCheckpoint) {
  hub_.SetReady({30, 20, 10});
  Sit(1).SetReady({20, 10});
  Sit(2).SetReady({});  // it writes none
  ASSERT_TRUE(Begin());
  EXPECT_EQ(go_->resume_step, 20);
  EXPECT_EQ(seats_[1]->go()->resume_step, 20);
}

// Keepers with their job's files, on a clock that moves by itself.
class KeeperTest : public ::testing::Test {
 protected:
  KeeperTest() : paths_(PrepareNodeRoot(dir_.Sub("node")).value()) {}

  MemberJob Accept(int rank) {
    StoredSpec stored;
    stored.spec.set_job_id(absl::StrCat("j-", rank));
    stored.spec.add_argv("true");
    *stored.spec.mutable_gang() = GangOf(2, rank);
    stored.spec_digest = SpecDigest(stored.spec);
    dir_.Write(absl::StrCat("node/jobs/j-", rank, "/spec.json"), FormatStoredSpec(stored));
    return MemberJob(paths_.Job(stored.spec.job_id()), stored, Clock::Real());
  }
  LifecycleEvent LastOf(int rank) {
    const Lifecycle lifecycle = ReadLifecycle(paths_.Job(absl::StrCat("j-", rank))).value();
    return lifecycle.events.empty() ? LifecycleEvent() : lifecycle.events.back();
  }

  TempDir dir_;
  RootPaths paths_;
};

TEST_F(KeeperTest, OnlyItsOwnSettingsAllowARetry) {
  const MemberJob job = Accept(1);
  EXPECT_FALSE(job.MayRetry(1, 0));
  EXPECT_TRUE(job.MayRetry(1, 1)) << "all begin once more where their port was taken";
  EXPECT_FALSE(job.MayRetry(2, 1));
}

TEST_F(KeeperTest, AnEmptyReasonGetsOne) {
  MemberJob job = Accept(1);
  job.End(1, "");
  EXPECT_EQ(LastOf(1).reason, "gang:ended ");
}

// All members may fail at the same moment: what the first one's end asks of an attempt that is over
// must not end the next one, which waits.
TEST_F(KeeperTest, AnEndThatComesTooLateIsNotTheNextAttempts) {
  MemberJob job = Accept(1);
  {
    StreamWriter writer = StreamWriter::Open(job.paths().lifecycle, PlainShape()).value();
    LifecycleEvent event;
    event.type = LifecycleEvent::Type::kExited;
    event.attempt = 1;
    event.exit_code = 3;
    ASSERT_OK(writer.Append(FormatLifecycleEvent(event)));
    event = LifecycleEvent();
    event.type = LifecycleEvent::Type::kRetry;
    event.attempt = 2;
    ASSERT_OK(writer.Append(FormatLifecycleEvent(event)));
  }
  job.End(1, "gang:node 0 (host0) ended with exit code 3");
  EXPECT_EQ(LastOf(1).type, LifecycleEvent::Type::kRetry);
  job.End(2, "gang:node 0 (host0) did not come");
  EXPECT_EQ(LastOf(1).type, LifecycleEvent::Type::kExited);
  EXPECT_EQ(LastOf(1).attempt, 2);
}

TEST_F(KeeperTest, WhoDoesNotComeIsNamed) {
  MemberJob job = Accept(0);
  gpuctl::v1::GangTicket ticket;
  ticket.set_key(kKey);
  GangTimes times;
  times.join = absl::Seconds(1);
  KeepMember(job, ticket, times, Clock::Real());
  EXPECT_EQ(LastOf(0).type, LifecycleEvent::Type::kExited);
  EXPECT_EQ(LastOf(0).reason, "gang:node 1 (host1) did not come within 1 s");
  // What it wrote of itself has no key, and nobody else may read it.
  const std::string note = ReadFileToString(job.paths().gang).value();
  EXPECT_EQ(note.find("kkkk"), std::string::npos);
  EXPECT_EQ(note.find(absl::BytesToHexString(kKey)), std::string::npos);
}

TEST_F(KeeperTest, AMemberThatReachesNobodyEndsByItself) {
  MemberJob job = Accept(1);
  gpuctl::v1::GangTicket ticket;
  ticket.set_key(kKey);
  ticket.mutable_place()->add_addresses("127.0.0.1");
  ticket.mutable_place()->set_port(FreePort("127.0.0.1").value());
  GangTimes times;
  times.join = absl::Seconds(1);
  KeepMember(job, ticket, times, Clock::Real());
  EXPECT_THAT(LastOf(1).reason, HasSubstr("gang:node 0 (host0) was not reached at port "));
}

TEST_F(KeeperTest, TheGangsEndIsTheRunsEnd) {
  MemberJob job = Accept(0);
  ASSERT_OK(StreamWriter::Open(job.paths().lifecycle, PlainShape()).status());
  LifecycleEvent end;
  end.type = LifecycleEvent::Type::kExited;
  end.attempt = 1;
  end.exit_code = 0;
  {
    StreamWriter writer = StreamWriter::Open(job.paths().lifecycle, PlainShape()).value();
    ASSERT_OK(writer.Append(FormatLifecycleEvent(end)));
  }
  GangOutcome outcome;
  outcome.rank = 1;
  outcome.code = 7;
  outcome.reason = "gang:node 1 (host1) ended with exit code 7";
  ASSERT_OK(job.Conclude(1, outcome));
  EXPECT_EQ(LastOf(0).exit_code, 7);
  EXPECT_EQ(LastOf(0).reason, outcome.reason);
  // Once is enough.
  const std::string before = ReadFileToString(job.paths().lifecycle).value();
  ASSERT_OK(job.Conclude(1, outcome));
  EXPECT_EQ(ReadFileToString(job.paths().lifecycle).value(), before);
  ASSERT_OK(job.Announce(1, 500));
  EXPECT_EQ(LastOf(0).type, LifecycleEvent::Type::kRetry);
  EXPECT_EQ(LastOf(0).attempt, 2);
}

TEST_F(KeeperTest, TheOutputSaysThatThePortWasTaken) {
  MemberJob job = Accept(0);
  EXPECT_FALSE(job.SaysPortWasTaken(29501));
  StoredSpec stored = ReadStoredSpec(job.paths()).value();
  StreamWriter writer = StreamWriter::Open(job.paths().output, OutputShape(stored.spec)).value();
  ASSERT_OK(writer.Append("listens on 29501\nport 80: Address already in use\n"));
  ASSERT_OK(writer.Append(std::string(20'000, '.')));
  EXPECT_FALSE(job.SaysPortWasTaken(29501));  // that was long before the end
  ASSERT_OK(writer.Append("failed to bind to [::]:29501 (errno: 98 - Address already in use)\n"));
  EXPECT_TRUE(job.SaysPortWasTaken(29501));
  EXPECT_FALSE(job.SaysPortWasTaken(29502));
}

TEST_F(KeeperTest, TheEnvironmentSaysWhatWasAgreed) {
  MemberJob job = Accept(1);
  gpuctl::v1::JobSpec spec;
  *spec.mutable_gang() = GangOf(2, 1);
  (*spec.mutable_env())["GLOO_SOCKET_IFNAME"] = "mine";
  GangNote note;
  note.attempt = 1;
  note.address = "10.0.0.7";
  note.port = 4321;
  note.interface = "eth3";
  ASSERT_OK(WriteGangNote(job.paths(), note));
  Environment environment = JobEnvironment({}, spec, 1, job.paths(), "");
  EXPECT_EQ(environment["GPUCTL_NODES"], "2");
  EXPECT_EQ(environment["GPUCTL_NODE_RANK"], "1");
  EXPECT_EQ(environment["MASTER_ADDR"], "10.0.0.7");
  EXPECT_EQ(environment["MASTER_PORT"], "4321");
  EXPECT_EQ(environment["NCCL_SOCKET_IFNAME"], "eth3");
  EXPECT_EQ(environment["GLOO_SOCKET_IFNAME"], "mine");
  EXPECT_TRUE(HasGangNote(job.paths(), 1));
  EXPECT_FALSE(HasGangNote(job.paths(), 2));
  // What was agreed for another attempt does not count.
  environment = JobEnvironment({}, spec, 2, job.paths(), "");
  EXPECT_EQ(environment.count("MASTER_ADDR"), 0u);
}

TEST(GangTicketTest, IsCheckedBeforeAJobIsAccepted) {
  gpuctl::v1::GangTicket ticket;
  ticket.set_key(kKey);
  EXPECT_OK(CheckGang(GangOf(2, 0), ticket));
  EXPECT_FALSE(CheckGang(GangOf(2, 1), ticket).ok());  // where is rank 0?
  ticket.mutable_place()->add_addresses("127.0.0.1");
  ticket.mutable_place()->set_port(1);
  EXPECT_OK(CheckGang(GangOf(2, 1), ticket));
  EXPECT_FALSE(CheckGang(GangOf(2, 2), ticket).ok());
  EXPECT_FALSE(CheckGang(GangOf(1, 0), ticket).ok());
  ticket.mutable_place()->add_addresses("gpu1.example");
  EXPECT_FALSE(CheckGang(GangOf(2, 1), ticket).ok());
  ticket.set_key("short");
  EXPECT_FALSE(CheckGang(GangOf(2, 0), ticket).ok());
  ticket.set_key(kKey);
  const gpuctl::v1::GangTicket read = ParseGangTicket(FormatGangTicket(ticket)).value();
  EXPECT_EQ(read.key(), kKey);
  EXPECT_EQ(read.place().addresses_size(), 2);
}

}  // namespace
}  // namespace gpuctl
