// Stands in the agent's place on a node and lies: it passes everything to the real agent beside it
// (gpuctl-agent-real) and changes the answers. The file `lies` beside it has the seed and the
// probability with which a field of an answer changes; 0: it tells the truth.
#include <fcntl.h>
#include <grpcpp/channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <grpcpp/server_posix.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/link/agent_calls.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"
#include "gpuctl/v1/agent.grpc.pb.h"
#include "gpuctl/v1/transfer.pb.h"
#include "tests/soak/liar.h"

namespace gpuctl {
namespace {

constexpr int kMostReplies = 400;  // of an endless stream, which then stands still
constexpr absl::Duration kStands = absl::Seconds(40);

// The lies of this process, for all of its threads.
class Lies {
 public:
  Lies(uint64_t seed, double chance) : liar_(seed, chance) {}

  void Change(google::protobuf::Message& message) {
    std::lock_guard<std::mutex> lock(mutex_);
    liar_.Lie(message);
  }
  bool Chance(double probability) {
    std::lock_guard<std::mutex> lock(mutex_);
    return liar_.Chance(probability);
  }
  uint64_t Below(uint64_t limit) {
    std::lock_guard<std::mutex> lock(mutex_);
    return liar_.Below(limit);
  }
  std::string Text() {
    std::lock_guard<std::mutex> lock(mutex_);
    return liar_.Text(false);
  }
  double chance() const { return liar_.chance(); }

 private:
  std::mutex mutex_;
  Liar liar_;
};

grpc::Status Lied(Lies& lies, const grpc::Status& status) {
  if (!lies.Chance(lies.chance() / 2)) return status;
  v1::ErrorDetail detail;
  lies.Change(detail);
  if (lies.Chance(0.5)) detail.set_kind(static_cast<v1::ErrorDetail::Kind>(lies.Below(7)));
  return {static_cast<grpc::StatusCode>(lies.Below(18)), lies.Text().substr(0, 4000),
          lies.Chance(0.8) ? detail.SerializeAsString() : lies.Text().substr(0, 4000)};
}

class LyingService : public v1::Agent::Service {
 public:
  LyingService(std::unique_ptr<v1::Agent::StubInterface> real, Lies& lies)
      : real_(std::move(real)), lies_(lies) {}

#define GPUCTL_PASS_ON(Name, Request, Reply)                                                    \
  grpc::Status Name(grpc::ServerContext* context, const v1::Request* request, v1::Reply* reply) \
      override {                                                                                \
    const auto onward = grpc::ClientContext::FromServerContext(*context);                       \
    const grpc::Status status = real_->Name(onward.get(), *request, reply);                     \
    if (lies_.Chance(lies_.chance() / 10)) Clock::Real().SleepFor(kStands);                     \
    lies_.Change(*reply);                                                                       \
    return Lied(lies_, status);                                                                 \
  }
  GPUCTL_PASS_ON(Hello, HelloRequest, HelloReply)
  GPUCTL_PASS_ON(ListJobs, ListJobsRequest, ListJobsReply)
  GPUCTL_PASS_ON(StartJob, StartJobRequest, Job)
  GPUCTL_PASS_ON(StopJob, StopJobRequest, Job)
  GPUCTL_PASS_ON(ListArtifacts, ListArtifactsRequest, ListArtifactsReply)
  GPUCTL_PASS_ON(SetNodeLimits, NodeLimits, NodeLimitsState)
  GPUCTL_PASS_ON(MarkHome, MarkHomeRequest, NodeLimitsState)
  GPUCTL_PASS_ON(RemoveJob, RemoveJobRequest, RemoveJobReply)
#undef GPUCTL_PASS_ON

  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchReply>* writer) override {
    const auto onward = grpc::ClientContext::FromServerContext(*context);
    const auto reader = real_->Watch(onward.get(), *request);
    v1::WatchReply reply;
    while (reader->Read(&reply)) {
      const bool endless = lies_.Chance(lies_.chance() / 5);
      const int times = endless ? kMostReplies : lies_.Chance(lies_.chance()) ? 2 : 1;
      for (int i = 0; i < times; ++i) {
        v1::WatchReply lied = reply;
        lies_.Change(lied);
        if (endless) Flood(lied);
        if (!writer->Write(lied)) return grpc::Status::CANCELLED;
      }
      if (endless) Clock::Real().SleepFor(kStands);
      if (lies_.Chance(lies_.chance() / 5)) break;
    }
    onward->TryCancel();
    while (reader->Read(&reply)) {
    }
    return Lied(lies_, reader->Finish());
  }

 private:
  // Makes the reply a part of a stream without end.
  void Flood(v1::WatchReply& reply) {
    reply.set_complete(false);
    v1::Chunk& chunk = *reply.add_chunks();
    chunk.set_stream(static_cast<v1::Stream>(1 + lies_.Below(4)));
    chunk.set_offset(flooded_);
    chunk.set_data(std::string(lies_.Below(1 << 17), lies_.Chance(0.5) ? '{' : '\n'));
    flooded_ += static_cast<int64_t>(chunk.data().size());
  }

  const std::unique_ptr<v1::Agent::StubInterface> real_;
  Lies& lies_;
  int64_t flooded_ = 0;
};

bool Put(int fd, const char* data, size_t size) {
  return WriteAll(fd, absl::string_view(data, size), "onward").ok();
}

// Copies until an end ends. Changes nothing.
void CopyPlainly(int from, int to) {
  std::vector<char> buffer(1 << 16);
  for (;;) {
    const ssize_t got = read(from, buffer.data(), buffer.size());
    if (got <= 0 || !Put(to, buffer.data(), static_cast<size_t>(got))) return;
  }
}

// Copies likewise, but may break off, put something in, or change bytes.
void CopyBadly(int from, int to, Lies& lies) {
  std::vector<char> buffer(1 << 14);
  for (;;) {
    const ssize_t got = read(from, buffer.data(), buffer.size());
    if (got <= 0) return;
    size_t size = static_cast<size_t>(got);
    if (lies.Chance(lies.chance() / 20)) {
      switch (lies.Below(4)) {
        case 0:
          (void)Put(to, buffer.data(), lies.Below(size));
          return;
        case 1: {
          const std::string more = lies.Text();
          if (!Put(to, more.data(), more.size())) return;
          break;
        }
        case 2:
          buffer[lies.Below(size)] = static_cast<char>(lies.Below(256));
          break;
        default:
          Clock::Real().SleepFor(kStands);
      }
    }
    if (!Put(to, buffer.data(), size)) return;
  }
}

std::string RealAgent(const char* argv0) {
  return JoinPath(DirName(SelfPath(argv0)), "gpuctl-agent-real");
}

// Starts the real agent with the same arguments and its stdin and stdout as given.
pid_t StartReal(char** argv, int in, int out) {
  SpawnOptions options;
  options.argv = {RealAgent(argv[0])};
  for (char** word = argv + 1; *word != nullptr; ++word) options.argv.emplace_back(*word);
  options.stdin_fd = in;
  options.stdout_fd = out;
  options.stderr_fd = 2;
  const absl::StatusOr<pid_t> pid = Spawn(options);
  if (!pid.ok()) exit(1);
  return *pid;
}

// Reads a line, with its end.
std::string ReadLine(int fd) {
  std::string line;
  char byte = 0;
  while (line.size() < 10000 && read(fd, &byte, 1) == 1) {
    line += byte;
    if (byte == '\n') break;
  }
  return line;
}

int Bridge(char** argv, Lies& lies) {
  FdPair real = MakeSocketPair("talk to the real bridge").value();
  StartReal(argv, real.second.get(), real.second.get());
  real.second.reset();
  // An empty line, then that of the bridge.
  std::string banner = ReadLine(real.first.get());
  banner += ReadLine(real.first.get());
  if (!absl::StrContains(banner, "GPUCTL-BRIDGE")) {
    (void)Put(1, banner.data(), banner.size());
    CopyPlainly(real.first.get(), 1);
    return 1;
  }
  if (lies.Chance(lies.chance() / 4)) {
    if (lies.Chance(0.3)) banner = lies.Text();
    if (!banner.empty()) banner.insert(lies.Below(banner.size()), lies.Text());
  }
  if (!Put(1, banner.data(), banner.size())) return 1;
  LyingService service(v1::Agent::NewStub(NodeChannel(std::move(real.first))), lies);
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  FdPair ends = MakeSocketPair("serve").value();
  const int served = ends.first.release();
  fcntl(served, F_SETFL, fcntl(served, F_GETFL) | O_NONBLOCK);
  grpc::AddInsecureChannelFromFd(server.get(), served);
  const int fd = ends.second.get();
  // The end of either direction is the end of all. Nothing of ours needs an orderly end.
  std::thread([fd] {
    CopyPlainly(0, fd);
    _exit(0);
  }).detach();
  CopyBadly(fd, 1, lies);
  _exit(0);
}

// Reads exactly `size` bytes.
bool Get(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t got = read(fd, data, size);
    if (got <= 0) return false;
    data += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool PutFrame(const std::string& body, uint32_t length) {
  char prefix[4];
  for (int i = 0; i < 4; ++i) prefix[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return Put(1, prefix, 4) && Put(1, body.data(), body.size());
}

// Sends the frame with lies: also twice, with a wrong length, or another one before it.
bool LieFrame(const std::string& body, Lies& lies) {
  v1::TransferFrame frame;
  std::string sent = body;
  if (frame.ParseFromString(body)) {
    lies.Change(frame);
    if (!lies.Chance(0.9)) {
      v1::TransferFrame other;
      lies.Change(other);
      if (other.frame_case() != v1::TransferFrame::FRAME_NOT_SET) frame = other;
    }
    sent = frame.SerializeAsString();
  }
  const double rarely = lies.chance() / 5;
  if (lies.Chance(rarely)) return true;  // it never comes
  if (lies.Chance(rarely)) Clock::Real().SleepFor(kStands);
  uint32_t length = static_cast<uint32_t>(sent.size());
  if (lies.Chance(rarely)) length += static_cast<uint32_t>(lies.Below(1u << 31));
  if (lies.Chance(rarely)) sent.resize(lies.Below(sent.size() + 1));
  const int times = lies.Chance(rarely) ? 1 + static_cast<int>(lies.Below(kMostReplies)) : 1;
  for (int i = 0; i < times; ++i) {
    if (!PutFrame(sent, length)) return false;
  }
  return true;
}

int Transfer(char** argv, Lies& lies) {
  FdPair back = MakePipe("hear the real agent").value();
  StartReal(argv, 0, back.second.get());
  back.second.reset();
  const int from = back.first.get();
  std::string body;
  for (;;) {
    unsigned char prefix[4];
    if (!Get(from, reinterpret_cast<char*>(prefix), 4)) return 0;
    const uint32_t length = uint32_t{prefix[0]} | uint32_t{prefix[1]} << 8 |
                            uint32_t{prefix[2]} << 16 | uint32_t{prefix[3]} << 24;
    if (length > 2 << 20) return 1;
    body.resize(length);
    if (!Get(from, body.data(), length)) return 1;
    if (!LieFrame(body, lies)) return 0;
  }
}

int Run(char** argv) {
  signal(SIGPIPE, SIG_IGN);
  const std::string command = argv[1] == nullptr ? "" : argv[1];
  const std::string plan = JoinPath(DirName(SelfPath(argv[0])), "lies");
  uint64_t seed = 0;
  double chance = 0;
  std::ifstream(plan) >> seed >> chance;
  const bool talks = command == "bridge" || command == "send" || command == "receive";
  if (chance <= 0 || !talks) {
    const std::string real = RealAgent(argv[0]);
    execv(real.c_str(), argv);
    return 127;
  }
  // Each process of a round lies in another way, the n-th always in the same.
  const int count = open(absl::StrCat(plan, ".count").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  struct stat info {};
  (void)fstat(count, &info);
  (void)Put(count, "x", 1);
  close(count);
  Lies lies(seed * 1000003 + static_cast<uint64_t>(info.st_size), chance);
  return command == "bridge" ? Bridge(argv, lies) : Transfer(argv, lies);
}

}  // namespace
}  // namespace gpuctl

int main(int, char** argv) { return gpuctl::Run(argv); }
