/* LD_PRELOAD: a socket that is bound to every address is bound to BIND_ADDRESS instead. RocketMQ's
   HA port has no setting for it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

typedef int bind_function(int, const struct sockaddr *, socklen_t);

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    const char *host = getenv("BIND_ADDRESS");
    struct sockaddr_in named;
    if (host && address->sa_family == AF_INET) {
        named = *(const struct sockaddr_in *)address;
        if (named.sin_addr.s_addr == htonl(INADDR_ANY)) {
            inet_pton(AF_INET, host, &named.sin_addr);
            address = (const struct sockaddr *)&named;
        }
    }
    return ((bind_function *)dlsym(RTLD_NEXT, "bind"))(fd, address, length);
}
