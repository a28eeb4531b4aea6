#include "tests/cloudsim/server.h"

#include <fcntl.h>
#include <httplib.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {
namespace {

constexpr int kThreads = 96;
constexpr char kErrorMessage[] = "Something went wrong. Please try again later.";

// Returns our descriptor of the client's connection, which the library does not give; -1 when there
// is none.
int FindConnection(int client_port, int our_port) {
  const auto names = ListDirectory("/proc/self/fd");
  if (!names.ok()) return -1;
  for (const std::string& name : *names) {
    int fd = -1;
    sockaddr_in peer{};
    sockaddr_in own{};
    socklen_t size = sizeof(peer);
    if (!absl::SimpleAtoi(name, &fd) ||
        getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
      continue;
    }
    size = sizeof(own);
    getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size);
    if (peer.sin_family == AF_INET && ntohs(peer.sin_port) == client_port &&
        ntohs(own.sin_port) == our_port) {
      return fd;
    }
  }
  return -1;
}

// Ends all connections: idle ones would keep their threads until they time out.
void EndConnections(int our_port) {
  const auto names = ListDirectory("/proc/self/fd");
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    int fd = -1;
    sockaddr_in own{};
    socklen_t size = sizeof(own);
    if (absl::SimpleAtoi(name, &fd) &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        own.sin_family == AF_INET && ntohs(own.sin_port) == our_port) {
      shutdown(fd, SHUT_RD);
    }
  }
}

bool ClientIsGone(int fd) {
  pollfd waited{fd, POLLRDHUP, 0};
  return fd < 0 || (poll(&waited, 1, 0) > 0 && waited.revents != 0);
}

// Resets the client's connection. What the library writes afterwards is lost.
void ResetConnection(int fd) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  if (fd >= 0) (void)connect(fd, &none, sizeof(none));
}

Call MakeCall(const httplib::Request& request) {
  Call call;
  call.method = request.method;
  call.parts = absl::StrSplit(request.path, '/', absl::SkipEmpty());
  if (!call.parts.empty() && call.parts[0] != "_sim") {
    call.service = call.parts[0];
    call.parts.erase(call.parts.begin());
    call.path = request.path.substr(call.service.size() + 1);
  } else {
    call.path = request.path;
  }
  for (const auto& [name, value] : request.params) call.query.emplace(name, value);
  for (const auto& [name, value] : request.headers) {
    call.headers[absl::AsciiStrToLower(name)] = value;
  }
  call.body = request.body;
  call.json = Json::parse(request.body, nullptr, false);
  return call;
}

Reply ErrorOf(const Service& service, int status) {
  if (status == 502 || status == 504) {
    Reply reply;
    reply.status = status;
    reply.type = "text/html";
    reply.body =
        absl::StrCat("<html>\n<head><title>", status, "</title></head>\n<body><center><h1>", status,
                     " upstream error</h1></center></body>\n</html>\n");
    return reply;
  }
  return service.Error(status, kErrorMessage);
}

// Returns `reply` changed by the fault. A torn reply is cut later, when it is written.
Reply Spoil(const Service& service, const Fault& fault, const WireFault& wire, Reply reply) {
  int status = 0;
  if (absl::SimpleAtoi(wire.name, &status)) {
    Reply error = ErrorOf(service, status);
    if (fault.arguments.contains("retry_after")) {
      error.headers.emplace_back("Retry-After", fault.arguments["retry_after"].dump());
    }
    error.instance = reply.instance;
    error.account = reply.account;
    return error;
  }
  if (wire.name == "empty") reply.body.clear();
  if (wire.name == "html") {
    reply.type = "text/html";
    reply.body = "<!DOCTYPE html><html><body>Checking your browser</body></html>";
  }
  if (wire.name == "wrong_types") {
    reply.body = WrongTypes(Json::parse(reply.body, nullptr, false)).dump();
  }
  if (wire.name == "wrong_shape") reply.body = "[{\"items\": {}}]";
  if (wire.name == "error_200") {
    reply.status = 200;
    reply.body = service.ErrorInSuccess(kErrorMessage);
  }
  return reply;
}

class HttpServer : public Server {
 public:
  explicit HttpServer(World& world) : world_(world) {}
  ~HttpServer() override;
  absl::Status Listen(int port);
  int port() const override { return port_; }

 private:
  void Serve(const httplib::Request& request, httplib::Response& response);
  void ServeService(Service& service, const Call& call, int fd, httplib::Response& response);
  void WaitForHold(const Call& call, httplib::Response& response);
  // Holds the request when a hold matches it. Returns false when the request must be dropped.
  bool PassHolds(const Call& call, const std::string& phase, int fd);
  void Hang(int fd);
  void Write(const Reply& reply, bool torn, int fd, httplib::Response& response);

  World& world_;
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

HttpServer::~HttpServer() {
  {
    MutexLock lock(world_.mutex);
    world_.ending = true;
    world_.changed.NotifyAll();
  }
  server_.stop();
  EndConnections(port_);
  if (thread_.joinable()) thread_.join();
}

absl::Status HttpServer::Listen(int port) {
  server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server_.set_keep_alive_max_count(1'000'000);
  server_.set_keep_alive_timeout(30);
  server_.set_tcp_nodelay(true);
  server_.set_socket_options([](int fd) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  });
  // A request without a length or chunks has no body; without this the library would wait for the
  // connection's end.
  server_.set_pre_routing_handler([](const httplib::Request& request, httplib::Response&) {
    if (request.method != "GET" && !request.has_header("Content-Length") &&
        !request.has_header("Transfer-Encoding")) {
      const_cast<httplib::Request&>(request).set_header("Content-Length", "0");
    }
    return httplib::Server::HandlerResponse::Unhandled;
  });
  server_.set_exception_handler(
      [](const httplib::Request& request, httplib::Response& response, std::exception_ptr thrown) {
        std::string what = "unknown";
        try {
          std::rethrow_exception(thrown);
        } catch (const std::exception& exception) {
          what = exception.what();
        }
        fprintf(stderr, "%s %s: %s\n", request.method.c_str(), request.path.c_str(), what.c_str());
        response.status = 599;
        response.set_content(what, "text/plain");
      });
  const auto serve = [this](const httplib::Request& request, httplib::Response& response) {
    Serve(request, response);
  };
  server_.Get(".*", serve)
      .Post(".*", serve)
      .Put(".*", serve)
      .Patch(".*", serve)
      .Delete(".*", serve);
  if (port == 0) {
    port_ = server_.bind_to_any_port("127.0.0.1");
  } else if (server_.bind_to_port("127.0.0.1", port)) {
    port_ = port;
  }
  if (port_ <= 0) return absl::UnavailableError("listen, on 127.0.0.1: port taken");
  thread_ = std::thread([this] { server_.listen_after_bind(); });
  return absl::OkStatus();
}

void HttpServer::Serve(const httplib::Request& request, httplib::Response& response) {
  const Call call = MakeCall(request);
  const int fd = FindConnection(request.remote_port, port_);
  if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
  // The services themselves never change.
  if (Service* service = world_.FindService(call.service)) {
    ServeService(*service, call, fd, response);
    return;
  }
  if (call.Is("GET", "/_sim/hold/{}")) {
    WaitForHold(call, response);
    return;
  }
  Reply reply;
  {
    MutexLock lock(world_.mutex);
    world_.Tick();
    reply = HandleControl(world_, call);
  }
  Write(reply, false, fd, response);
}

bool HttpServer::PassHolds(const Call& call, const std::string& phase, int fd) {
  MutexLock lock(world_.mutex);
  const size_t count = world_.holds.size();
  for (size_t i = 0; i < count; ++i) {
    auto hold = [&]() -> Hold& { return world_.holds[i]; };
    if (hold().phase != phase || hold().released || hold().reached ||
        (hold().service != "*" && hold().service != call.service) ||
        (hold().route != "*" && hold().route != call.route)) {
      continue;
    }
    if (++hold().seen != hold().nth) continue;
    hold().reached = true;
    world_.changed.NotifyAll();
    while (!hold().released && !world_.ending) world_.changed.Wait(world_.mutex);
    if (hold().drop) {
      ResetConnection(fd);
      return false;
    }
  }
  return true;
}

void HttpServer::WaitForHold(const Call& call, httplib::Response& response) {
  int id = 0;
  double timeout_s = 30;
  (void)absl::SimpleAtoi(call.parts[2], &id);
  (void)absl::SimpleAtod(call.Query("timeout_s", "30"), &timeout_s);
  Reply reply;
  {
    MutexLock lock(world_.mutex);
    const int64_t end = SimClock::RealMs() + static_cast<int64_t>(timeout_s * 1000);
    auto reached = [&] {
      return id < 1 || id > static_cast<int>(world_.holds.size()) ||
             world_.holds[static_cast<size_t>(id - 1)].reached;
    };
    while (!reached() && !world_.ending && SimClock::RealMs() < end) {
      world_.changed.WaitFor(world_.mutex, absl::Milliseconds(50));
    }
    reply = reached() ? JsonReply(200, {{"reached", true}})
                      : JsonReply(408, {{"error", "no request has come that far"}});
  }
  Write(reply, false, -1, response);
}

// Waits until the client gives up or the faults are cleared, then resets the connection.
void HttpServer::Hang(int fd) {
  {
    MutexLock lock(world_.mutex);
    while (!world_.ending && !ClientIsGone(fd) && !world_.faults.ToJson().empty()) {
      world_.changed.WaitFor(world_.mutex, absl::Milliseconds(20));
    }
  }
  ResetConnection(fd);
}

void HttpServer::ServeService(Service& service, const Call& received, int fd,
                              httplib::Response& response) {
  Call call = received;
  call.route = service.Route(call);
  size_t entry = 0;
  {
    MutexLock lock(world_.mutex);
    entry = world_.requests.size();
    LoggedRequest logged;
    logged.number = static_cast<int64_t>(entry) + 1;
    logged.service = call.service;
    logged.route = call.route;
    logged.method = call.method;
    logged.path = call.path;
    logged.at = Rfc3339(world_.Now());
    world_.requests.push_back(logged);
    world_.changed.NotifyAll();
  }
  if (!PassHolds(call, "before", fd)) return;
  Reply reply;
  std::optional<Fault> fault;
  WireFault wire;
  {
    MutexLock lock(world_.mutex);
    world_.Tick();
    fault = world_.faults.TakeWire(call.service, call.route);
    if (fault.has_value()) {
      wire = *AsWireFault(*fault);
      world_.requests[entry].fault = fault->name;
    }
    if (!fault.has_value() || wire.executed) {
      reply = service.Handle(world_, call);
      world_.Tick();
    }
    if (fault.has_value()) reply = Spoil(service, *fault, wire, std::move(reply));
    LoggedRequest& logged = world_.requests[entry];
    logged.account = reply.account;
    logged.instance = reply.instance;
    if (wire.name != "hang" && wire.name != "reset") logged.status = reply.status;
    world_.changed.NotifyAll();
  }
  if (!PassHolds(call, "after", fd)) return;
  if (wire.name == "hang") {
    Hang(fd);
  } else if (wire.name == "reset") {
    ResetConnection(fd);
  } else {
    Write(reply, wire.name == "torn", fd, response);
  }
}

void HttpServer::Write(const Reply& reply, bool torn, int fd, httplib::Response& response) {
  response.status = reply.status;
  response.set_header(
      "Date", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::FromUnixMillis(world_.Now()),
                               absl::UTCTimeZone()));
  for (const auto& [name, value] : reply.headers) response.set_header(name.c_str(), value);
  if (torn && reply.body.size() > 1) {
    const std::string half = reply.body.substr(0, reply.body.size() / 2);
    response.set_content_provider(reply.body.size(), reply.type.c_str(),
                                  [half](size_t, size_t, httplib::DataSink& sink) {
                                    sink.write(half.data(), half.size());
                                    return false;
                                  });
    return;
  }
  if (!reply.stream) {
    if (reply.status != 204) response.set_content(reply.body, reply.type.c_str());
    return;
  }
  response.set_chunked_content_provider(
      reply.type.c_str(), [this, fd, body = reply.body](size_t offset, httplib::DataSink& sink) {
        if (offset == 0 && !body.empty()) return sink.write(body.data(), body.size());
        MutexLock lock(world_.mutex);
        while (!world_.ending && !ClientIsGone(fd)) {
          world_.changed.WaitFor(world_.mutex, absl::Milliseconds(50));
        }
        return false;
      });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(World& world, int port) {
  auto server = std::make_unique<HttpServer>(world);
  const absl::Status listening = server->Listen(port);
  if (!listening.ok()) return listening;
  return server;
}

}  // namespace gpuctl::cloudsim
