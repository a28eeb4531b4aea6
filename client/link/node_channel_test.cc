#include "client/link/agent_calls.h"

#include <fcntl.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <grpcpp/server_posix.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "common/process/pipe.h"
#include "gpuctl/v1/agent.grpc.pb.h"

namespace gpuctl {
namespace {

// A node that compresses its answers, whatever the client accepts.
class CompressingNode : public gpuctl::v1::Agent::Service {
 public:
  CompressingNode(size_t bytes, bool compress) : bytes_(bytes), compress_(compress) {}
  grpc::Status Hello(grpc::ServerContext* context, const gpuctl::v1::HelloRequest* /*request*/,
                     gpuctl::v1::HelloReply* reply) override {
    if (compress_) context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
    reply->set_version(bytes_ > 0 ? std::string(bytes_, 'x') : "1");
    return grpc::Status::OK;
  }

 private:
  const size_t bytes_;
  const bool compress_;
};

grpc::Status Ask(size_t bytes, std::string& version, bool compress) {
  FdPair pair = MakeSocketPair("make a channel").value();
  for (const int fd : {pair.first.get(), pair.second.get()}) fcntl(fd, F_SETFL, O_NONBLOCK);
  CompressingNode node(bytes, compress);
  grpc::ServerBuilder builder;
  builder.RegisterService(&node);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  grpc::AddInsecureChannelFromFd(server.get(), pair.second.release());
  const auto stub = gpuctl::v1::Agent::NewStub(NodeChannel(std::move(pair.first)));
  grpc::ClientContext context;
  gpuctl::v1::HelloReply reply;
  const grpc::Status status = stub->Hello(&context, {}, &reply);
  version = reply.version();
  server->Shutdown();
  return status;
}

TEST(NodeChannelTest, AnOrdinaryAnswerArrives) {
  std::string version;
  EXPECT_TRUE(Ask(0, version, /*compress=*/false).ok());
  EXPECT_EQ(version, "1");
}

TEST(NodeChannelTest, ALongListArrives) {
  std::string version;
  const grpc::Status status = Ask(20 << 20, version, /*compress=*/false);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(version.size(), size_t{20} << 20);
}

TEST(NodeChannelTest, ACompressedAnswerIsNotUnpacked) {
  std::string version;
  // Even one within the limit: the size is known only after the work.
  EXPECT_FALSE(Ask(1 << 20, version, /*compress=*/true).ok());
  EXPECT_TRUE(version.empty());
}

}  // namespace
}  // namespace gpuctl
