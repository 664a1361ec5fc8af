/* The limit of the limit: what stripped_broker.py does, in C.  stripped_broker PORT FILE
 *
 * One process, one thread, epoll. Takes frames of request codes 310 (send) and 11 (pull) as the load generator writes them: cuts the JSON
 * header by looking for its keys, makes the record with its CRC, writes the records of a turn to FILE with one pwrite, and answers with
 * the same bytes as stripped_broker.py; a pull is answered from the mapped FILE. It checks nothing, keeps its queues in memory and forgets
 * everything with its end: a measuring device. Built and started by measuring.py; ends when its log is full. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LOG_SIZE (1L << 30)
#define RECEIVE (512 << 10)
#define SEND_BUFFER (1 << 20)
#define QUEUES 256
#define UNITS 2000000
#define MOST_PULLED 64
#define MAGIC (-626843481)
#define RECORD_FIXED 90 /* without body, topic and properties */
#define EVENTS 64
#define MADV_POPULATE_WRITE_ 23

static void die(const char *what) { perror(what); exit(1); }
static void refuse(const char *why) { fprintf(stderr, "stripped_broker: %s\n", why); exit(1); }

/* ---- CRC-32, eight bytes a step ---------------------------------------------------------------------------- */

static uint32_t table[8][256];
static void make_table(void) {
    for (int i = 0; i < 256; i++) { uint32_t c = i; for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0); table[0][i] = c; }
    for (int i = 0; i < 256; i++) for (int k = 1; k < 8; k++) table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
}
static uint32_t crc32_of(const char *p, size_t n) {
    uint32_t c = ~0u; uint64_t x;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&x, p, 8); x = le64toh(x) ^ c;
        c = table[7][x & 255] ^ table[6][x >> 8 & 255] ^ table[5][x >> 16 & 255] ^ table[4][x >> 24 & 255]
            ^ table[3][x >> 32 & 255] ^ table[2][x >> 40 & 255] ^ table[1][x >> 48 & 255] ^ table[0][x >> 56];
    }
    for (; n; n--, p++) c = c >> 8 ^ table[0][(c ^ *p) & 255];
    return ~c;
}

/* ---- the log and its queues -------------------------------------------------------------------------------- */

typedef struct { int64_t at; int32_t size; } unit;
typedef struct { char topic[256]; int topic_len, id; unit *units; long count; } queue;
static queue queues[QUEUES];
static int log_fd;
static char *log_map;
static long log_end;

static queue *queue_of(const char *topic, int topic_len, int id) {   /* made by whoever asks first */
    queue *q = queues;
    for (; q < queues + QUEUES && q->topic_len; q++)
        if (q->id == id && q->topic_len == topic_len && !memcmp(q->topic, topic, topic_len)) return q;
    if (q == queues + QUEUES || topic_len > 255 || topic_len < 1) refuse("too many queues, or a topic's name is too long");
    memcpy(q->topic, topic, topic_len); q->topic_len = topic_len; q->id = id;
    if (!(q->units = malloc(UNITS * sizeof *q->units))) die("malloc");
    return q;
}
static void open_log(const char *path) {
    log_fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (log_fd < 0 || ftruncate(log_fd, LOG_SIZE)) die(path);
    log_map = mmap(0, LOG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, log_fd, 0);
    if (log_map == MAP_FAILED) die("mmap");
    if (madvise(log_map, LOG_SIZE, MADV_POPULATE_WRITE_)) perror("madvise");   /* an old kernel: pages come as they are written */
}

/* ---- frames ------------------------------------------------------------------------------------------------ */

typedef struct { const char *p; int n; } text;
typedef struct { int fd, filled; char *buf; } conn;

static uint32_t u32(const char *p) { uint32_t x; memcpy(&x, p, 4); return ntohl(x); }
static char *put16(char *p, uint16_t x) { x = htons(x); memcpy(p, &x, 2); return p + 2; }
static char *put32(char *p, uint32_t x) { x = htonl(x); memcpy(p, &x, 4); return p + 4; }
static char *put64(char *p, uint64_t x) { x = htobe64(x); memcpy(p, &x, 8); return p + 8; }
static char *put_bytes(char *p, const void *from, size_t n) { memcpy(p, from, n); return p + n; }

static text value(text *rest, const char *key) {   /* of the next key of this name; rest goes on behind it, as keys come in order */
    size_t k = strlen(key); const char *p = memmem(rest->p, rest->n, key, k), *end = rest->p + rest->n;
    if (!p) refuse("a header without a key that is needed");
    p += k; const char *q = p;
    if (*p == '"') for (q = ++p; q < end && *q != '"'; q++) q += *q == '\\';
    else while (q < end && *q != ',' && *q != '}') q++;
    if (q >= end) refuse("a header that ends too early");
    rest->p = q; rest->n = end - q;
    return (text){p, q - p};
}
static long number(text t) { long x = 0; int sign = t.n && *t.p == '-'; for (int i = sign; i < t.n; i++) x = x * 10 + t.p[i] - '0'; return sign ? -x : x; }
static int unescape(char *to, text t) {   /* what the load generator writes: \uXXXX below 128 */
    char *p = to;
    for (int i = 0; i < t.n; i++) {
        if (t.p[i] != '\\') { *p++ = t.p[i]; continue; }
        if (i + 5 >= t.n || t.p[i + 1] != 'u') refuse("an escape that it does not know");
        char hex[5] = {t.p[i + 2], t.p[i + 3], t.p[i + 4], t.p[i + 5]}; *p++ = strtol(hex, 0, 16); i += 5;
    }
    return p - to;
}
static void write_all(int fd, const char *p, size_t n) {
    while (n) { ssize_t w = write(fd, p, n); if (w < 0) { if (errno == EINTR) continue; die("write"); } p += w; n -= w; }
}

/* ---- sends and pulls --------------------------------------------------------------------------------------- */

static char records[2 * RECEIVE], answers[2 * RECEIVE];   /* of one turn: a record is shorter than its frame, an answer than a send */
static char *record_end, *answer_end;
static uint64_t stored_ms;

static void take_send(text header, const char *body, int body_len) {
    text topic = value(&header, "\"b\":"), id = value(&header, "\"e\":"), flag = value(&header, "\"f\":"), born = value(&header, "\"g\":");
    text sys_flag = value(&header, "\"h\":"), properties = value(&header, "\"i\":"), opaque = value(&header, "\"opaque\":");
    static const char host[8] = "\x7f\0\0\x01\0\0\x2a\x9f";
    queue *q = queue_of(topic.p, topic.n, number(id));
    long at = log_end + (record_end - records);
    if (q->count == UNITS || at + RECEIVE > LOG_SIZE) refuse("its log is full");
    char *start = record_end, *p = put32(start + 4, MAGIC);
    p = put32(p, crc32_of(body, body_len) & 0x7fffffff); p = put32(p, q->id); p = put32(p, number(flag)); p = put64(p, q->count); p = put64(p, at);
    p = put32(p, number(sys_flag)); p = put64(p, number(born)); p = put_bytes(p, host, 8); p = put64(p, stored_ms); p = put_bytes(p, host, 8);
    p = put32(p, 0); p = put64(p, 0); p = put32(p, body_len); p = put_bytes(p, body, body_len);
    *p++ = topic.n; p = put_bytes(p, topic.p, topic.n);
    int n = unescape(p + 2, properties); p = put16(p, n) + n;
    put32(start, p - start); record_end = p;
    q->units[q->count] = (unit){at, p - start};
    n = sprintf(answer_end + 8, "{\"code\":0,\"extFields\":{\"msgId\":\"7F00000100002A9F%016lX\",\"queueId\":\"%d\",\"queueOffset\":\"%ld\","
        "\"MSG_REGION\":\"DefaultRegion\",\"TRACE_ON\":\"true\"},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":%.*s,"
        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}", at, q->id, q->count, opaque.n, opaque.p);
    put32(answer_end, 4 + n); put32(answer_end + 4, n); answer_end += 8 + n;
    q->count++;
}
static void flush(conn *c) {   /* the records of a turn, then the answers to them */
    size_t n = record_end - records;
    if (n && pwrite(log_fd, records, n, log_end) != (ssize_t)n) die("pwrite");
    log_end += n; record_end = records;
    write_all(c->fd, answers, answer_end - answers); answer_end = answers;
}
static void answer_pull(conn *c, text header) {
    text topic = value(&header, "\"topic\":"), id = value(&header, "\"queueId\":"), offset = value(&header, "\"queueOffset\":");
    text most = value(&header, "\"maxMsgNums\":"), opaque = value(&header, "\"opaque\":");
    queue *q = queue_of(topic.p, topic.n, number(id));
    long first = number(offset), last = first + number(most);
    if (number(most) > MOST_PULLED) refuse("a pull of too many");
    if (last > q->count) last = q->count;
    char head[1024]; struct iovec parts[MOST_PULLED + 1]; int count = 1; size_t size = 0;
    for (long k = first; k < last; k++, count++) {
        parts[count] = (struct iovec){log_map + q->units[k].at, q->units[k].size}; size += q->units[k].size;
    }
    int n = sprintf(head + 8, "{\"code\":%d,\"extFields\":{\"suggestWhichBrokerId\":\"0\",\"nextBeginOffset\":\"%ld\",\"minOffset\":\"0\","
        "\"maxOffset\":\"%ld\"},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":%.*s,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}",
        size ? 0 : 19, last, q->count, opaque.n, opaque.p);
    put32(head, 4 + n + size); put32(head + 4, n);
    parts[0] = (struct iovec){head, 8 + n};
    struct iovec *left = parts;
    while (count) {
        ssize_t w = writev(c->fd, left, count);
        if (w < 0) { if (errno == EINTR) continue; die("writev"); }
        while (count && (size_t)w >= left->iov_len) { w -= left->iov_len; left++; count--; }
        if (count) { left->iov_base = (char *)left->iov_base + w; left->iov_len -= w; }
    }
}
static int turn(conn *c) {   /* answer what is there; whether the connection is still open */
    ssize_t r = recv(c->fd, c->buf + c->filled, RECEIVE - c->filled, 0);
    if (r <= 0) return 0;
    int at = 0; c->filled += r;
    struct timespec now; clock_gettime(CLOCK_REALTIME, &now); stored_ms = now.tv_sec * 1000L + now.tv_nsec / 1000000;
    while (c->filled - at >= 8 && c->filled - at >= 4 + (int)u32(c->buf + at)) {
        const char *frame = c->buf + at; int length = u32(frame), header_len = u32(frame + 4) & 0xffffff;
        text header = {frame + 8, header_len};
        if (header_len + 4 > length) refuse("a header that is longer than its frame");
        if (!strncmp(header.p, "{\"code\":310,", 12)) take_send(header, frame + 8 + header_len, length - 4 - header_len);
        else if (!strncmp(header.p, "{\"code\":11,", 11)) { flush(c); answer_pull(c, header); }
        else refuse("a request that it is not made for");
        at += 4 + length;
    }
    flush(c);
    if (at == 0 && c->filled == RECEIVE) refuse("a frame that is too long");
    memmove(c->buf, c->buf + at, c->filled - at); c->filled -= at;
    return 1;
}

int main(int argc, char **v) {
    if (argc != 3) refuse("usage: stripped_broker PORT FILE");
    make_table(); open_log(v[2]); record_end = records; answer_end = answers;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(v[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listening = socket(AF_INET, SOCK_STREAM, 0), one = 1, room = SEND_BUFFER, ep = epoll_create1(0);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listening, (void *)&a, sizeof a) || listen(listening, 128)) die("bind");
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, ev[EVENTS];
    epoll_ctl(ep, EPOLL_CTL_ADD, listening, &e);
    printf("The broker[stripped, 127.0.0.1:%s] boot success\n", v[1]); fflush(stdout);
    for (;;) {
        int n = epoll_wait(ep, ev, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            conn *c = ev[i].data.ptr;
            if (c) {
                if (!turn(c)) { close(c->fd); free(c->buf); free(c); }
                continue;
            }
            if (!(c = calloc(1, sizeof *c)) || !(c->buf = malloc(RECEIVE))) die("malloc");
            if ((c->fd = accept(listening, NULL, NULL)) < 0) die("accept");
            setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
            e.data.ptr = c; epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
        }
    }
}
