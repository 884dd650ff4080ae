/* coll/gloo_link - one Gloo pair, made abortable; and the state that the links of a rank share.
 *
 * Life:    (listening) -> dial or be dialed -> ready -> open -> put, get -> retire.
 * Threads: put and get one at a time; shut and gone from any; the overrides on Gloo's event thread.
 * Locks, in this order: Pair::m_, Link::guard_, gloo_leaf::lock.  The event thread never blocks on
 * m_, whose holder may be waiting for its tick. */
#ifndef COLL_GLOO_LINK_HH
#define COLL_GLOO_LINK_HH

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/buffer.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* coll.h: in C a function may share a struct's name */
extern "C" {
#include "coll/endpoint.h"
}
#pragma GCC diagnostic pop

namespace gloo_link
{

namespace tcp = gloo::transport::tcp;
using ms = std::chrono::milliseconds;

constexpr int kSndbuf = 1 << 20; /* asked for; the kernel may give less (net.core.wmem_max) */

enum class Phase { kOpening, kReady, kClosed };

class Link;

/* The links of one rank share this.  Connecting waits for `phases`, which `lock` guards. */
struct Shared {
    const int rank, size;
    std::atomic<int64_t> timeout_ms;
    std::atomic<bool> interrupted{false};
    std::vector<Link *> links; /* [size]; this rank's is null */
    std::mutex lock;
    std::condition_variable changed;
    std::vector<Phase> phases; /* [size]; this rank's stays kOpening */

    Shared(int rank_, int size_, int64_t timeout)
        : rank(rank_), size(size_), timeout_ms(timeout), links(size_), phases(size_)
    {
    }

    void note(int peer, Phase p) noexcept;
    std::vector<Phase> phases_now();
};

class Link : public tcp::Pair
{
  public:
    Link(Shared *shared, tcp::Context *context, tcp::Device *device, int peer);

    uint16_t port() const;                     /* where the peer connects to, or 0 */
    const char *name() const { return name_; } /* the address that it dials, or "" */

    /* Replace the pair's own socket by one that listens at `at`.  Returns an errno. */
    int listen_at(const sockaddr_storage &at);

    /* Make the event thread leave the listening state and connect. */
    void dial(const sockaddr_storage &to);

    /* The peer's messages land in land[0..n_bytes), ours at its peer_offset. */
    void open(void *land, size_t n_bytes, size_t peer_offset);
    void put(const void *data, size_t n_bytes);
    void get();

    void shut();                          /* make what blocks on the socket fail */
    bool gone();                          /* true: the peer has closed its side, or we have */
    void set_timeout(int64_t timeout_ms); /* of put and get */
    std::string why_closed();
    void retire(); /* close without a reset: what was sent still arrives */

    void handleEvents(int events) override;
    void waitUntilConnected(std::unique_lock<std::mutex> &, bool) override {}
    void changeState(state next) noexcept override;

  private:
    bool take_order();
    void drop_stranger();
    void dial_now();
    void settle();
    void fail_quietly();
    void remember();
    void forget() noexcept;

    Shared *const shared_;
    const bool listens_;  /* else it dials */
    bool dialed_ = false; /* the event thread's */
    size_t peer_offset_ = 0;
    std::unique_ptr<gloo::transport::Buffer> in_, out_;
    std::mutex guard_; /* guards what follows */
    int sock_ = -1;    /* fd_ while no one is about to close it, or -1 */
    bool wanted_ = false;
    sockaddr_storage target_ = {};
    char name_[ENDPOINT_TEXT] = "";
};

/* Makes Links where Gloo would make Pairs. */
class Context : public tcp::Context
{
  public:
    Context(Shared *shared, std::shared_ptr<tcp::Device> device);
    std::unique_ptr<gloo::transport::Pair> &createPair(int peer) override;
    void drop_device() { device_.reset(); }

  private:
    Shared *const shared_;
};

} // namespace gloo_link

#endif
