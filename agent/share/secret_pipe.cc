#include "agent/share/secret_pipe.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/https/openssl.h"
#include "common/base/byte_buffer.h"
#include "common/base/status_macros.h"
#include "common/process/pipe.h"

namespace gpuctl {
namespace {

constexpr char kCipher[] = "ECDHE-PSK-CHACHA20-POLY1305";
constexpr char kIdentity[] = "gpuctl";
constexpr size_t kMostBuffered = 512 << 10;
constexpr size_t kPiece = 64 << 10;
constexpr size_t kLeastKey = 16;
constexpr absl::Duration kSilence = absl::Minutes(5);
constexpr absl::Duration kCloseWithin = absl::Seconds(5);

// The key of a connection, which OpenSSL's callbacks find at its Ssl.
unsigned CopyKey(SSL* ssl, unsigned char* psk, unsigned most) {
  const auto* const key = static_cast<const std::string*>(SSL_get_app_data(ssl));
  if (key == nullptr || key->size() > most) return 0;
  std::copy(key->begin(), key->end(), psk);
  return static_cast<unsigned>(key->size());
}
unsigned KeyForServer(SSL* ssl, const char* identity, unsigned char* psk, unsigned most) {
  return strcmp(identity, kIdentity) == 0 ? CopyKey(ssl, psk, most) : 0;
}
unsigned KeyForClient(SSL* ssl, const char*, char* identity, unsigned most_identity,
                      unsigned char* psk, unsigned most) {
  if (sizeof(kIdentity) > most_identity) return 0;
  std::copy(std::begin(kIdentity), std::end(kIdentity), identity);
  return CopyKey(ssl, psk, most);
}

absl::StatusOr<SslContext> MakeContext(SecretPipe::Side side) {
  // This must be the library's first call: the machine's configuration file may name modules, which
  // a static program cannot load.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  const bool gives = side == SecretPipe::Side::kGives;
  SslContext context(SSL_CTX_new(gives ? TLS_server_method() : TLS_client_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_cipher_list(context.get(), kCipher) != 1) {
    return absl::InternalError(absl::StrCat("prepare TLS: ", OpensslReason()));
  }
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (gives) {
    SSL_CTX_set_psk_server_callback(context.get(), KeyForServer);
  } else {
    SSL_CTX_set_psk_client_callback(context.get(), KeyForClient);
  }
  return context;
}

void SetNonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// Carries the bytes between the connection and its plain end, until both directions have ended.
class Carrier {
 public:
  Carrier(UniqueFd socket, Ssl ssl, SslContext context, UniqueFd plain,
          std::shared_ptr<std::atomic<bool>> closing, Clock& clock)
      : closing_(std::move(closing)),
        socket_(std::move(socket)),
        context_(std::move(context)),
        ssl_(std::move(ssl)),
        plain_(std::move(plain)),
        clock_(clock) {}

  void Run() {
    heard_ = clock_.SinceBoot();
    // After a break, what has come is still handed on.
    while (broken_ ? in_.size() > 0 && !*closing_
                   : !told_end_ || !(*closing_ || (heard_end_ && in_.size() == 0))) {
      // Nobody reads it any more.
      if (*closing_) in_.Clear();
      moved_ = false;
      wants_ = POLLIN;
      TakeFromPlain();
      SendToPeer();
      TakeFromPeer();
      SendToPlain();
      if (moved_) {
        heard_ = clock_.SinceBoot();
      } else if (!Wait()) {
        break;
      }
    }
    shutdown(plain_.get(), SHUT_RDWR);
  }

 private:
  void TakeFromPlain() {
    while (!broken_ && !plain_ended_ && out_.size() < kMostBuffered) {
      const ssize_t got = read(plain_.get(), out_.Prepare(kPiece), kPiece);
      if (got > 0) {
        out_.Commit(static_cast<size_t>(got));
        moved_ = true;
      } else if (got < 0 && errno == EINTR) {
        continue;
      } else {
        plain_ended_ = got == 0 || errno != EAGAIN;
        return;
      }
    }
  }

  void SendToPeer() {
    while (!broken_ && out_.size() > 0) {
      ERR_clear_error();
      const absl::string_view bytes = out_.view().substr(0, kPiece);
      const int sent = SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
      if (sent <= 0) return Judge(sent);
      out_.RemovePrefix(static_cast<size_t>(sent));
      moved_ = true;
    }
    if (plain_ended_ && out_.size() == 0 && !told_end_ && !broken_) {
      ERR_clear_error();
      const int told = SSL_shutdown(ssl_.get());
      if (told < 0 && SSL_get_error(ssl_.get(), told) == SSL_ERROR_WANT_WRITE) {
        wants_ |= POLLOUT;
        return;
      }
      // Else it is told, or there is nobody to tell.
      told_end_ = moved_ = true;
    }
  }

  void TakeFromPeer() {
    while (!broken_ && !heard_end_ && in_.size() < kMostBuffered) {
      ERR_clear_error();
      const int got = SSL_read(ssl_.get(), in_.Prepare(kPiece), static_cast<int>(kPiece));
      if (got <= 0) return Judge(got);
      in_.Commit(static_cast<size_t>(got));
      moved_ = true;
    }
  }

  void SendToPlain() {
    while (in_.size() > 0) {
      const ssize_t sent =
          send(plain_.get(), in_.view().data(), in_.view().size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        in_.RemovePrefix(static_cast<size_t>(sent));
        moved_ = true;
      } else if (sent < 0 && errno == EINTR) {
        continue;
      } else {
        if (errno == EAGAIN) return;
        *closing_ = true;
        in_.Clear();
      }
    }
    if (heard_end_ && !plain_told_) {
      shutdown(plain_.get(), SHUT_WR);
      plain_told_ = true;
    }
  }

  // Takes OpenSSL's word on a call that did nothing.
  void Judge(int result) {
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return;
      case SSL_ERROR_WANT_WRITE:
        wants_ |= POLLOUT;
        return;
      case SSL_ERROR_ZERO_RETURN:
        heard_end_ = moved_ = true;
        return;
      default:
        broken_ = true;
    }
  }

  // Returns false after a long silence.
  bool Wait() {
    short plain = 0;
    if (!plain_ended_ && out_.size() < kMostBuffered) plain |= POLLIN;
    if (in_.size() > 0) plain |= POLLOUT;
    // What has ended would be ready for ever.
    const bool reads = !heard_end_ && in_.size() < kMostBuffered;
    const short peer = static_cast<short>(reads ? wants_ : wants_ & ~POLLIN);
    pollfd polled[] = {{peer != 0 && !broken_ ? socket_.get() : -1, peer, 0},
                       {plain != 0 ? plain_.get() : -1, plain, 0}};
    poll(polled, 2, 1000);
    return clock_.SinceBoot() - heard_ < (*closing_ ? kCloseWithin : kSilence);
  }

  const std::shared_ptr<std::atomic<bool>> closing_;
  const UniqueFd socket_;
  const SslContext context_;
  const Ssl ssl_;
  const UniqueFd plain_;
  Clock& clock_;
  ByteBuffer in_, out_;  // from the other node, and for it
  short wants_ = 0;      // of the socket, by OpenSSL
  bool plain_ended_ = false, plain_told_ = false, told_end_ = false, heard_end_ = false;
  bool broken_ = false;
  bool moved_ = false;
  absl::Duration heard_;
};

absl::Status ShakeHands(SSL* ssl, int fd, SecretPipe::Side side, absl::Duration end, Clock& clock) {
  for (;;) {
    ERR_clear_error();
    const int result = side == SecretPipe::Side::kGives ? SSL_accept(ssl) : SSL_connect(ssl);
    if (result == 1) return absl::OkStatus();
    const int error = SSL_get_error(ssl, result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      return absl::PermissionDeniedError(
          absl::StrCat("the other node does not know the key: ", OpensslReason()));
    }
    const absl::Duration left = end - clock.SinceBoot();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
    const short wanted = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    pollfd polled{fd, wanted, 0};
    poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SecretPipe>> SecretPipe::Open(UniqueFd socket, Side side,
                                                             const std::string& key,
                                                             absl::Duration within, Clock& clock) {
  if (key.size() < kLeastKey) return absl::InvalidArgumentError("the key is too short");
  ASSIGN_OR_RETURN(SslContext context, MakeContext(side));
  Ssl ssl(SSL_new(context.get()));
  SetNonblocking(socket.get());
  // Only the handshake asks for it.
  if (ssl == nullptr || SSL_set_app_data(ssl.get(), const_cast<std::string*>(&key)) != 1 ||
      SSL_set_fd(ssl.get(), socket.get()) != 1) {
    return absl::InternalError(absl::StrCat("prepare TLS: ", OpensslReason()));
  }
  RETURN_IF_ERROR(ShakeHands(ssl.get(), socket.get(), side, clock.SinceBoot() + within, clock));
  SSL_set_app_data(ssl.get(), nullptr);
  ASSIGN_OR_RETURN(FdPair ends, MakeSocketPair("connect two nodes"));
  SetNonblocking(ends.second.get());
  auto closing = std::make_shared<std::atomic<bool>>(false);
  auto carrier = std::make_unique<Carrier>(std::move(socket), std::move(ssl), std::move(context),
                                           std::move(ends.second), closing, clock);
  std::thread thread([carrier = std::move(carrier)] { carrier->Run(); });
  return std::unique_ptr<SecretPipe>(
      new SecretPipe(std::move(ends.first), std::move(closing), std::move(thread)));
}

SecretPipe::~SecretPipe() {
  *closing_ = true;
  shutdown(plain_.get(), SHUT_RDWR);
  thread_.join();
}

}  // namespace gpuctl
