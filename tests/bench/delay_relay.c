/* delay_relay: a TCP relay on loopback that hands every byte on DELAY_US after it came, in both directions: a link
 * with a round trip of 2 x DELAY_US, for kernels without netem. Its rate is not limited; what is under way is
 * (RING bytes a direction), as on a real link. A side that ends its stream ends the whole link.
 *
 *   cc -O2 -o delay_relay delay_relay.c
 *   delay_relay TARGET_PORT DELAY_US
 *
 * Listens on a free port of 127.0.0.1, prints it as "port=N", connects to 127.0.0.1:TARGET_PORT for each client
 * (a target that refuses closes the client), runs until it is killed. One thread, epoll, nothing blocks.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RING (16u << 20)            /* bytes under way in one direction: 2 ms at 8 GB/s */
#define SPANS 4096u                 /* reads under way; both are powers of two */
#define READ_MAX (1u << 20)
#define LINKS 64

static int64_t now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
static void die(const char *what) { perror(what); exit(1); }

typedef struct { uint64_t end; int64_t due; } span;      /* bytes up to `end` may leave at `due` */
typedef struct { int from, to; char *ring; uint64_t in, out; span spans[SPANS]; uint64_t first, last; } way;
typedef struct { int open; way ways[2]; } link_t;

static link_t links[LINKS];
static int64_t delay_ns;

static void close_link(link_t *l) {
    close(l->ways[0].from); close(l->ways[0].to);
    for (int i = 0; i < 2; i++) { free(l->ways[i].ring); l->ways[i].ring = NULL; }
    l->open = 0;
}
static int ring_vectors(way *w, uint64_t begin, uint64_t size, struct iovec v[2]) {
    uint64_t at = begin & (RING - 1), head = size < RING - at ? size : RING - at;
    v[0] = (struct iovec){w->ring + at, head}; v[1] = (struct iovec){w->ring, size - head};
    return size > head ? 2 : 1;
}
static int take(way *w) {             /* read what is there; -1 when the stream has ended */
    while (w->last - w->first < SPANS && w->in - w->out < RING) {
        struct iovec v[2]; uint64_t room = RING - (w->in - w->out); if (room > READ_MAX) room = READ_MAX;
        ssize_t n = readv(w->from, v, ring_vectors(w, w->in, room, v));
        if (n == 0) return -1;
        if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
        w->in += n; w->spans[w->last++ & (SPANS - 1)] = (span){w->in, now_ns() + delay_ns};
        if ((uint64_t)n < room) return 0;
    }
    return 0;
}
static int give(way *w, int64_t now) { /* write what is due; -1 when the peer is gone */
    uint64_t due = w->out;
    for (uint64_t k = w->first; k != w->last && w->spans[k & (SPANS - 1)].due <= now; k++)
        due = w->spans[k & (SPANS - 1)].end;
    while (w->out < due) {
        struct iovec v[2]; ssize_t n = writev(w->to, v, ring_vectors(w, w->out, due - w->out, v));
        if (n < 0) { if (errno == EAGAIN || errno == EINTR) break; return -1; }
        w->out += n;
    }
    while (w->first != w->last && w->spans[w->first & (SPANS - 1)].end <= w->out) w->first++;
    return 0;
}
static int new_socket(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (s < 0) die("socket");
    return s;
}
static void accept_one(int ep, int listening, struct sockaddr_in *target) {
    int client = accept(listening, NULL, NULL), server = new_socket(), slot = 0, one = 1, ends[2] = {client, server};
    while (slot < LINKS && links[slot].open) slot++;
    if (client < 0 || slot == LINKS || connect(server, (void *)target, sizeof *target)) {
        if (client >= 0) close(client);
        close(server);
        return;
    }
    link_t *l = &links[slot];
    memset(l, 0, sizeof *l);
    l->open = 1;
    for (int i = 0; i < 2; i++) {
        setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
        l->ways[i].from = ends[i];
        l->ways[i].to = ends[1 - i];
        if (!(l->ways[i].ring = malloc(RING))) die("malloc");
        struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.fd = ends[i]};
        if (epoll_ctl(ep, EPOLL_CTL_ADD, ends[i], &e)) die("epoll_ctl");
    }
}
static int64_t turn(int64_t now) {    /* everything that can move, moves; gives when the next byte is due */
    int64_t next = INT64_MAX;
    for (link_t *l = links; l < links + LINKS; l++) {
        int gone = 0;
        for (int i = 0; i < 2 && l->open && !gone; i++) {
            way *w = &l->ways[i];
            gone = give(w, now) || take(w);
            int64_t due = w->first != w->last ? w->spans[w->first & (SPANS - 1)].due : INT64_MAX;
            if (due > now && due < next) next = due;   /* what is due and still here waits for EPOLLOUT */
        }
        if (gone) close_link(l);
    }
    return next;
}

int main(int argc, char **v) {
    if (argc != 3) { fprintf(stderr, "usage: delay_relay TARGET_PORT DELAY_US\n"); return 2; }
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, target = here;
    socklen_t size = sizeof here;
    target.sin_port = htons(atoi(v[1]));
    delay_ns = atoll(v[2]) * 1000;
    signal(SIGPIPE, SIG_IGN);
    int listening = new_socket(), ep = epoll_create1(0);
    if (bind(listening, (void *)&here, size) || listen(listening, 64) || getsockname(listening, (void *)&here, &size)) die("listen");
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listening}, events[64];
    epoll_ctl(ep, EPOLL_CTL_ADD, listening, &e);
    printf("port=%d\n", ntohs(here.sin_port));
    fflush(stdout);
    for (;;) {
        int64_t next = turn(now_ns()), wait = next == INT64_MAX ? 3600000000000LL : next - now_ns();
        if (wait < 0) wait = 0;
        struct timespec limit = {wait / 1000000000, wait % 1000000000};
        int n = epoll_pwait2(ep, events, 64, &limit, NULL);
        for (int k = 0; k < n; k++) if (events[k].data.fd == listening) accept_one(ep, listening, &target);
    }
}
