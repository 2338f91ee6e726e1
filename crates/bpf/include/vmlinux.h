/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The parts of the kernel's types that our BPF programs use. Their offsets here mean nothing: CO-RE
 * relocates each access to the running kernel's layout, found by the names of struct and member.
 * Add a member when a program needs it; the order is of no importance but where it says so.
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;

#ifndef __bpf__
#error "only for BPF programs"
#endif
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

struct netns_ipv4 {
	u8 sysctl_tcp_slow_start_after_idle;
	u8 sysctl_tcp_min_tso_segs;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
	struct netns_ipv4 ipv4;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	u32 sk_pacing_status;
};

struct inet_sock {
	struct sock sk;
};

/* To read the kernel's; ours below is to hand one to it. CO-RE ignores what follows three underscores. */
struct tcp_congestion_ops___kernel {
	char name[16];
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops___kernel *icsk_ca_ops;
	__u32 icsk_rto;
	u64 icsk_ca_priv[13];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 max_window;
	u32 snd_wnd;
	u32 snd_una;
	u32 mss_cache;
	u32 snd_cwnd;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 prior_cwnd;
	u32 prr_out;
	u32 packets_out;
	u32 sacked_out;
	u32 lost;
	u32 lost_out;
	u32 retrans_out;
	u32 srtt_us;
	u32 lsndtime;
	u64 tcp_mstamp;
	u32 delivered_ce;
	u32 data_segs_out;
};

struct rate_sample {
	long rtt_us;
	int losses;
	u32 acked_sacked;
	bool is_app_limited;
	bool is_retrans;
};

/* net/ipv4/tcp_cubic.c: the state of CUBIC, at the start of icsk_ca_priv */
struct bictcp {
	u32 delay_min;
	u32 epoch_start;
};

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
	u32 in_flight;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#pragma clang attribute pop

/* Not relocated: libbpf copies the members by their names. `name` stands first, because the loader writes
 * it there. The functions take what the kernel hands to a BPF program: an array of the arguments. */
struct tcp_congestion_ops {
	char name[16];
	int (*ssthresh)(u64 *ctx);
	int (*cong_avoid)(u64 *ctx);
	int (*set_state)(u64 *ctx);
	int (*cwnd_event)(u64 *ctx);
	int (*cwnd_event_tx_start)(u64 *ctx); /* since 7.1 */
	int (*in_ack_event)(u64 *ctx);
	int (*pkts_acked)(u64 *ctx);
	int (*min_tso_segs)(u64 *ctx);
	int (*cong_control)(u64 *ctx);
	int (*undo_cwnd)(u64 *ctx);
	int (*init)(u64 *ctx);
	int (*release)(u64 *ctx);
	u32 flags;
};

enum tcp_ca_event {
	CA_EVENT_TX_START = 0,
};

enum tcp_ca_state {
	TCP_CA_Open = 0,
	TCP_CA_Disorder = 1,
	TCP_CA_CWR = 2,
	TCP_CA_Recovery = 3,
	TCP_CA_Loss = 4,
};

#define TCP_CONG_NON_RESTRICTED 1
#define TCP_INIT_CWND 10
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1
#define USEC_PER_SEC 1000000

#endif
