#include "provisioning/http/curl_http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/process/pipe.h"
#include "provisioning/http/curl_library.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// Removes the user's proxy, which must not be used for loopback.
class Environment : public ::testing::Environment {
 public:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    setenv("no_proxy", "*", 1);
    unsetenv("SSL_CERT_FILE");
  }
};
// Time for a connection and an answer's beginning. A processor that has much else to do takes some.
constexpr absl::Duration kEnough = absl::Seconds(2);

const auto* const kEnvironment = ::testing::AddGlobalTestEnvironment(new Environment);

// Listens on loopback and gives each connection in turn to a function.
class RawServer {
 public:
  using Serve = std::function<void(int fd, int connection)>;
  explicit RawServer(Serve serve)
      : ends_(MakePipe("make a pipe").value()), socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_.get(), 8), 0);
    EXPECT_EQ(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, serve = std::move(serve)] { Accept(serve); });
  }
  ~RawServer() {
    ends_.second.reset();
    thread_.join();
  }

  int port() const { return port_; }
  // Waits until the test is over, for a server that never answers.
  void WaitForEnd() {
    pollfd end = {ends_.first.get(), POLLIN, 0};
    poll(&end, 1, -1);
  }

  // Reads a request's head and its body by the head's length. Empty at the connection's end.
  static std::string ReadRequest(int fd) {
    std::string text;
    char byte = 0;
    while (!absl::EndsWith(text, "\r\n\r\n")) {
      if (recv(fd, &byte, 1, 0) != 1) return "";
      text += byte;
    }
    return text;
  }
  static void Write(int fd, absl::string_view text) {
    ASSERT_EQ(send(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  // Makes the close a reset for the other side, not an end.
  static void ResetOnClose(int fd) {
    const linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }

 private:
  void Accept(const Serve& serve) {
    for (int connection = 1;; ++connection) {
      pollfd waiting[] = {{socket_.get(), POLLIN, 0}, {ends_.first.get(), POLLIN, 0}};
      poll(waiting, 2, -1);
      if (waiting[1].revents != 0) return;
      const UniqueFd fd(accept(socket_.get(), nullptr, nullptr));
      if (fd.valid()) serve(fd.get(), connection);
    }
  }
  FdPair ends_;
  UniqueFd socket_;
  int port_ = 0;
  std::thread thread_;
};

class HttpServer {
 public:
  HttpServer() {
    port_ = server.bind_to_any_port("127.0.0.1");
    // Before it runs it cannot be stopped; a connection waits for it in the queue.
    thread_ = std::thread([this] { server.listen_after_bind(); });
  }
  ~HttpServer() {
    // The server answers only when it runs.
    httplib::Client("127.0.0.1", port_).Get("/");
    server.stop();
    thread_.join();
  }
  std::string Url(absl::string_view path) const {
    return absl::StrCat("http://127.0.0.1:", port_, path);
  }
  httplib::Server server;

 private:
  int port_ = 0;
  std::thread thread_;
};

HttpRequest Get(std::string url) {
  HttpRequest request;
  request.method = "GET";
  request.url = std::move(url);
  request.repeatable = true;
  return request;
}

HttpRequest Get(int port, absl::string_view scheme = "http") {
  return Get(absl::StrCat(scheme, "://127.0.0.1:", port, "/list"));
}

HttpRequest Post(int port) {
  HttpRequest request = Get(port);
  request.method = "POST";
  request.body = "{}";
  request.repeatable = false;
  return request;
}

TEST(CurlHttp, SendsWhatItIsGivenAndReturnsWhatCame) {
  HttpServer server;
  server.server.Put("/asks/7/", [](const httplib::Request& request, httplib::Response& response) {
    response.status = 201;
    response.set_header("X-Request-Id", "req-1");
    response.set_content(absl::StrCat(request.get_header_value("User-Agent"), "|",
                                      request.get_header_value("Authorization"), "|",
                                      request.has_header("Expect") ? "expect" : "", "|",
                                      request.get_header_value("Content-Type"), "|", request.body),
                         "text/plain");
  });
  CurlHttpOptions options;
  options.user_agent = "gpuctl/1.2";
  const auto http = MakeCurlHttp(options);
  HttpRequest request = Get(server.Url("/asks/7/"));
  request.method = "PUT";
  request.headers = {{"Authorization", "Bearer abc"}, {"Content-Type", "application/json"}};
  request.body = std::string("{\"a\":\0 1}", 9) + std::string(4096, 'x');
  const auto response = http->Send(request);
  ASSERT_OK(response);
  EXPECT_EQ(response->status, 201);
  EXPECT_EQ(response->body, absl::StrCat("gpuctl/1.2|Bearer abc||application/json|", request.body));
  EXPECT_THAT(response->headers, Contains(Pair("x-request-id", "req-1")));
}

TEST(CurlHttp, EmptyPostsAndDeletes) {
  HttpServer server;
  server.server.Post("/start", [](const httplib::Request& request, httplib::Response& response) {
    response.set_content(request.get_header_value("Content-Length"), "text/plain");
  });
  server.server.Delete("/pods/1", [](const httplib::Request&, httplib::Response& response) {
    response.status = 204;
  });
  const auto http = MakeCurlHttp({});
  HttpRequest request = Get(server.Url("/start"));
  request.method = "POST";
  auto response = http->Send(request);
  ASSERT_OK(response);
  EXPECT_EQ(response->body, "0");
  request = Get(server.Url("/pods/1"));
  request.method = "DELETE";
  response = http->Send(request);
  ASSERT_OK(response);
  EXPECT_EQ(response->status, 204);
  EXPECT_EQ(response->body, "");
}

TEST(CurlHttp, EveryStatusIsAnAnswerAndRedirectsAreNotFollowed) {
  HttpServer server;
  std::atomic<int> followed = 0;
  server.server.Get("/elsewhere", [&](const httplib::Request&, httplib::Response&) { ++followed; });
  server.server.Get("/moved", [](const httplib::Request&, httplib::Response& response) {
    response.set_redirect("/elsewhere", 301);
  });
  server.server.Get("/down", [](const httplib::Request&, httplib::Response& response) {
    response.status = 503;
    response.set_content("<html>sorry</html>", "text/html");
  });
  const auto http = MakeCurlHttp({});
  EXPECT_EQ(http->Send(Get(server.Url("/moved")))->status, 301);
  EXPECT_EQ(followed, 0);
  const auto down = http->Send(Get(server.Url("/down")));
  ASSERT_OK(down);
  EXPECT_EQ(down->status, 503);
  EXPECT_EQ(down->body, "<html>sorry</html>");
}

TEST(CurlHttp, ChunksAreJoined) {
  HttpServer server;
  server.server.Get("/chunked", [](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("text/plain", [](size_t offset, httplib::DataSink& sink) {
      if (offset >= 30000) {
        sink.done();
      } else {
        sink.write(std::string(10000, 'c').data(), 10000);
      }
      return true;
    });
  });
  const auto response = MakeCurlHttp({})->Send(Get(server.Url("/chunked")));
  ASSERT_OK(response);
  EXPECT_EQ(response->body, std::string(30000, 'c'));
}

TEST(CurlHttp, AReplyThatIsTooLargeIsUnknown) {
  HttpServer server;
  server.server.Get("/huge", [](const httplib::Request&, httplib::Response& response) {
    response.set_content(std::string((1 << 20) + 1, 'h'), "text/plain");
  });
  server.server.Get("/large", [](const httplib::Request&, httplib::Response& response) {
    response.set_content(std::string(1 << 20, 'l'), "text/plain");
  });
  CurlHttpOptions options;
  options.max_reply_bytes = 1 << 20;
  const auto http = MakeCurlHttp(options);
  EXPECT_THAT(http->Send(Get(server.Url("/huge"))),
              StatusIs(absl::StatusCode::kUnknown, HasSubstr("longer than 1 MiB")));
  EXPECT_OK(http->Send(Get(server.Url("/large"))));
}

TEST(CurlHttp, NobodyListensIsUnavailable) {
  int port = 0;
  {
    const RawServer gone([](int, int) {});
    port = gone.port();
  }
  EXPECT_THAT(MakeCurlHttp({})->Send(Post(port)), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(CurlHttp, ABrokenHandshakeIsUnavailable) {
  const RawServer server([](int fd, int) { RawServer::ResetOnClose(fd); });
  EXPECT_THAT(MakeCurlHttp({})->Send(Get(server.port(), "https")),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST(CurlHttp, AHandshakeWithoutEndIsUnavailable) {
  RawServer* self = nullptr;
  RawServer server([&self](int, int) { self->WaitForEnd(); });
  self = &server;
  HttpRequest request = Get(server.port(), "https");
  request.timeout = absl::Milliseconds(200);
  EXPECT_THAT(MakeCurlHttp({})->Send(request), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(CurlHttp, AResetAfterTheRequestIsUnknown) {
  const RawServer server([](int fd, int) {
    RawServer::ReadRequest(fd);
    RawServer::ResetOnClose(fd);
  });
  EXPECT_THAT(MakeCurlHttp({})->Send(Post(server.port())), StatusIs(absl::StatusCode::kUnknown));
}

TEST(CurlHttp, AResetBeforeTheRequestWasReadIsUnknownToo) {
  const RawServer server([](int fd, int) {
    // Earlier the client could see the reset before it sends anything, which is no unknown.
    pollfd request = {fd, POLLIN, 0};
    poll(&request, 1, -1);
    RawServer::ResetOnClose(fd);
  });
  EXPECT_THAT(MakeCurlHttp({})->Send(Post(server.port())), StatusIs(absl::StatusCode::kUnknown));
}

TEST(CurlHttp, TornRepliesAreUnknown) {
  for (const char* torn :
       {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"id\":",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "HTTP/1.1 20",
        "HTTP/1.1 200 OK\r\nContent-Le", "SSH-2.0-OpenSSH_9.2\r\n", ""}) {
    const RawServer server([torn](int fd, int) {
      RawServer::ReadRequest(fd);
      RawServer::Write(fd, torn);
      shutdown(fd, SHUT_RDWR);
    });
    EXPECT_THAT(MakeCurlHttp({})->Send(Post(server.port())), StatusIs(absl::StatusCode::kUnknown))
        << torn;
  }
}

TEST(CurlHttp, AReplyThatDoesNotComeExceedsTheDeadline) {
  RawServer* self = nullptr;
  RawServer server([&self](int fd, int) {
    RawServer::ReadRequest(fd);
    RawServer::Write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{");
    self->WaitForEnd();
  });
  self = &server;
  HttpRequest request = Post(server.port());
  request.timeout = kEnough;
  EXPECT_THAT(MakeCurlHttp({})->Send(request), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(CurlHttp, OfAnAnswerWithoutEndComesWhatIsThere) {
  RawServer* self = nullptr;
  RawServer server([&self](int fd, int) {
    RawServer::ReadRequest(fd);
    RawServer::Write(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    self->WaitForEnd();
  });
  self = &server;
  HttpRequest request = Get(server.port());
  request.timeout = kEnough;
  request.endless = true;
  const auto answer = MakeCurlHttp({})->Send(request);
  ASSERT_OK(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "hello");
}

TEST(CurlHttp, AnAnswerWithoutEndStillNeedsABeginning) {
  RawServer* self = nullptr;
  RawServer server([&self](int fd, int) {
    RawServer::ReadRequest(fd);
    RawServer::Write(fd, "HTTP/1.1 200 OK\r\n");
    self->WaitForEnd();
  });
  self = &server;
  HttpRequest request = Get(server.port());
  request.timeout = kEnough;
  request.endless = true;
  EXPECT_THAT(MakeCurlHttp({})->Send(request), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

// libcurl sends a request again when a kept connection closes without an answer. It must not do so
// with a create.
TEST(CurlHttp, ACreateIsSentOnceAlsoBesideAKeptConnection) {
  std::atomic<int> creates = 0, connections = 0;
  const RawServer server([&](int fd, int connection) {
    connections = connection;
    const std::string first = RawServer::ReadRequest(fd);
    if (absl::StartsWith(first, "POST")) {
      ++creates;
      return;
    }
    RawServer::Write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    // The next one on this connection stays without an answer. The client may also leave it open.
    pollfd more = {fd, POLLIN, 0};
    if (poll(&more, 1, 100) == 1 && absl::StartsWith(RawServer::ReadRequest(fd), "POST")) {
      ++creates;
    }
  });
  const auto http = MakeCurlHttp({});
  ASSERT_OK(http->Send(Get(server.port())));
  EXPECT_THAT(http->Send(Post(server.port())), StatusIs(absl::StatusCode::kUnknown));
  EXPECT_EQ(creates, 1);
  EXPECT_EQ(connections, 2);
}

TEST(CurlHttp, ConnectionsAreKeptForReads) {
  std::atomic<int> connections = 0;
  const RawServer server([&](int fd, int connection) {
    connections = connection;
    while (!RawServer::ReadRequest(fd).empty()) {
      RawServer::Write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]");
    }
  });
  {
    const auto http = MakeCurlHttp({});
    for (int i = 0; i < 3; ++i) ASSERT_OK(http->Send(Get(server.port())));
  }
  EXPECT_EQ(connections, 1);
}

TEST(CurlHttp, SafeFromSeveralThreads) {
  HttpServer server;
  server.server.Get(R"(/echo/(\d+))",
                    [](const httplib::Request& request, httplib::Response& response) {
                      response.set_content(request.matches[1].str(), "text/plain");
                    });
  const auto http = MakeCurlHttp({});
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 10; ++i) {
        const std::string number = absl::StrCat(thread * 100 + i);
        const auto response = http->Send(Get(server.Url(absl::StrCat("/echo/", number))));
        if (response.ok() && response->body == number) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 40);
}

TEST(CurlHttp, RefusesWhatCannotBeARequest) {
  const auto http = MakeCurlHttp({});
  HttpRequest request = Get("file:///etc/passwd");
  EXPECT_THAT(http->Send(request), StatusIs(absl::StatusCode::kInvalidArgument));
  request = Get("http://127.0.0.1:1/\r\nX: y");
  EXPECT_THAT(http->Send(request), StatusIs(absl::StatusCode::kInvalidArgument));
  request = Get("http://127.0.0.1:1/");
  request.headers = {{"Authorization", "Bearer a\r\nX-More: b"}};
  EXPECT_THAT(http->Send(request),
              StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("Bearer"))));
  request = Get("http://127.0.0.1:1/");
  request.method = "get";
  EXPECT_THAT(http->Send(request), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(CurlLibrary, SaysHowToInstallItWhenItIsNotThere) {
  const char* const names[] = {"libno-such-curl.so.4"};
  EXPECT_THAT(LoadCurlFrom(names, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("install")));
}

}  // namespace
}  // namespace gpuctl
