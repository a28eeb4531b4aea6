#include "client/dashboard/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/fake_clock.h"

namespace gpuctl {
namespace {

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() : server_(*HttpServer::Listen(0, clock_)) {}

  UniqueFd Connect() const {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  static void Write(const UniqueFd& fd, const std::string& bytes) {
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Serves what there is, and returns what the client got; *ended: its connection is over.
  std::string Got(const UniqueFd& fd, bool* ended = nullptr) {
    for (int i = 0; i < 5; ++i) Serve();
    std::string bytes(1 << 20, '\0');
    const ssize_t count = recv(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (ended != nullptr) *ended = count == 0;
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(0, count)));
    return bytes;
  }
  void Serve() {
    server_->Serve([this](const PageRequest& request, int64_t stream) {
      PageReply reply;
      reply.body = absl::StrCat("you asked for ", request.path, body_);
      reply.is_stream = request.path == "/stream";
      if (reply.is_stream) newest_ = stream;
      return reply;
    });
  }

  FakeClock clock_;
  std::unique_ptr<HttpServer> server_;
  int64_t newest_ = 0;
  std::string body_;
};

constexpr char kAsk[] = "GET /x HTTP/1.1\r\n\r\n";
constexpr char kStream[] = "GET /stream HTTP/1.1\r\n\r\n";

TEST_F(HttpServerTest, AnswersAndCloses) {
  const UniqueFd client = Connect();
  Write(client, kAsk);
  const std::string answer = Got(client);
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\nyou asked for /x")) << answer;
  bool ended = false;
  EXPECT_EQ(Got(client, &ended), "");
  EXPECT_TRUE(ended);
}

TEST_F(HttpServerTest, ARequestMayComeInPieces) {
  const UniqueFd client = Connect();
  for (const char c : std::string(kAsk)) {
    EXPECT_EQ(Got(client), "");
    Write(client, std::string(1, c));
  }
  EXPECT_TRUE(absl::EndsWith(Got(client), "/x"));
}

TEST_F(HttpServerTest, OneWhoSendsNothingMoreIsNotWaitedFor) {
  const UniqueFd cut = Connect();
  Write(cut, "GET / HT");
  shutdown(cut.get(), SHUT_WR);
  for (int i = 0; i < 2; ++i) Serve();
  EXPECT_EQ(server_->connections(), 0u);

  const UniqueFd asked = Connect();
  Write(asked, kStream);
  Serve();
  const UniqueFd whole = Connect();
  Write(whole, kAsk);
  shutdown(whole.get(), SHUT_WR);
  EXPECT_TRUE(absl::EndsWith(Got(whole), "/x"));
  EXPECT_EQ(server_->connections(), 1u);
}

TEST_F(HttpServerTest, AnAnswerThatWaitsForItsReaderIsNoBusyLoop) {
  body_ = std::string(16 << 20, 'x');
  const UniqueFd client = Connect();
  Write(client, kAsk);
  shutdown(client.get(), SHUT_WR);
  for (int i = 0; i < 3; ++i) Serve();
  ASSERT_EQ(server_->connections(), 1u);
  std::vector<pollfd> polled;
  server_->AddPolled(polled);
  EXPECT_EQ(poll(polled.data(), static_cast<nfds_t>(polled.size()), 0), 0);
}

TEST_F(HttpServerTest, ListensOnLoopbackAlone) {
  EXPECT_EQ(HttpServer::Listen(server_->port(), clock_).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(HttpServerTest, AStreamStaysAndGetsWhatIsSent) {
  const UniqueFd client = Connect();
  Write(client, kStream);
  EXPECT_TRUE(absl::EndsWith(Got(client), "\r\n\r\nyou asked for /stream"));
  ASSERT_TRUE(server_->HasStream(newest_));
  server_->Send(newest_, "news");
  EXPECT_EQ(server_->Unsent(newest_), 4u);
  EXPECT_EQ(Got(client), "news");
  EXPECT_EQ(server_->Unsent(newest_), 0u);
  // Silence is no reason to end it.
  clock_.Advance(absl::Hours(1));
  bool ended = false;
  EXPECT_EQ(Got(client, &ended), "");
  EXPECT_FALSE(ended);
  shutdown(client.get(), SHUT_RDWR);
  Serve();
  EXPECT_FALSE(server_->HasStream(newest_));
}

TEST_F(HttpServerTest, AStreamThatTakesNothingEnds) {
  const UniqueFd client = Connect();
  Write(client, kStream);
  Serve();
  server_->Send(newest_, std::string(16 << 20, 'x'));
  for (int i = 0; i < 3; ++i) Serve();
  EXPECT_GT(server_->Unsent(newest_), 0u);
  clock_.Advance(HttpServer::kStreamPatience + absl::Seconds(1));
  Serve();
  EXPECT_FALSE(server_->HasStream(newest_));
}

TEST_F(HttpServerTest, OneWhoSaysNothingIsLeft) {
  const UniqueFd silent = Connect(), slow = Connect();
  Write(slow, "GET / HT");
  Serve();
  EXPECT_EQ(server_->connections(), 2u);
  clock_.Advance(HttpServer::kPatience + absl::Seconds(1));
  Serve();
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(HttpServerTest, HasLimits) {
  std::vector<UniqueFd> clients;
  for (size_t i = 0; i < HttpServer::kMostConnections; ++i) clients.push_back(Connect());
  Serve();
  const UniqueFd late = Connect();
  EXPECT_TRUE(absl::StartsWith(Got(late), "HTTP/1.1 503 "));
  EXPECT_EQ(server_->connections(), HttpServer::kMostConnections);
  clients.clear();
  Serve();
  EXPECT_EQ(server_->connections(), 0u);
  for (size_t i = 0; i < HttpServer::kMostStreams; ++i) {
    clients.push_back(Connect());
    Write(clients.back(), kStream);
    Serve();
  }
  const UniqueFd more = Connect();
  Write(more, kStream);
  EXPECT_TRUE(absl::StartsWith(Got(more), "HTTP/1.1 503 "));
}

TEST_F(HttpServerTest, MoreThanARequestIsReadAndForgotten) {
  const UniqueFd client = Connect();
  Write(client, std::string(200'000, 'x'));
  EXPECT_TRUE(absl::StartsWith(Got(client), "HTTP/1.1 431 "));
}

}  // namespace
}  // namespace gpuctl
