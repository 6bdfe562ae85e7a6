/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates clients on another machine.
 *
 *     front ──socket──> kernel ──IP──> device ──read()──> this file
 *                       kernel <──IP── device <──write()──
 *
 * Ten thousand clients as sockets of this machine would cost more than the front.  A sender over loopback
 * also does the receiving, so the front's core would do its clients' work.  If that work is steered to the
 * core that they share with the upstream, that core is full before the front's.  Real clients are behind a
 * network device, and so are these: a TUN device delivers the packets that the front's kernel sends.  This
 * file has as much of TCP as ten thousand clients need that send one request and listen: a handshake, one
 * segment with the request, and an acknowledgement for every token, as from a client whose tokens come 100 ms
 * apart.
 *
 * The front's core does the same work as for a network card: TCP, IP, the device's queue.  Acknowledgements are
 * received on this process's core, as by a card that interrupts another one than the front's.
 *
 * Only packets that do not fit the device's long queue are lost; the front's kernel sends them again.
 * Segments in the wrong order are acknowledged up to the gap and dropped.  No window scaling, no timestamps,
 * no selective acknowledgements. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/bench/streams/load_priv.h"

#define HERE         0xc6120001u /* 198.18.0.1, of the range for benchmarks: the device's own address */
#define NETMASK      0xffff0000u
#define FIRST_PORT   20000 /* the first client's; the front's own range of ports does not matter to them */
#define QUEUE        20000 /* packets that may wait for us */
#define WINDOW       65535
#define MAX_OWED     256
#define PACKET_BYTES 2048

struct packet {
    uint16_t space;                /* so that what follows is aligned */
    struct virtio_net_hdr offload; /* read and written from here on */
    struct iphdr ip;
    struct tcphdr tcp;
    uint8_t data[PACKET_BYTES];
};
_Static_assert(offsetof(struct packet, ip) == 2 + sizeof(struct virtio_net_hdr), "no gap");
#define OFFLOAD_AT offsetof(struct packet, offload)

struct remote {
    int fd;
    uint32_t
        address; /* the clients': another one each time, as the kernel may remember the last ones' ports */
    uint32_t n_owed;
    uint32_t owed[MAX_OWED]; /* clients that owe an acknowledgement */
};

/* ---- writing ---- */

static uint16_t ip_checksum(const struct iphdr *ip)
{
    uint16_t words[sizeof(*ip) / 2];
    uint32_t sum = 0;

    memcpy(words, ip, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / 2; i++)
        sum += words[i];
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t) ~(sum + (sum >> 16));
}

enum segment { SEGMENT_SYN, SEGMENT_ACK, SEGMENT_RST };

/* Writes a client's next segment.
 * TCP's checksum is left open, as for a network card that would fill it in. */
static void write_segment(struct load *load, uint32_t number, enum segment kind, struct bytes data)
{
    const struct client *client = &load->clients[number];
    static struct packet packet;
    size_t len = sizeof(packet.ip) + sizeof(packet.tcp) + data.len_bytes;

    memset(&packet, 0, offsetof(struct packet, ip));
    packet.offload.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    packet.offload.csum_start = sizeof(packet.ip);
    packet.offload.csum_offset = offsetof(struct tcphdr, check);
    packet.ip = (struct iphdr){.version = 4,
                               .ihl = sizeof(packet.ip) / 4,
                               .tot_len = htons((uint16_t)len),
                               .frag_off = htons(IP_DF),
                               .ttl = 64,
                               .protocol = IPPROTO_TCP,
                               .saddr = htonl(load->remote->address),
                               .daddr = htonl(INADDR_LOOPBACK)};
    packet.ip.check = ip_checksum(&packet.ip);
    packet.tcp = (struct tcphdr){.source = htons((uint16_t)(FIRST_PORT + number)),
                                 .dest = htons(load->opts->port),
                                 .seq = htonl(client->send_at),
                                 .ack_seq = htonl(client->take_at),
                                 .doff = sizeof(packet.tcp) / 4,
                                 .syn = kind == SEGMENT_SYN,
                                 .rst = kind == SEGMENT_RST,
                                 .ack = kind != SEGMENT_SYN,
                                 .psh = data.len_bytes > 0,
                                 .window = htons(WINDOW)};
    if (data.len_bytes > 0)
        memcpy(packet.data, data.data, data.len_bytes);
    if (write(load->remote->fd, (uint8_t *)&packet + OFFLOAD_AT, sizeof(packet.offload) + len) < 0)
        fprintf(stderr, "stream %u: %s\n", number, strerror(errno));
}

static void acknowledge(struct load *load)
{
    struct remote *remote = load->remote;

    for (uint32_t i = 0; i < remote->n_owed; i++) {
        load->clients[remote->owed[i]].is_owed = false;
        write_segment(load, remote->owed[i], SEGMENT_ACK, bytes_of(NULL, 0));
    }
    remote->n_owed = 0;
}

static void owe(struct load *load, uint32_t number)
{
    struct remote *remote = load->remote;

    if (load->clients[number].is_owed)
        return;
    load->clients[number].is_owed = true;
    remote->owed[remote->n_owed++] = number;
    if (remote->n_owed == MAX_OWED)
        acknowledge(load);
}

void remote_ask(struct load *load, uint32_t number)
{
    load->clients[number].send_at = number * 2654435761u;
    write_segment(load, number, SEGMENT_SYN, bytes_of(NULL, 0));
    load->clients[number].send_at++;
}

/* ---- reading ---- */

static void send_request(struct load *load, uint32_t number)
{
    struct buf request = {0};

    load_put_request(load, number, &request);
    if (request.len_bytes > 0 && request.len_bytes <= PACKET_BYTES) {
        write_segment(load, number, SEGMENT_ACK, buf_view(&request));
        load->clients[number].send_at += (uint32_t)request.len_bytes;
    }
    buf_fini(&request);
}

static void take_segment(struct load *load, uint32_t number, const struct tcphdr *tcp, struct bytes data)
{
    struct client *client = &load->clients[number];
    uint32_t seq = ntohl(tcp->seq);

    if (tcp->syn && !client->is_open) {
        client->is_open = true;
        client->take_at = seq + 1;
        send_request(load, number);
        return;
    }
    if (tcp->rst && client->is_open) {
        client->is_open = false;
        load_lose(load, number);
        return;
    }
    if (!client->is_open || (data.len_bytes == 0 && !tcp->fin))
        return;
    if (seq == client->take_at) {
        client->take_at += (uint32_t)data.len_bytes + tcp->fin;
        load_take(load, number, (const char *)data.data, data.len_bytes, clock_now_ns());
        if (tcp->fin) {
            client->is_open = false;
            load_lose(load, number);
        }
    }
    owe(load, number);
}

/* Takes a packet for one of the clients.
 * Ignores others that the kernel sends (it looks for IPv6 routers). */
static void take_packet(struct load *load, const struct packet *packet, size_t len)
{
    size_t head = sizeof(packet->offload) + sizeof(packet->ip) + sizeof(packet->tcp), total, doff;
    uint32_t number;

    if (len < head || packet->ip.version != 4 || packet->ip.ihl != 5 || packet->ip.protocol != IPPROTO_TCP ||
        packet->ip.daddr != htonl(load->remote->address) || packet->tcp.source != htons(load->opts->port))
        return;
    number = (uint32_t)ntohs(packet->tcp.dest) - FIRST_PORT;
    total = ntohs(packet->ip.tot_len);
    doff = packet->tcp.doff * 4u;
    if (number >= load->n_open || total + sizeof(packet->offload) > len || doff < sizeof(packet->tcp) ||
        total < sizeof(packet->ip) + doff)
        return;
    take_segment(load, number, &packet->tcp,
                 bytes_of((const uint8_t *)&packet->tcp + doff, total - sizeof(packet->ip) - doff));
}

void remote_turn(struct load *load)
{
    static struct packet packet;
    ssize_t n;

    while ((n = read(load->remote->fd, (uint8_t *)&packet + OFFLOAD_AT, sizeof(packet) - OFFLOAD_AT)) > 0)
        take_packet(load, &packet, (size_t)n);
    acknowledge(load);
}

/* ---- the device ---- */

static int set_address(int fd, struct ifreq *request, unsigned long what, uint32_t address)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};

    memcpy(&request->ifr_addr, &in, sizeof(in));
    return ioctl(fd, what, request);
}

/* The front listens only on 127.0.0.1: lets the device send to it. */
static int admit_loopback(const char *name)
{
    char path[100];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/%s/route_localnet", name);
    file = fopen(path, "w");
    if (file == NULL || fputs("1\n", file) < 0) {
        if (file != NULL)
            fclose(file);
        return -1;
    }
    return fclose(file);
}

static int open_device(void)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int rc = -1;

    memcpy(request.ifr_name, "baton%d", 8);
    if (fd >= 0 && any >= 0 && ioctl(fd, TUNSETIFF, &request) == 0 &&
        ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM) == 0 && set_address(any, &request, SIOCSIFADDR, HERE) == 0 &&
        set_address(any, &request, SIOCSIFNETMASK, NETMASK) == 0) {
        request.ifr_qlen = QUEUE;
        rc = ioctl(any, SIOCSIFTXQLEN, &request);
    }
    if (rc == 0) {
        request.ifr_flags = IFF_UP | IFF_RUNNING;
        rc = ioctl(any, SIOCSIFFLAGS, &request);
    }
    if (rc == 0)
        rc = admit_loopback(request.ifr_name);
    if (rc < 0) {
        fprintf(stderr, "a TUN device for the clients: %s\n", strerror(errno));
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    if (any >= 0)
        close(any);
    return fd;
}

int remote_new(struct load *load)
{
    struct remote *remote = calloc(1, sizeof(*remote));

    if (remote == NULL)
        return -1;
    remote->address = (HERE & NETMASK) | (uint32_t)(getpid() % 65000 + 256);
    remote->fd = open_device();
    if (remote->fd < 0) {
        free(remote);
        return -1;
    }
    load->remote = remote;
    return 0;
}

void remote_free(struct load *load)
{
    struct remote *remote = load->remote;

    if (remote == NULL)
        return;
    for (uint32_t i = 0; i < load->n_open; i++)
        if (load->clients[i].is_open)
            write_segment(load, i, SEGMENT_RST, bytes_of(NULL, 0));
    close(remote->fd);
    free(remote);
}
