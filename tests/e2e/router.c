/* router - a network between the hosts of a test, which are network namespaces.
 *
 *     router NAMESPACE...      names as `ip netns add` makes them
 *
 * Host k gets the device `eth` with the address 10.79.0.(k + 1)/24.  The device is a TUN: every
 * IPv4 packet that the host sends comes to this process.  The process passes the packet on to the
 * host of its destination, late, never, or out of order, as the commands on standard input say:
 *
 *     delay MS          every packet arrives so much later
 *     loss PERCENT      of the packets, at random, are dropped
 *     reorder PERCENT   of the packets, at random, are held back by 10 ms more, so that later ones
 *                       overtake them
 *     rate MBIT         each host sends so many megabits a second; what would wait for more than
 *                       200 ms is dropped; 0: no limit
 *     cut FROM TO       host FROM's packets to host TO are dropped; the other way stays open
 *     mend FROM TO      ... no longer
 *     counts            the answer has how many packets were passed on, lost, cut and refused
 *
 * Each command is answered by a line: "ok", "counts ..." or "error ...".  The router ends with its
 * standard input.  It exits with status 77 where devices or namespaces cannot be had. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"

enum { MOST_HOSTS = 16, MOST_BYTES = 2048, SKIPPED = 77 };

static const int64_t held_back_ns = 10 * 1000000, longest_queue_ns = 200 * 1000000;

struct packet {
    int64_t due_ns;
    uint64_t number; /* of two packets that are due at the same time the older one goes first */
    int to, n_bytes;
    unsigned char bytes[MOST_BYTES];
};

struct router {
    int n_hosts, tun[MOST_HOSTS];
    int64_t delay_ns;
    double loss, reorder; /* 0 .. 1 */
    double bits_per_ns;   /* 0: no limit */
    int is_cut[MOST_HOSTS][MOST_HOSTS];
    int64_t idle_ns[MOST_HOSTS]; /* when the host will have sent what it has queued */
    uint64_t random;
    struct packet **heap; /* [n_packets], of [cap]: the one that is due first is heap[0] */
    int n_packets, cap;
    uint64_t n_seen;
    long long n_passed, n_lost, n_cut, n_refused;
};

static double draw(struct router *r) /* splitmix64 */
{
    uint64_t z = r->random += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* ---- the hosts' devices ---- */

static void set_address(struct ifreq *q, const char *text)
{
    struct sockaddr_in a = {.sin_family = AF_INET};

    inet_pton(AF_INET, text, &a.sin_addr);
    memcpy(&q->ifr_addr, &a, sizeof a);
}

static int raise_device(int s, const char *name)
{
    struct ifreq q = {.ifr_flags = IFF_UP | IFF_RUNNING};

    snprintf(q.ifr_name, sizeof q.ifr_name, "%s", name);
    return ioctl(s, SIOCSIFFLAGS, &q);
}

static int configure(int host)
{
    const int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq q = {.ifr_name = "eth"};
    char text[32];
    int rc;

    snprintf(text, sizeof text, "10.79.0.%d", host + 1);
    set_address(&q, text);
    rc = s < 0 ? -1 : ioctl(s, SIOCSIFADDR, &q);
    set_address(&q, "255.255.255.0");
    if (rc == 0)
        rc = ioctl(s, SIOCSIFNETMASK, &q);
    if (rc == 0)
        rc = raise_device(s, "eth");
    if (rc == 0)
        rc = raise_device(s, "lo");
    if (s >= 0)
        close(s);
    return rc;
}

/* This process enters the namespace and stays there; the device's descriptor works from anywhere.
 */
static int open_host(int host, const char *name)
{
    struct ifreq q = {.ifr_name = "eth", .ifr_flags = IFF_TUN | IFF_NO_PI};
    char path[256];
    int fd;

    snprintf(path, sizeof path, "/var/run/netns/%s", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
        return -1;
    close(fd);
    fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    return fd < 0 || ioctl(fd, TUNSETIFF, &q) < 0 || configure(host) < 0 ? -1 : fd;
}

/* ---- packets on their way ---- */

static int is_before(const struct packet *a, const struct packet *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

static void swap(struct router *r, int i, int k)
{
    struct packet *p = r->heap[i];

    r->heap[i] = r->heap[k];
    r->heap[k] = p;
}

static void push(struct router *r, struct packet *p)
{
    int i = r->n_packets++;

    if (r->n_packets > r->cap) {
        r->cap = r->cap ? 2 * r->cap : 1024;
        r->heap = xrealloc(r->heap, (size_t)r->cap * sizeof(*r->heap));
    }
    r->heap[i] = p;
    for (; i > 0 && is_before(r->heap[i], r->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(r, i, (i - 1) / 2);
}

static struct packet *pop(struct router *r)
{
    struct packet *first = r->heap[0];

    r->heap[0] = r->heap[--r->n_packets];
    for (int i = 0, k; (k = 2 * i + 1) < r->n_packets; i = k) {
        k += k + 1 < r->n_packets && is_before(r->heap[k + 1], r->heap[k]);
        if (!is_before(r->heap[k], r->heap[i]))
            break;
        swap(r, i, k);
    }
    return first;
}

/* The host that the packet goes to, or -1. */
static int destination(const struct router *r, const unsigned char *ip, int n)
{
    const int is_ours = n >= 20 && ip[0] >> 4 == 4 && ip[16] == 10 && ip[17] == 79 && ip[18] == 0;
    const int host = is_ours ? ip[19] - 1 : -1;

    return host < r->n_hosts ? host : -1;
}

/* The time at which the packet has left its host; -1: its host's queue is full. */
static int64_t leave(struct router *r, int from, int n_bytes, int64_t now_ns)
{
    int64_t *idle = &r->idle_ns[from];

    if (r->bits_per_ns == 0)
        return now_ns;
    *idle = max_i64(*idle, now_ns);
    if (*idle - now_ns > longest_queue_ns)
        return -1;
    return *idle += (int64_t)(8.0 * n_bytes / r->bits_per_ns);
}

static void route(struct router *r, int from, struct packet *p, int64_t now_ns)
{
    const int to = destination(r, p->bytes, p->n_bytes);
    long long *why = NULL;
    int64_t left_ns = 0;

    if (to < 0 || r->is_cut[from][to])
        why = &r->n_cut;
    else if ((left_ns = leave(r, from, p->n_bytes, now_ns)) < 0)
        why = &r->n_refused;
    else if (draw(r) < r->loss)
        why = &r->n_lost;
    if (why) {
        ++*why;
        free(p);
        return;
    }
    p->to = to;
    p->number = r->n_seen++;
    p->due_ns = left_ns + r->delay_ns + (draw(r) < r->reorder ? held_back_ns : 0);
    push(r, p);
}

static void take(struct router *r, int from, int64_t now_ns)
{
    for (;;) {
        struct packet *p = xcalloc(1, sizeof *p);

        p->n_bytes = (int)read(r->tun[from], p->bytes, sizeof p->bytes);
        if (p->n_bytes <= 0) {
            free(p);
            return;
        }
        route(r, from, p, now_ns);
    }
}

static void pass(struct router *r, int64_t now_ns)
{
    while (r->n_packets > 0 && r->heap[0]->due_ns <= now_ns) {
        struct packet *p = pop(r);

        if (write(r->tun[p->to], p->bytes, (size_t)p->n_bytes) == p->n_bytes)
            r->n_passed++;
        else
            r->n_refused++;
        free(p);
    }
}

/* ---- commands ---- */

static int cut(struct router *r, const char *line, int is_cut)
{
    int from, to;

    if (sscanf(line, "%*s %d %d", &from, &to) != 2 || from < 0 || to < 0 || from >= r->n_hosts ||
        to >= r->n_hosts)
        return -1;
    r->is_cut[from][to] = is_cut;
    return 0;
}

static int set(struct router *r, const char *line)
{
    char word[16];
    double value;

    if (sscanf(line, "%15s", word) == 1 && (!strcmp(word, "cut") || !strcmp(word, "mend")))
        return cut(r, line, word[0] == 'c');
    if (sscanf(line, "%15s %lf", word, &value) != 2 || !(value >= 0))
        return -1;
    if (!strcmp(word, "delay"))
        r->delay_ns = (int64_t)(value * 1e6);
    else if (!strcmp(word, "loss"))
        r->loss = value / 100;
    else if (!strcmp(word, "reorder"))
        r->reorder = value / 100;
    else if (!strcmp(word, "rate"))
        r->bits_per_ns = value / 1000;
    else
        return -1;
    return 0;
}

static void obey(struct router *r, const char *line)
{
    if (!strcmp(line, "counts\n"))
        printf("counts passed %lld, lost %lld, cut %lld, refused %lld\n", r->n_passed, r->n_lost,
               r->n_cut, r->n_refused);
    else
        printf("%s", set(r, line) < 0 ? "error: what is that?\n" : "ok\n");
    fflush(stdout);
}

/* ---- the loop ---- */

/* Packets go on until standard input has something to read. */
static void forward(struct router *r)
{
    struct pollfd fd[MOST_HOSTS + 1] = {{.fd = STDIN_FILENO, .events = POLLIN}};

    for (int i = 0; i < r->n_hosts; i++)
        fd[i + 1] = (struct pollfd){.fd = r->tun[i], .events = POLLIN};
    while (!fd[0].revents) {
        const int64_t left_ns = r->n_packets ? r->heap[0]->due_ns - clock_mono_ns() : 1000000000;
        const struct timespec wait = {left_ns / 1000000000, left_ns % 1000000000};

        if (left_ns > 0)
            (void)ppoll(fd, (nfds_t)r->n_hosts + 1, &wait, NULL);
        else
            (void)poll(fd, (nfds_t)r->n_hosts + 1, 0);
        for (int i = 0; i < r->n_hosts; i++)
            if (fd[i + 1].revents & POLLIN)
                take(r, i, clock_mono_ns());
        pass(r, clock_mono_ns());
    }
}

int main(int argc, char **argv)
{
    struct router r = {.n_hosts = argc - 1, .random = 1};
    char line[128];

    if (r.n_hosts < 1 || r.n_hosts > MOST_HOSTS)
        return 2;
    for (int i = 0; i < r.n_hosts; i++) {
        r.tun[i] = open_host(i, argv[i + 1]);
        if (r.tun[i] < 0) {
            printf("no network device in namespace %s: %s\n", argv[i + 1], strerror(errno));
            return SKIPPED;
        }
    }
    setvbuf(stdin, NULL, _IONBF, 0); /* poll must see every command */
    printf("ok\n");
    fflush(stdout);
    do {
        forward(&r);
        if (!fgets(line, sizeof line, stdin))
            break;
        obey(&r, line);
    } while (1);
    while (r.n_packets > 0)
        free(pop(&r));
    free(r.heap);
    return 0;
}
