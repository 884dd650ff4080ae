/* How Gloo (of 2022-05) is held here.
 *
 * Happy path.  gloo_leaf_new makes a device (Gloo's event thread) and one Link, a subclass of
 * Gloo's Pair, for each other rank.  A pair listens on a port of its own from its constructor on.
 * The higher rank of two dials: its Link leaves the listening state and connects.  Once a Link is
 * connected it leaves the event thread for good ("sync mode"), and reads and writes happen in the
 * caller's thread.
 *
 * A Pair does these things otherwise, which is why Link overrides them:
 * - Pair::connect decides who dials by comparing addresses, which fails when an address in a blob
 *   was replaced.  It compares with self_, so dial_now sets that to what gives the wanted answer.
 * - Pair::connect waits until connected, one pair after another, without deadline or abort.
 *   waitUntilConnected is virtual: ours does not wait, and gloo_leaf_connect waits for all.
 * - Leaving the event loop waits for its next tick, up to 10 ms a pair, unless done on the event
 *   thread.  So dialing and the change to sync mode are done there, in handleEvents.
 * - An exception on the event thread (bytes of a stranger) would end the process: caught there.
 * - Nothing can be aborted from another thread: sync mode holds the pair's lock while it blocks.
 *   shutdown(2) on the socket frees it, so each Link keeps the number of its open socket (sock_).
 * - The device insists on an address of an interface, so 0.0.0.0 is impossible: the device and its
 *   pairs are on 127.0.0.1, and a Link that listens puts a socket of ours in its place. */
#include "coll/gloo_link.hh"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

namespace gloo_link
{

void Shared::note(int peer, Phase p) noexcept
{
    std::lock_guard<std::mutex> g(lock);
    phases[peer] = p;
    changed.notify_all();
}

std::vector<Phase> Shared::phases_now()
{
    std::lock_guard<std::mutex> g(lock);
    return phases;
}

Link::Link(Shared *shared, tcp::Context *context, tcp::Device *device, int peer)
    : tcp::Pair(context, device, peer, ms(shared->timeout_ms)), shared_(shared),
      listens_(peer > shared->rank)
{
    remember();
    /* The base class registered this object while it was only a Pair: register the whole Link. */
    device_->registerDescriptor(fd_, EPOLLIN, this);
}

uint16_t Link::port() const
{
    const sockaddr_storage &a = self_.getSockaddr();
    if (!listens_)
        return 0;
    return ntohs(a.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6 &>(a).sin6_port
                                         : reinterpret_cast<const sockaddr_in &>(a).sin_port);
}

/* sock_ is the number of the socket fd_.  It is remembered while an abort may shut the socket down.
 * It is forgotten before the socket is closed, because the number can then become another
 * file's. */

void Link::remember()
{
    std::lock_guard<std::mutex> g(guard_);
    sock_ = fd_;
    if (shared_->interrupted)
        ::shutdown(sock_, SHUT_RDWR);
}

void Link::forget() noexcept
{
    std::lock_guard<std::mutex> g(guard_);
    sock_ = -1;
}

void Link::shut()
{
    std::lock_guard<std::mutex> g(guard_);
    if (sock_ >= 0)
        ::shutdown(sock_, SHUT_RDWR);
}

bool Link::gone()
{
    std::lock_guard<std::mutex> g(guard_);
    pollfd p = {sock_, POLLRDHUP, 0};
    return sock_ < 0 || (poll(&p, 1, 0) > 0 && p.revents);
}

void Link::set_timeout(int64_t timeout_ms)
{
    std::lock_guard<std::mutex> g(guard_);
    timeval tv = {};
    tv.tv_sec = timeout_ms / 1000;
    tv.tv_usec = timeout_ms % 1000 * 1000;
    if (sock_ >= 0) {
        setsockopt(sock_, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
        setsockopt(sock_, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
    }
}

/* Connecting */

int Link::listen_at(const sockaddr_storage &at)
{
    std::lock_guard<std::mutex> l(m_);
    int s = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return errno;
    int rc = ::bind(s, reinterpret_cast<const sockaddr *>(&at), endpoint_addr_len(&at)) < 0 ||
                     ::listen(s, 8) < 0 || dup3(s, fd_, O_CLOEXEC) < 0
                 ? errno
                 : 0;
    ::close(s);
    if (rc == 0) { /* dup3 closed the pair's socket, which took it out of the loop */
        self_ = tcp::Address::fromSockName(fd_);
        device_->registerDescriptor(fd_, EPOLLIN, this);
    }
    return rc;
}

/* The call of shutdown wakes the event thread. */
void Link::dial(const sockaddr_storage &to)
{
    std::lock_guard<std::mutex> g(guard_);
    target_ = to;
    endpoint_text(&to, name_);
    wanted_ = true;
    if (sock_ >= 0)
        ::shutdown(sock_, SHUT_RDWR);
}

bool Link::take_order()
{
    std::lock_guard<std::mutex> g(guard_);
    return wanted_;
}

/* Close the connection of a stranger, to a link that is to dial. */
void Link::drop_stranger()
{
    std::lock_guard<std::mutex> g(guard_);
    int s = sock_ >= 0 ? accept(sock_, nullptr, nullptr) : -1;
    if (s >= 0)
        ::close(s);
}

void Link::dial_now()
{
    sockaddr_storage to, high = {};
    {
        std::lock_guard<std::mutex> g(guard_);
        to = target_;
    }
    high.ss_family = to.ss_family;
    if (to.ss_family == AF_INET6)
        memset(&reinterpret_cast<sockaddr_in6 &>(high).sin6_addr, 0xff, 16);
    else
        memset(&reinterpret_cast<sockaddr_in &>(high).sin_addr, 0xff, 4);
    self_ = tcp::Address(high);
    tcp::Pair::connect(tcp::Address(to));
}

void Link::handleEvents(int events)
{
    bool dial = !listens_ && !dialed_;
    if (dial && !take_order()) {
        if (!shared_->interrupted) {
            drop_stranger();
            return;
        }
        dial = false; /* the base finds the socket shut, and closes */
    }
    dialed_ = dialed_ || dial;
    forget();
    try {
        if (dial)
            dial_now();
        else
            tcp::Pair::handleEvents(events);
    } catch (...) {
        fail_quietly();
    }
    settle();
}

/* Called after anything has happened to the pair.  A connected pair leaves the event thread
 * here. */
void Link::settle()
{
    std::unique_lock<std::mutex> l(m_, std::try_to_lock);
    if (!l || state_ == CLOSED)
        return; /* the lock's holder is closing the pair */
    bool ready = state_ == CONNECTED && !sync_;
    if (ready) {
        device_->unregisterDescriptor(fd_, this);
        fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) & ~O_NONBLOCK);
        setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &kSndbuf, sizeof kSndbuf);
        sendBufferSize_ = SIZE_MAX; /* or Pair::send sets it to the size of a message */
        sync_ = true;
    }
    fcntl(fd_, F_SETFD, FD_CLOEXEC);
    remember();
    if (ready)
        shared_->note(rank_, Phase::kReady);
}

/* Closing */

void Link::fail_quietly()
{
    std::unique_lock<std::mutex> l(m_, std::try_to_lock);
    if (l && state_ != CLOSED)
        signalException(std::current_exception());
}

void Link::changeState(state next) noexcept
{
    if (next == CLOSED)
        forget();
    tcp::Pair::changeState(next);
    if (next == CLOSED)
        shared_->note(rank_, Phase::kClosed);
}

/* Buffers refer to the pair, so they go first. */
void Link::retire()
{
    in_.reset();
    out_.reset();
    std::lock_guard<std::mutex> l(m_);
    if (state_ != CLOSED)
        changeState(CLOSED);
}

std::string Link::why_closed()
{
    std::lock_guard<std::mutex> l(m_);
    try {
        if (ex_)
            std::rethrow_exception(ex_);
    } catch (const std::exception &e) {
        return e.what();
    }
    return "connection closed";
}

/* Messages */

/* The send buffer is bound to all memory, so that any bytes can be sent without binding them first:
 * an offset in it is an address. */
void Link::open(void *land, size_t n_bytes, size_t peer_offset)
{
    peer_offset_ = peer_offset;
    in_ = createRecvBuffer(0, land, n_bytes);
    out_ = createSendBuffer(0, nullptr, SIZE_MAX);
}

void Link::put(const void *data, size_t n_bytes)
{
    out_->send(reinterpret_cast<size_t>(data), n_bytes, peer_offset_);
    out_->waitSend();
}

void Link::get() { in_->waitRecv(); }

Context::Context(Shared *shared, std::shared_ptr<tcp::Device> device)
    : tcp::Context(std::move(device), shared->rank, shared->size), shared_(shared)
{
    setTimeout(ms(shared->timeout_ms));
}

std::unique_ptr<gloo::transport::Pair> &Context::createPair(int peer)
{
    auto link = std::make_unique<Link>(shared_, this, device_.get(), peer);
    shared_->links[peer] = link.get();
    pairs_[peer] = std::move(link);
    return pairs_[peer];
}

} // namespace gloo_link
