/* coll/gloo_leaf - the C interface to gloo_link: makes the links, waits for all of them, and says
 * which rank failed. */
#include "coll/gloo_leaf.h"

#include <malloc.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "coll/gloo_link.hh"

namespace tcp = gloo::transport::tcp;
using gloo_link::Context;
using gloo_link::kSndbuf;
using gloo_link::Link;
using gloo_link::ms;
using gloo_link::Phase;
using clock_type = std::chrono::steady_clock;

struct gloo_leaf : gloo_link::Shared {
    using Shared::Shared;
    uint32_t window = 0;
    std::shared_ptr<tcp::Device> device;
    std::shared_ptr<Context> context;
};

namespace
{

/* Blocks all signals while it lives, so that threads made meanwhile never take one. */
class NoSignals
{
  public:
    NoSignals()
    {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_;
};

/* How many bytes a socket of ours holds unread: half of what the kernel says it grants, because the
 * kernel adds as much again for its own overhead. */
uint32_t measure_window()
{
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), granted = 0;
    socklen_t len = sizeof granted;
    if (s >= 0) {
        setsockopt(s, SOL_SOCKET, SO_SNDBUF, &kSndbuf, sizeof kSndbuf);
        getsockopt(s, SOL_SOCKET, SO_SNDBUF, &granted, &len);
        ::close(s);
    }
    return static_cast<uint32_t>(granted / 2);
}

int listen_all(gloo_leaf *l, const sockaddr_storage &at, err *err)
{
    for (int r = l->rank + 1; r < l->size; r++) {
        int rc = l->links[r]->listen_at(at);
        if (rc) {
            char text[ENDPOINT_TEXT];
            endpoint_text(&at, text);
            return err_sys(err, rc, "listening at %s for rank %d", text, r);
        }
    }
    return 0;
}

std::shared_ptr<tcp::Device> new_device()
{
    NoSignals guard;
    tcp::attr attr("127.0.0.1");
    attr.ai_family = AF_INET;
    attr.ai_socktype = SOCK_STREAM;
    attr.ai_protocol = 0;
    auto &in = reinterpret_cast<sockaddr_in &>(attr.ai_addr);
    memset(&attr.ai_addr, 0, sizeof attr.ai_addr);
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    attr.ai_addrlen = sizeof in;
    return std::make_shared<tcp::Device>(attr);
}

void build(gloo_leaf *l)
{
    l->device = new_device();
    l->context = std::make_shared<Context>(l, l->device);
    for (int r = 0; r < l->size; r++)
        if (r != l->rank)
            l->context->createPair(r);
}

} // namespace

int gloo_leaf_new(int rank, int size, const sockaddr_storage *bind, int64_t timeout_ms,
                  gloo_leaf **out, err *err)
{
    gloo_leaf *l = nullptr;
    int rc;
    try {
        l = new gloo_leaf(rank, size, timeout_ms);
        l->window = measure_window();
        build(l);
        rc = listen_all(l, *bind, err);
    } catch (const std::exception &e) {
        rc = err_set(err, ERR_IO, "Gloo: %s", e.what());
    }
    if (rc < 0) {
        gloo_leaf_free(l);
        return rc;
    }
    *out = l;
    return 0;
}

uint16_t gloo_leaf_port(const gloo_leaf *l, int peer)
{
    return l->links[peer] ? l->links[peer]->port() : 0;
}

uint32_t gloo_leaf_window(const gloo_leaf *l) { return l->window; }

namespace
{

/* Say why connecting failed: a link has failed, or time is up. */
int explain(gloo_leaf *l, int64_t deadline_ms, err *err)
{
    if (l->interrupted)
        return err_set(err, ERR_CANCELED, "canceled while connecting");
    const std::vector<Phase> phases = l->phases_now();
    for (int r = 0; r < l->size; r++) {
        if (phases[r] != Phase::kClosed)
            continue;
        Link *link = l->links[r];
        return err_set(err, ERR_PEER, "connecting with rank %d%s%s: %s", r,
                       *link->name() ? " at " : "", link->name(), link->why_closed().c_str());
    }
    std::string missing;
    for (int r = 0; r < l->size; r++)
        if (r != l->rank && phases[r] != Phase::kReady)
            missing += (missing.empty() ? "" : ", ") + std::to_string(r) +
                       (r < l->rank ? std::string(" (") + l->links[r]->name() + ")"
                                    : std::string(" (did not connect to us)"));
    return err_set(err, ERR_TIMEOUT, "after %lld ms not connected with rank %s",
                   static_cast<long long>(deadline_ms), missing.c_str());
}

} // namespace

int gloo_leaf_connect(gloo_leaf *l, const sockaddr_storage *addrs, int64_t deadline_ms, err *err)
{
    auto deadline = clock_type::now() + ms(deadline_ms);
    for (int r = 0; r < l->rank; r++)
        l->links[r]->dial(addrs[r]);
    std::unique_lock<std::mutex> g(l->lock);
    auto settled = [&] {
        int ready = 1, closed = 0;
        for (Phase p : l->phases) {
            ready += p == Phase::kReady;
            closed += p == Phase::kClosed;
        }
        return l->interrupted || closed || ready == l->size;
    };
    bool in_time = l->changed.wait_until(g, deadline, settled);
    bool closed = false;
    for (Phase p : l->phases)
        closed = closed || p == Phase::kClosed;
    g.unlock();
    return in_time && !l->interrupted && !closed ? 0 : explain(l, deadline_ms, err);
}

int gloo_leaf_open(gloo_leaf *l, void *land, size_t piece, err *err)
{
    try {
        for (int r = 0; r < l->size; r++)
            if (r != l->rank)
                l->links[r]->open(land, 2 * piece, l->rank == 0 ? 0 : piece);
    } catch (const std::exception &e) {
        return err_set(err, ERR_DEVICE, "Gloo: %s", e.what());
    }
    return 0;
}

void gloo_leaf_set_timeout(gloo_leaf *l, int64_t timeout_ms)
{
    l->timeout_ms = timeout_ms;
    for (Link *link : l->links)
        if (link)
            link->set_timeout(timeout_ms);
}

namespace
{

int peer_failed(gloo_leaf *l, int peer, const char *what, clock_type::time_point since, err *err)
{
    if (l->interrupted)
        return err_set(err, ERR_CANCELED, "canceled");
    int64_t limit = l->timeout_ms;
    auto waited = std::chrono::duration_cast<ms>(clock_type::now() - since).count();
    if (limit && waited >= limit)
        return err_set(err, ERR_TIMEOUT, "no progress with rank %d for %lld ms", peer,
                       static_cast<long long>(waited));
    std::string also;
    for (int r = 0; r < l->size; r++)
        if (l->links[r] && r != peer && l->links[r]->gone())
            also += (also.empty() ? "; also gone: rank " : ", ") + std::to_string(r);
    return err_set(err, ERR_PEER, "lost rank %d%s (%s)", peer, also.c_str(), what);
}

/* Run one transfer.  No exception leaves this function. */
template <typename F> int transfer(gloo_leaf *l, int peer, F f, err *err)
{
    auto since = clock_type::now();
    try {
        f(l->links[peer]);
        return 0;
    } catch (const std::exception &e) {
        return peer_failed(l, peer, e.what(), since, err);
    } catch (...) {
        return peer_failed(l, peer, "unknown exception", since, err);
    }
}

} // namespace

int gloo_leaf_send(gloo_leaf *l, int to, const void *data, size_t n_bytes, err *err)
{
    return transfer(
        l, to, [=](Link *k) { k->put(data, n_bytes); }, err);
}

int gloo_leaf_recv(gloo_leaf *l, int from, err *err)
{
    return transfer(
        l, from, [](Link *k) { k->get(); }, err);
}

void gloo_leaf_interrupt(gloo_leaf *l)
{
    {
        std::lock_guard<std::mutex> g(l->lock);
        l->interrupted = true;
        l->changed.notify_all();
    }
    for (Link *link : l->links)
        if (link)
            link->shut();
}

namespace
{

/* Shut the sockets of the pairs that are still in the event loop, so that they leave the loop on
 * the event thread.  To leave from this thread would wait for a tick of the loop, for each pair. */
void quiesce(gloo_leaf *l)
{
    std::unique_lock<std::mutex> g(l->lock);
    auto settled = [&] {
        for (int r = 0; r < l->size; r++)
            if (l->links[r] && l->phases[r] == Phase::kOpening)
                return false;
        return true;
    };
    if (settled())
        return;
    g.unlock();
    gloo_leaf_interrupt(l);
    g.lock();
    l->changed.wait_for(g, ms(100), settled);
}

} // namespace

/* The event thread may be at the end of a handler of a link that is closed already, so the device,
 * and with it that thread, goes before the links. */
void gloo_leaf_free(gloo_leaf *l)
{
    if (!l)
        return;
    quiesce(l);
    for (Link *link : l->links)
        if (link)
            link->retire();
    if (l->context)
        l->context->drop_device();
    l->device.reset();
    l->context.reset();
    delete l;
}

namespace
{

bool same_size(const char *what, void *of_library, size_t ours, err *err)
{
    size_t theirs = malloc_usable_size(of_library); /* rounded up by the allocator */
    if (ours <= theirs && theirs < ours + 32)
        return true;
    err_set(err, ERR_DEVICE, "Gloo's %s is %zu bytes in the library, %zu in the headers", what,
            theirs, ours);
    return false;
}

} // namespace

int gloo_leaf_check_abi(err *err)
{
    try {
        auto device = new_device();
        auto context = device->createContext(0, 2);
        auto &pair = context->createPair(1);
        return same_size("Context", context.get(), sizeof(tcp::Context), err) &&
                       same_size("Pair", pair.get(), sizeof(tcp::Pair), err)
                   ? 0
                   : err->code;
    } catch (const std::exception &e) {
        return err_set(err, ERR_DEVICE, "Gloo: %s", e.what());
    }
}
